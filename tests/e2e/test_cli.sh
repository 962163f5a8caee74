#!/bin/bash
# What a person meets at the command line: help, bad input (one sentence, the right exit status), a
# rank that dies, a full disk, Ctrl-C, JSON.
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"

# refuse STATUS PATTERN arguments...: ends with STATUS and one sentence that matches PATTERN.
refuse() {
    local want=$1 pattern=$2 status
    shift 2
    timeout 60 "$LOCKSTEP" "$@" >"$work/out" 2>"$work/err" <"${input:-/dev/null}"
    status=$?
    [ $status = "$want" ] || fail "lockstep $*: exit status $status, expected $want ($(cat "$work/err"))"
    grep -Eq -e "$pattern" "$work/err" || fail "lockstep $*: said '$(cat "$work/err")', expected /$pattern/"
    [ "$(grep -c '^lockstep' "$work/err")" = 1 ] || fail "lockstep $*: expected one sentence: $(cat "$work/err")"
}

accept() {
    timeout 60 "$LOCKSTEP" "$@" >"$work/out" 2>"$work/err" </dev/null || fail "lockstep $*: $(cat "$work/err")"
}

# ---- help ---------------------------------------------------------------------------------------
accept help all
commands=$(sed -n 's/^  \([a-z]*\)  .*/\1/p' "$work/out")
[ "$(echo "$commands" | wc -w)" -ge 8 ] || fail "lockstep help lists: $commands"
for command in $commands; do
    accept "$command" --help
    grep -q "^usage: lockstep $command" "$work/out" || fail "$command --help says no usage"
    accept "$command" --help-man
    if command -v groff >/dev/null; then
        warnings=$(groff -man -ww -Tutf8 -z "$work/out" 2>&1)
        [ -z "$warnings" ] || fail "$command --help-man: $warnings"
    fi
done
accept --version
grep -Eq '^lockstep [0-9.]+ \((with|without) shaders\)$' "$work/out" || fail "--version says '$(cat "$work/out")'"
accept help run
grep -q -- --ranks "$work/out" || fail "help run does not name --ranks"
# Two levels: what one needs, and the rest.
grep -q -- --rdma-matrix "$work/out" && fail "help run has everything"
grep -Eq "^lockstep run --help all has [0-9]+ more options.$" "$work/out" || fail "help run does not say that there is more"
for words in "run --help all" "run --help-all" "help run all"; do
    accept $words
    grep -q -- --rdma-matrix "$work/out" || fail "lockstep $words does not have everything"
    grep -q "more options" "$work/out" && fail "lockstep $words says that there is more"
done
accept help fabric bench all
accept help
grep -q "^  chat " "$work/out" && ! grep -q "^  quantize " "$work/out" && grep -q "^lockstep help all has" "$work/out" || fail "help lists $(cat "$work/out")"
accept help all
grep -q "^  quantize " "$work/out" && grep -q "NO_COLOR" "$work/out" || fail "help all lists $(cat "$work/out")"
LC_ALL=C grep -q $'\x1b' "$work/out" && fail "help has escape sequences in a file"
CLICOLOR_FORCE=1 "$LOCKSTEP" run --help | LC_ALL=C grep -q $'\x1b\[1musage:' || fail "CLICOLOR_FORCE"
CLICOLOR_FORCE=1 NO_COLOR=1 "$LOCKSTEP" run --help | LC_ALL=C grep -q $'\x1b' && fail "NO_COLOR"
# What --help has is an option: a list of the common ones names no other.
for command in run chat serve eval bench up; do
    n=$("$LOCKSTEP" $command --help | sed -n 's/.* has \([0-9]*\) more options.$/\1/p')
    short=$("$LOCKSTEP" $command --help | grep -cE '^  (-[a-zA-Z], )?--') all=$("$LOCKSTEP" $command --help all | grep -cE '^  (-[a-zA-Z], )?--')
    [ "${n:-0}" -gt 0 ] && [ $((short + n)) = "$all" ] || fail "$command --help: $short and ${n:-no} more are not $all"
done

# ---- devices ------------------------------------------------------------------------------------
LOCKSTEP_VULKAN_LIB=$work/none.so accept devices
grep -Eq '^no devices: .*(none\.so|without Vulkan)' "$work/out" || fail "devices without a library: $(cat "$work/out")"
LOCKSTEP_VULKAN_LIB=$work/none.so accept devices --json
[ "$(cat "$work/out")" = "[]" ] || fail "devices --json without a library: $(cat "$work/out")"
accept devices
accept devices --json
python3 - "$work/out" <<'EOF' || fail "devices --json: $(cat "$work/out")"
import json, sys
for number, d in enumerate(json.load(open(sys.argv[1]))):
    assert d["number"] == number and d["name"] and d["memory_bytes"] > 0, d
    assert d["kind"] in ("discrete", "integrated", "software", "other"), d
    assert set(d["features"]) <= {"fma", "fma-khr", "f64", "int64", "dot", "matrix"}, d
    assert d["error"] is not None or d["vulkan"] >= 1002, d
EOF
if grep -q '"error": null' "$work/out"; then
    LOCKSTEP_DEVICE_TIMEOUT=never accept devices
    grep -q 'not usable: LOCKSTEP_DEVICE_TIMEOUT=never' "$work/out" || fail "a wrong timeout: $(cat "$work/out")"
fi

# ---- a trace ------------------------------------------------------------------------------------
accept bench "$model" -q -p 8 -n 8 -r 1 -t 1 --ranks 2 --trace "$work/trace.json"
python3 - "$work/trace.json" <<'EOF' || fail "bench --trace: the trace does not add up"
import json, sys
events = [e for e in json.load(open(sys.argv[1])) if e["ph"] == "X"]
seen = {}
for rank in 0, 1:
    mine = [e for e in events if e["pid"] == rank]
    steps = [e for e in mine if e["name"] == "step"]
    parts = [e for e in mine if e["cat"] in ("compute", "fabric")]
    total = sum(e["dur"] for e in steps)
    assert len(steps) >= 8 and abs(sum(e["dur"] for e in parts) - total) < 0.01 * total
    assert all(any(s["ts"] - 0.01 <= e["ts"] and e["ts"] + e["dur"] <= s["ts"] + s["dur"] + 0.01 for s in steps) for e in parts)
    seen[rank] = (len(steps), len([e for e in mine if e["name"] == "sum"]))
assert seen[0] == seen[1] and seen[0][1] % seen[0][0] == 0, seen
EOF
# A long prompt: sums go on while the other half of the tokens is computed.
accept bench "$model" -q -p 400 -n 1 -r 1 -t 2 --ranks 2 --emulate-link bandwidth=300Mbit --trace "$work/trace.json"
python3 - "$work/trace.json" <<'EOF' || fail "bench --trace: no sums beside compute"
import json, sys
events = [e for e in json.load(open(sys.argv[1])) if e["ph"] == "X"]
end = lambda e: e["ts"] + e["dur"]
for rank in 0, 1:
    mine = [e for e in events if e["pid"] == rank]
    step = next(e for e in mine if e["name"] == "step" and e["args"]["tokens"] == 400)
    inside = [e for e in mine if e is not step and step["ts"] - 0.01 <= e["ts"] and end(e) <= end(step) + 0.01]
    sums = [e for e in inside if e["cat"] == "beside"]
    compute = [e for e in inside if e["cat"] == "compute"]
    waits = [e for e in inside if e["name"] == "wait for sum"]
    assert len(sums) > 0 and len(sums) == len(waits) and not [e for e in inside if e["name"] == "sum" and e["tid"] == 0]
    both = sum(max(0, min(end(s), end(c)) - max(s["ts"], c["ts"])) for s in sums for c in compute)
    assert both > 0, (rank, both)
    assert abs(sum(e["dur"] for e in inside if e["tid"] == 0) - step["dur"]) < 0.01 * step["dur"]
EOF

# ---- bad usage ----------------------------------------------------------------------------------
timeout 60 "$LOCKSTEP" >"$work/out" 2>&1
[ $? = 2 ] || fail "lockstep without a command: exit status is not 2"
refuse 2 "unknown command 'rum' \(did you mean run\?\)" rum
refuse 2 "unknown command 'nosuch'; see lockstep help" nosuch
refuse 2 "unknown option --nosuch; options follow a command" --nosuch
"$LOCKSTEP" help help | grep -q '^usage: lockstep COMMAND' || fail "help help"
LOCKSTEP_LOG=loud refuse 2 "LOCKSTEP_LOG=loud is not a valid level: expected error, warn, info or debug" inspect "$model"
LOCKSTEP_LOG=debug "$LOCKSTEP" inspect "$model" >/dev/null || fail "LOCKSTEP_LOG=debug"
"$LOCKSTEP" fabric doctor >"$work/out" || fail "fabric doctor"
if grep -q "no RDMA" "$work/out"; then grep -q "^BAD.*locked memory" "$work/out" && fail "memory is to be locked for no device"; fi
"$LOCKSTEP" help fabric bench | grep -q '^usage: lockstep fabric bench' || fail "help fabric bench"
"$LOCKSTEP" help run | grep -q '^usage: lockstep run' || fail "help run"
refuse 2 "unknown option --rnks \(did you mean --ranks\?\)" run "$model" --rnks 2
refuse 2 "unknown option --xyzzy" run "$model" --xyzzy
refuse 2 "unknown option -Z" eval "$model" -Z
refuse 2 "MODEL is missing" run
refuse 2 "unexpected argument 'b'" inspect "$model" b
refuse 2 "ranks 0: expected a whole number from 1" run "$model" --ranks 0
refuse 2 "ranks two: expected a whole number" run "$model" --ranks two
refuse 2 "ranks needs a value" run "$model" --ranks
refuse 2 "json takes no value" run "$model" --json=yes
refuse 2 "temp -1: expected a number from 0" run "$model" --temp -1
refuse 2 "kv f64: expected one of f16\|f32" run "$model" --kv f64
refuse 2 "split 1,,2: expected" run "$model" --split 1,,2
refuse 2 "seed -1: expected a whole number" run "$model" --seed -1
refuse 2 "exclude each other" run "$model" -p a -f b
refuse 2 "raw and --chat exclude each other" run "$model" -p a --raw --chat
refuse 2 "raw and --system exclude each other" run "$model" -p a --raw --system s
refuse 2 "MODEL is empty" run "" -p a
refuse 2 "emulated link: \"foo\"" run "$model" -p a --ranks 2 --emulate-link foo
refuse 2 "emulated link: \"latency=1e30s\"" run "$model" -p a --emulate-link latency=1e30s
refuse 2 "RDMA matrix: line 1" run "$model" -p a --ranks 2 --rdma-matrix "$SOURCE_DIR/README.md"
refuse 2 "expected env or HOST:PORT" run "$model" -p a --ranks 2 --rank 0 --join 127.0.0.1:0
refuse 2 "compare-links and --trace exclude" bench "$model" --compare-links 3us --trace "$work/trace.json"
refuse 2 "compare-links and --nodes exclude" bench "$model" --compare-links 3us --nodes auto
refuse 2 "compare-links and --secret-file exclude" bench "$model" --compare-links 3us --secret-file "$model"
refuse 2 "compare-links and --ranks 1 exclude" bench "$model" --compare-links 3us --ranks 1
refuse 2 "unknown option --hosts" plan "$model" --hosts a,b
refuse 2 "unexpected argument 'x'" devices x
refuse 2 'no link is called ""' fabric bench --links ""
refuse 2 "unknown parallelism sideways" run "$model" -p a --ranks 2 --parallel sideways
refuse 2 "unknown parallelism tensor4294967297xpipeline2" run "$model" -p a --ranks 2 --parallel tensor4294967297xpipeline2

# ---- bad input ----------------------------------------------------------------------------------
head -c 100000 "$model" >"$work/truncated.gguf"
head -c 3 "$model" >"$work/stub.gguf"
refuse 2 "No such file" run "$work/missing.gguf" -p a
refuse 2 "No such file" eval "$work/missing.gguf" --ids 1
refuse 2 "No such file" run "$model" -f "$work/missing.txt"
# A name that is nearly a model's, one of the hub, one of Ollama.
mkdir -p "$work/here/lockstep/models" && ln -s "$model" "$work/here/lockstep/models/jargon-3m.gguf"
XDG_DATA_HOME=$work/here refuse 2 "jorgon-3m: no such file, and no model .*\(did you mean jargon-3m\?\)" run jorgon-3m hello
XDG_DATA_HOME=$work/here refuse 2 "\(did you mean jargon-3m\?\)" inspect jargon
XDG_DATA_HOME=$work/here refuse 2 "lockstep pull downloads one\)" inspect nothing-near
refuse 2 "lockstep pull Qwen/Qwen3-0.6B-GGUF:Q8_0 downloads it" run Qwen/Qwen3-0.6B-GGUF:Q8_0 hello
refuse 2 "ollama:NAME:TAG" run qwen3:0.6b hello
refuse 2 "nowhere: No such file.*--api-key-file: a file with a key" serve "$model" --api-key-file nowhere
refuse 2 "truncated.gguf" run "$work/truncated.gguf" -p a
refuse 2 "truncated.gguf" run "$work/truncated.gguf" -p a --ranks 2
refuse 2 "stub.gguf" run "$work/stub.gguf" -p a
mkfifo "$work/pipe.gguf"
refuse 2 "pipe.gguf: not a regular file" run "$work/pipe.gguf" -p a
refuse 2 "prompt has [0-9]+ tokens, but the context holds 16" run "$model" -q -p "$(printf 'word %.0s' {1..40})" --ctx 16
for command in "run $model -p a" "chat $model" "serve $model --port 0" "eval $model --ids 1" "bench $model" "plan $model"; do
    # shellcheck disable=SC2086
    refuse 2 "context of 100000 is more than the model's 512, the most that --ctx may be" $command --ctx 100000
done
refuse 2 "split has 2 weights, but there are 3 ranks" run "$model" -p a --ranks 3 --split 1,1
refuse 2 "needs 4 ranks, but there are 3" run "$model" -p a --ranks 3 --parallel tensor2xpipeline2
refuse 2 "--ids is missing" eval "$model"
refuse 2 "number 2 is not a valid token id" eval "$model" --ids 1,x
refuse 2 "No such file" eval "$model" --ids "@$work/missing"
refuse 2 "token 99999 is not in the vocabulary" eval "$model" -q --ids 1,99999
refuse 2 "do not fit the context of 4" eval "$model" -q --ctx 4 --ids 1,2,3,4,5
accept eval "$model" -q --ctx 4 --ids 1,2,3 --greedy 2 --logits "$work/full.f32"
refuse 2 "3 ids and --greedy 3 do not fit the context of 4" eval "$model" -q --ctx 4 --ids 1,2,3 --greedy 3 --logits "$work/beyond.f32"
[ ! -e "$work/beyond.f32" ] && [ ! -e "$work/beyond.f32.part" ] || fail "eval beyond its context began a file"
LOCKSTEP_ISA=abacus refuse 2 "abacus" run "$model" -p a

refuse 2 "expected a whole number from 0 to 9223372036854775807" run "$model" -p a --seed 18446744073709551615
printf 'hello\0world\n' >"$work/nul"
input=$work/nul refuse 2 "NUL byte" chat "$model" -q -n 3
input=$work refuse 1 "cannot read the message: Is a directory" chat "$model" -q -n 3
# The prompt of bench is as long as the model's context allows.
accept bench "$model" -q -n 4 -r 1 -t 1 --json
grep -q '"prompt_tokens": 511' "$work/out" || fail "bench: $(cat "$work/out")"
# What is generated may come after some context.
accept bench "$model" -q -p 4 -n 4 -d 300 -r 1 -t 1 --json
grep -q '"depth": 300' "$work/out" || fail "bench --depth: $(cat "$work/out")"
refuse 2 "context" bench "$model" -q -p 4 -n 4 -d 600 -r 1 -t 1
# Whatever the program is called, its ranks run the same one; and where there are too few files, it says so.
cp "$LOCKSTEP" "$work/renamed"
(PATH=/usr/bin:/bin; timeout 60 "$work/renamed" run "$model" -q -p a -n 2 --ranks 2 >/dev/null 2>"$work/err") || fail "a renamed program: $(cat "$work/err")"
rm "$work/renamed"
(failures=0; ulimit -n 16; refuse 1 "too few open files" run "$model" -q -p a -n 2 --ranks 4; [ $failures = 0 ]) || failures=1

# ---- a disk that is full, a pipe that is closed -------------------------------------------------------
input=/dev/zero refuse 2 "stdin: larger than 67108864 bytes" run "$model" -t 1
if [ -w /dev/full ]; then
    refuse 1 "cannot write .*No space left on device" eval "$model" -q --ids 1,2,3 --logits /dev/full
    timeout 60 "$LOCKSTEP" eval "$model" -q --ids 1,2,3 --greedy 3 >/dev/full 2>"$work/err"
    [ $? = 1 ] && [ "$(grep -c "No space left" "$work/err")" = 1 ] || fail "greedy ids to a full device: $(cat "$work/err")"
    timeout 60 "$LOCKSTEP" help >/dev/full 2>"$work/err"
    [ $? = 1 ] && grep -q "No space left" "$work/err" || fail "help to a full device: $(cat "$work/err")"
fi
(failures=0; ulimit -f 8; refuse 1 "File too large" eval "$model" -q --ids 1,2,3 --logits "$work/large"; [ $failures = 0 ] && [ ! -e "$work/large" ]) || failures=1
refuse 1 "Is a directory" eval "$model" -q --ids "@$work"
refuse 1 "cannot write $work/no/such/dir" eval "$model" -q --ids 1 --logits "$work/no/such/dir.f32"
in_small_disk() { # a file system of 64 kB, in a mount namespace of its own
    unshare -rm bash -c 'mount -t tmpfs -o size=64k none "$0" && cd "$0" && "$@"' "$@"
}
mkdir "$work/small"
if in_small_disk "$work/small" true 2>/dev/null; then
    in_small_disk "$work/small" bash -c '
        "$0" eval "$1" -q --ids 1,2,3,4,5,6,7,8,9,10,11,12 --logits rows.f32 2>../err
        status=$?
        cat ../err
        [ $status = 1 ] && grep -q "cannot write rows.f32.part: No space left on device" ../err && [ ! -e rows.f32.part ] && [ ! -e rows.f32 ]
        ' "$LOCKSTEP" "$model" >"$work/out" 2>&1 || fail "eval on a full disk: $(cat "$work/out")"
else
    echo "note: no mount namespaces here; /dev/full stands for the full disk"
fi
timeout 60 "$LOCKSTEP" run "$model" -q -p "What is a bit bucket?" --ignore-end 2>"$work/err" | head -c 1 >/dev/null
[ "${PIPESTATUS[0]}" = 1 ] || fail "run into a closed pipe: exit status ${PIPESTATUS[0]}"
[ -s "$work/err" ] && fail "run into a closed pipe should end quietly: $(cat "$work/err")"
# 0, 1 and 2 closed: no rank hears what is printed there.
accept eval "$model" -q --ids 1,2,3 --logits "$work/open.f32"
timeout 60 "$LOCKSTEP" eval "$model" --ids 1,2,3 --greedy 1 --logits "$work/closed.f32" --ranks 2 -t 1 <&- >&- 2>&-
status=$?
[ $status = 1 ] && cmp "$work/open.f32" "$work/closed.f32" || fail "eval without stdin, stdout and stderr: exit status $status"
timeout 60 "$LOCKSTEP" eval "$model" -q --ids 1,2,3 --greedy 1 --ranks 2 -t 1 <&- >&- 2>"$work/err"
[ $? = 1 ] && grep -q "cannot write to standard output: Bad file descriptor" "$work/err" || fail "eval without stdin and stdout: $(cat "$work/err")"
rm -f "$work/open.f32" "$work/closed.f32"
# Started by somebody who ignores SIGCHLD: how a rank has ended is known all the same.
printf '#!/bin/sh\nkill -9 $$\n' >"$work/ends"
chmod +x "$work/ends"
LOCKSTEP_WORKER="$work/ends" timeout 60 bash -c 'trap "" CHLD; exec "$0" "$@"' "$LOCKSTEP" eval "$model" -q --ids 1,2,3 --greedy 1 --ranks 2 -t 1 2>"$work/err"
grep -q "rank 1 (pid [0-9]*) was killed by signal 9" "$work/err" || fail "a rank that ends, SIGCHLD ignored: $(cat "$work/err")"

# ---- alone in a container ------------------------------------------------------------------------------
as_first=(unshare -rfp --kill-child "$LOCKSTEP") # as PID 1
if unshare -rfp --kill-child true 2>/dev/null; then
    # A signal that it has no handler for ends it, too.
    mkfifo "$work/silent"
    exec 8<>"$work/silent"
    "${as_first[@]}" run "$model" -q -n 4 <"$work/silent" >/dev/null 2>&1 &
    container=$!
    for ((i = 0; i < 200; i++)); do
        first=$(cat /proc/$container/task/$container/children 2>/dev/null)
        [ -z "$first" ] || kill -TERM $first 2>/dev/null
        kill -0 $container 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL $container 2>/dev/null
    wait $container
    status=$?
    [ $status = 143 ] || fail "run as PID 1, SIGTERM: exit status $status"
    exec 8<&-
    "${as_first[@]}" eval "$model" -q --ids 1,2,3 --greedy 1 --ranks 2 -t 1 >"$work/out" 2>"$work/err" || fail "eval as PID 1: $(cat "$work/err")"
    "${as_first[@]}" eval "$model" -q --ids no >/dev/null 2>&1
    status=$?
    [ $status = 2 ] || fail "eval of nothing as PID 1: exit status $status"
else
    echo "note: no PID namespaces here: no command was PID 1"
fi

# ---- results ----------------------------------------------------------------------------------------
accept run "$model" -q -p "Define kluge." --temp 0 -n 8
cp "$work/out" "$work/one"
accept run "$model" -q -p "Define kluge." --temp 0 -n 8 --split 2,1
cmp -s "$work/out" "$work/one" || fail "two ranks answer '$(cat "$work/out")', one '$(cat "$work/one")'"
echo -n "Define kluge." | timeout 60 "$LOCKSTEP" run "$model" -q --temp 0 -n 8 >"$work/out" 2>/dev/null
cmp -s "$work/out" "$work/one" || fail "a prompt on stdin gives another answer"
printf 'a\0b' | "$LOCKSTEP" run "$model" -n 2 >/dev/null 2>"$work/err"
[ $? = 2 ] && grep -q 'NUL byte' "$work/err" || fail "half a prompt is taken: $(cat "$work/err")"
printf '/help\n\nDefine kluge.\n/quit\n' | timeout 60 "$LOCKSTEP" chat "$model" -q --temp 0 -n 8 >"$work/out" 2>/dev/null
cmp -s "$work/out" "$work/one" || fail "chat says '$(cat "$work/out")', run '$(cat "$work/one")'"
accept eval "$model" -q --ids 1,2,3 --greedy 4 --logits "$work/rows.f32"
[ "$(wc -c <"$work/rows.f32")" = $((6 * 2048 * 4)) ] || fail "3 ids and 4 greedy ones should give 6 rows"
grep -Eq '^[0-9]+(,[0-9]+){3}$' "$work/out" || fail "eval printed '$(cat "$work/out")' instead of 4 ids"
echo "1 2
3" >"$work/ids"
accept eval "$model" -q --ids "@$work/ids" --greedy 4 --logits "$work/again.f32"
cmp -s "$work/rows.f32" "$work/again.f32" || fail "ids from a file give other rows"

if command -v python3 >/dev/null; then
    has() { # keys...: stdout is one JSON object that has them
        python3 -c 'import json, sys
o = json.load(open(sys.argv[1]))
missing = [k for k in sys.argv[2:] if k not in o]
sys.exit("no " + ", ".join(missing) if missing else 0)' "$work/out" "$@" || fail "the JSON lacks something"
    }
    accept run "$model" -q -p "Define kluge." -n 8 --ranks 2 --json
    has text ids stop prompt_tokens generated_tokens time_to_first_token_s prompt_tokens_per_s \
        gen_tokens_per_s model type ranks threads link held
    accept eval "$model" -q --ids 1,2,3 --greedy 4 --json
    has greedy positions ranks
    odd=$work/$(printf 'a\377b').f32
    accept eval "$model" -q --ids 1,2,3 --json --logits "$odd"
    python3 -c 'import json, sys; assert json.load(sys.stdin)["logits"].endswith(".f32")' <"$work/out" ||
        fail "eval --json does not tell of a file whose name is no UTF-8"
    accept bench "$model" -q -p 16 -n 8 -r 1 --ranks 2 --threads 1 --json
    has prompt_tokens_per_s gen_tokens_per_s read_roof_gbs gen_read_gbs gen_roof_fraction peak_gops \
        prompt_gops prompt_peak_fraction model type ranks threads link
    cp "$model" "$work/"$'no-\xff-text.gguf'
    accept inspect "$work/"$'no-\xff-text.gguf' --json
    has architecture file
    # Ctrl-C while the prompt is made, which this template draws out.
    echo '{% for i in range(100000) %}{% endfor %}{{ messages[-1].content }}' >"$work/slow.jinja"
    python3 "$SOURCE_DIR/tests/support/gguf_with_template.py" "$model" "$work/slow.gguf" "$work/slow.jinja"
    "$LOCKSTEP" run "$work/slow.gguf" -p "Define kluge." --ignore-end --json >"$work/out" 2>"$work/err" &
    pid=$!
    within 60 grep -q 'loaded in' "$work/err" || fail "run of a slow template: $(cat "$work/err")"
    kill -INT $pid
    wait $pid
    [ $? = 130 ] && grep -q '"stop": "cancelled"' "$work/out" || fail "Ctrl-C before the answer: $(cat "$work/out" "$work/err")"
else
    echo "note: python3 is not here: JSON not parsed"
fi

# ---- a measurement whose command is killed ------------------------------------------------------------
"$LOCKSTEP" fabric bench --links shm --rounds 1000 >/dev/null 2>&1 &
pid=$!
for _ in $(seq 1200); do
    read -ra ranks <<<"$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)"
    [ ${#ranks[@]} = 2 ] && break
    sleep 0.05
done
kill -KILL $pid
wait $pid 2>/dev/null
for _ in $(seq 1200); do
    kill -0 "${ranks[0]}" 2>/dev/null || kill -0 "${ranks[1]}" 2>/dev/null || break
    sleep 0.05
done
for rank in "${ranks[@]}"; do
    kill -KILL "$rank" 2>/dev/null && fail "fabric bench was killed, and its ranks live on"
done

# ---- a rank that dies -------------------------------------------------------------------------------
children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }

gone_within() { # milliseconds pids...
    local limit=$1 begin now pid
    shift
    begin=$(date +%s%3N)
    for pid; do
        while kill -0 "$pid" 2>/dev/null && [ "$(ps -o stat= -p "$pid" 2>/dev/null | cut -c1)" != Z ]; do
            now=$(date +%s%3N)
            [ $((now - begin)) -le "$limit" ] || return 1
            sleep 0.02
        done
    done
}

# A conversation that never ends by itself: $pid, and its workers in $workers.
start_long() {
    [ -p "$work/lines" ] || mkfifo "$work/lines"
    yes $'What is a bit bucket?\n/reset' 2>/dev/null >"$work/lines" & # ends with its reader
    "$LOCKSTEP" chat "$model" --ranks 3 --threads 1 "$@" <"$work/lines" >"$work/out" 2>"$work/err" &
    pid=$!
    for _ in $(seq 1200); do
        grep -q 'rank 2' "$work/err" && break
        sleep 0.05
    done
    sleep 0.3
    read -ra workers <<<"$(children $pid)"
    [ ${#workers[@]} = 2 ] || fail "expected two workers, found '${workers[*]}': $(cat "$work/err")"
}

# The group must end within these ms of the signal. Too late and nothing else wrong: once more, five times at most,
# as other programs use this machine too.
on_time() { # milliseconds function arguments...
    local limit=$1 try
    shift
    for try in 1 2 3 4 5; do
        "$@" "$limit" && return
    done
    fail "$*: late five times, after $limit ms"
}

lose() { # signal link milliseconds: rank 2 goes; the others must too, and say so
    start_long --link "$2"
    local victim=${workers[1]:-} late=0
    [ -n "$victim" ] || return 0
    kill "-$1" "$victim"
    gone_within "$3" "$pid" "${workers[0]}" || late=1
    gone_within 30000 "$pid" "${workers[0]}" || { fail "SIG$1 to rank 2 over $2: the others live on"; kill -KILL "$pid"; }
    [ "$1" = STOP ] && kill -KILL "$victim" 2>/dev/null
    wait "$pid"
    local status=$?
    [ $status = 3 ] || fail "SIG$1 to rank 2 over $2: exit status $status, expected 3"
    grep -E "^lockstep chat: .*rank 2" "$work/err" || fail "SIG$1 to rank 2 over $2: $(cat "$work/err")"
    return $late
}

lose_first() { # milliseconds
    start_long
    kill -KILL "$pid"
    local late=0
    gone_within "$1" "${workers[@]}" || late=1
    gone_within 30000 "${workers[@]}" || fail "rank 0 was killed: its workers live on"
    wait "$pid" 2>/dev/null # (bash itself says on stderr that it was killed)
    return $late
}

interrupt() { # milliseconds
    start_long
    kill -INT "$pid"
    local late=0
    gone_within "$1" "$pid" "${workers[@]}" || late=1
    gone_within 30000 "$pid" "${workers[@]}" ||
        { fail "Ctrl-C does not end a chat without a terminal"; kill -KILL "$pid"; }
    wait "$pid"
    local status=$?
    [ $status = 130 ] || fail "Ctrl-C: exit status $status, expected 130"
    return $late
}

# With --failover nobody can tell from the text: rank 1 of three goes (in the middle, as every exchange is made slow), and
# once more when it is back.
go_on() { # signal link command...
    local signal=$1 link=$2 workers fed
    shift 2
    "$LOCKSTEP" "$@" --ranks 3 --threads 1 --link "$link" --silence 300 --emulate-link latency=1ms --failover \
        <"$work/asked" >"$work/out" 2>"$work/err" &
    pid=$!
    for losses in 1 2; do
        for _ in $(seq 1200); do
            fed=$(wc -c <"$work/out")
            read -ra workers <<<"$(children $pid)"
            [ ${#workers[@]} = 2 ] && [ "$fed" -ge $((losses * 60)) ] && break
            sleep 0.02
        done
        kill "-$signal" "${workers[0]}"
        for _ in $(seq 1200); do [ "$(grep -c 'ranks went on' "$work/err")" -ge $losses ] && break; sleep 0.02; done
    done
    wait "$pid" || fail "$1 --failover: exit status $?: $(cat "$work/err")"
    cmp "$work/undisturbed" "$work/out" || fail "SIG$signal over $link: $1 --failover goes on with another text: $(cat "$work/out")"
    [ "$(grep -c '3 ranks went on after' "$work/err")" = 2 ] || fail "$1 --failover: $(cat "$work/err")"
}

if [ -e "/proc/$$/task/$$/children" ]; then
    run_once=(run "$model" -p "What is a bit bucket?" -n 120 --temp 1 --seed 3 --ignore-end)
    : >"$work/asked"
    accept "${run_once[@]}"
    cp "$work/out" "$work/undisturbed"
    go_on KILL shm "${run_once[@]}"
    go_on STOP tcp "${run_once[@]}"
    printf 'What is a bit bucket?\nAnd a byte?\n' >"$work/asked"
    chat_twice=(chat "$model" -n 100 --temp 0)
    "$LOCKSTEP" "${chat_twice[@]}" <"$work/asked" >"$work/undisturbed" 2>/dev/null
    go_on KILL auto "${chat_twice[@]}"
    on_time 1000 lose KILL shm
    on_time 1000 lose KILL tcp
    on_time 6000 lose STOP auto
    on_time 1000 lose_first
    on_time 3000 interrupt
else
    echo "note: no list of children in /proc: losing a rank is not tested here"
fi

[ $failures = 0 ] && echo "the command line: all as it should be"
[ $failures = 0 ]
