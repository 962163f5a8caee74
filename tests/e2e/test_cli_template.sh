#!/bin/bash
# lockstep template: every golden case from the command line, a model's own template and built-in
# ones, and what is refused.
set -u
golden=$SHARED_DIR/golden/chat-templates
[ -r "$golden/conversations.json" ] || { echo "skip: $golden is not there"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"

python3 - "$golden" "$work" "$LOCKSTEP" <<'PY' || fail "golden cases"
import glob, json, subprocess, sys
golden, tmp, lockstep = sys.argv[1:]
conversations = json.load(open(golden + "/conversations.json"))
n = wrong = 0
for path in sorted(glob.glob(golden + "/expected/*.json"))[::4]:
    file = json.load(open(path))
    for case in file["cases"]:
        variables = dict(conversations[case["conversation"]], now="2024-11-20T09:08:07",
                         bos_token=file["bos_token"], eos_token=file["eos_token"])
        with open(tmp + "/case.json", "w") as out:
            json.dump(variables, out)
        p = subprocess.run([lockstep, "template", "--template-file",
                            golden + "/" + file["template"], tmp + "/case.json"],
                           capture_output=True, timeout=20)
        if "expected" in case:
            ok = p.returncode == 0 and p.stdout.decode() == case["expected"]
        elif case["error_kind"] == "raised by the template":
            ok = p.returncode == 2 and case["expected_error"] in p.stderr.decode()
        else:
            ok = p.returncode in (0, 2)
        n += 1
        if not ok:
            wrong += 1
            print(path, case["conversation"], p.returncode, p.stderr.decode())
print(n, "cases,", wrong, "wrong")
sys.exit(wrong > 0 or n < 100)
PY

cat >"$work/case.json" <<'J'
{"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true}
J
# A vocabulary-only file without a template gets one by its special tokens.
gzip -dc "$SHARED_DIR/golden/tokenizers/qwen3.gguf.gz" >"$work/qwen3.gguf"
got=$("$LOCKSTEP" template "$work/qwen3.gguf" "$work/case.json") || fail "qwen3: exit status $?"
case $got in *"<|im_start|>user
Hi<|im_end|>
<|im_start|>assistant"*) ;; *) fail "qwen3: got '$got'" ;; esac
"$LOCKSTEP" template "$work/qwen3.gguf" --source >"$work/source" || fail "--source: exit status $?"
"$LOCKSTEP" template --template-file "$work/source" "$work/case.json" >"$work/again" ||
    fail "the source does not render"
[ "$(cat "$work/again")" = "$got" ] || fail "the source renders differently"

refuses() { # refuses WHAT ARGS...
    local what=$1 out status
    shift
    out=$(timeout 60 "$LOCKSTEP" template "$@" 2>&1)
    status=$?
    [ $status -eq 2 ] || fail "$what: exit status $status ($out)"
    case $out in *"$what"*) ;; *) fail "'$what' is not in '$out'" ;; esac
}
printf 'a\n{%% if %%}' >"$work/bad.jinja"
printf '{"messages": [}' >"$work/bad.json"
printf '{"now": "yesterday"}' >"$work/now.json"
refuses "bad.jinja: template line 2" --template-file "$work/bad.jinja" "$work/case.json"
refuses "bad.json:1" --template-file "$work/source" "$work/bad.json"
refuses "now must be like" --template-file "$work/source" "$work/now.json"
refuses "no-such-file" --template-file "$work/no-such-file" "$work/case.json"
refuses "no-such-case" --template-file "$work/source" "$work/no-such-case"
refuses "expected MODEL CASE" "$work/qwen3.gguf"

[ $failures -eq 0 ] && echo "template: all as expected"
[ $failures = 0 ]
