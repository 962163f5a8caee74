#!/bin/bash
# The completion scripts that lockstep writes from its option tables: bash is asked, as the Tab key asks it; zsh and fish
# check them, and fish is asked too, where they are installed.
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
for shell in bash zsh fish; do
    "$LOCKSTEP" --help-completion=$shell >"$work/$shell" || fail "--help-completion=$shell"
done
"$LOCKSTEP" --help-completion=tcsh >"$work/refused" 2>"$work/err"
[ $? = 2 ] || fail "--help-completion=tcsh: the exit status is not 2"
grep -q 'expected bash, zsh or fish' "$work/err" || fail "--help-completion=tcsh says '$(cat "$work/err")'"
[ ! -s "$work/refused" ] || fail "--help-completion=tcsh writes $(cat "$work/refused")"

# Sourced in a fresh bash; prints one answer a line.
touch "$work/model one.gguf" "$work/notes.txt"
ask() { # the words, the last being completed
    (cd "$work" && bash --norc -c '. ./bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lockstep 2>/dev/null; printf "%s\n" "${COMPREPLY[@]}"' ask "$@" | sort)
}
expect() { # answers, words...
    local want=$1 got
    shift
    got=$(ask "$@" | paste -sd,)
    [ "$got" = "$want" ] || fail "bash, '$*': offers '$got', expected '$want'"
}
expect run lockstep ru
expect node,nodes lockstep nod
expect --rdma-matrix lockstep run m.gguf --rdma
expect slice lockstep run m.gguf --experts sl
expect slice lockstep run m.gguf --experts = sl
expect "model one.gguf" lockstep run mod
expect notes.txt lockstep run m.gguf --file no
expect notes.txt lockstep run m.gguf -f no
expect "" lockstep run m.gguf -n mod
expect bench,doctor lockstep fabric ""
expect --rounds lockstep fabric bench --rou
expect "" lockstep nosuch --
# Each command, each option that its help names.
for command in $("$LOCKSTEP" help all | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    "$LOCKSTEP" "$command" --help all | grep -oE '^  (-[a-zA-Z], )?--[a-z0-9-]+' | grep -oE -- '--.*' | sort >"$work/want"
    ask lockstep "$command" -- | grep -v '^-.$' >"$work/got"
    cmp -s "$work/want" "$work/got" || fail "bash, $command: $(diff "$work/want" "$work/got")"
done

if command -v zsh >/dev/null; then
    zsh -n "$work/zsh" || fail "zsh does not read its script"
    mkdir "$work/functions" && cp "$work/zsh" "$work/functions/_lockstep"
    (cd "$work" && zsh -f -c "fpath=($work/functions \$fpath); autoload -Uz compinit; compinit -D -u; [ \"\$_comps[lockstep]\" = _lockstep ]") ||
        fail "zsh does not know whose script it is"
    echo "zsh reads it"
fi
if command -v fish >/dev/null; then
    fish --no-execute "$work/fish" || fail "fish does not read its script"
    fish_says() { (cd "$work" && HOME=$work fish --no-config -c "source fish; complete -C '$1'" | cut -f1 | sort | paste -sd,); }
    [ "$(fish_says 'lockstep nod')" = node,nodes ] || fail "fish offers '$(fish_says 'lockstep nod')' for nod"
    [ "$(fish_says 'lockstep run m --experts sl')" = slice ] || fail "fish offers '$(fish_says 'lockstep run m --experts sl')' for --experts sl"
    [ "$(fish_says 'lockstep fabric bench --rou')" = --rounds ] || fail "fish offers '$(fish_says 'lockstep fabric bench --rou')'"
    echo "fish reads it"
fi
[ $failures = 0 ] && echo "every command and option is offered"
