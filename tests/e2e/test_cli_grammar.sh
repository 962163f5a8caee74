#!/bin/bash
# lockstep grammar: texts that are accepted and not, the byte at which they are not, grammars that cannot be used, and
# --jsonl: one line of answer for each line, whatever it holds.
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"

printf 'root ::= "a" [b-d]+ "\\n"?\n' >list.gbnf
printf '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}' >n.json
printf 'root ::= "a' >bad.gbnf
printf '{"type": "strin"}' >bad.json
printf '{"type":' >half.json
printf '{"type": "null"}' >null # neither name: a brace begins a schema
printf 'root ::= "null"' >word

# says STATUS WORDS ARGS...: `lockstep grammar ARGS...` ends with the status and says the words.
says() {
    local status=$1 words=$2 got out
    shift 2
    out=$(timeout 60 "$LOCKSTEP" grammar "$@" 2>&1)
    got=$?
    [ $got -eq "$status" ] || fail "$*: exit status $got, not $status ($out)"
    case $out in *"$words"*) ;; *) fail "$*: '$words' is not in '$out'" ;; esac
}
says 0 accepted list.gbnf --text abcd
says 0 accepted list.gbnf --text 'ab
'
says 1 "not accepted: byte 2, 'x'" list.gbnf --text abx
says 1 "not accepted: byte 0, 0xc3" list.gbnf --text 'é'
says 1 "ends too early, at byte 1" list.gbnf --text a
says 1 "ends too early, at byte 0" list.gbnf --text ''
says 0 accepted n.json --text '{"n": 12}'
says 1 "not accepted: byte 6, '\"'" n.json --text '{"n": "x"}'
says 0 accepted null --text null
says 0 accepted word --text null
says 2 "bad.gbnf: grammar, line 1: a literal or class does not end" bad.gbnf --text a
says 2 'bad.json: schema: there is no type "strin"' bad.json --text a
says 2 "half.json: line 1: " half.json --text a
says 2 "no-such-file" no-such-file --text a
says 2 "expected FILE" --text a
says 2 "expected FILE" --jsonl n.json
# Standard input: a line end of the file's own is not the text's.
says 0 accepted list.gbnf < <(printf 'abc')
says 0 accepted list.gbnf < <(printf 'abc\n')
says 0 accepted list.gbnf < <(printf 'abc\n\n')
says 1 "byte 4, 0x0a" list.gbnf < <(printf 'abc\n\n\n')
says 0 accepted n.json < <(printf '{"n":1}\n')
says 1 "ends too early, at byte 7" n.json < <(printf '{"n":1\n')

cat >lines <<'J'
{"schema": {"type": "integer"}, "texts": ["1", "x", "", "1\u0000"]}
{"grammar": "root ::= \"a\"", "texts": ["a", "b"]}
{"schema": {"type": "strin"}, "texts": ["1"]}

not JSON
[1]
{"schema": {}, "grammar": "root ::= \"a\""}
{"schema": {}, "texts": [1]}
{"schema": true, "texts": "x"}
{"grammar": 5}
{"schema": {"maximum": 123456789012345678901234567890}, "texts": ["1"]}
J
python3 -c 'print("{\"schema\":" + "{\"items\":" * 100000 + "}" * 100001)' >>lines
printf '{"schema": true, "texts": ["\xff"]}\n' >>lines
printf '{"schema": {"const": "\\ud83d\\ude00"}, "texts": ["\\"\\ud83d\\ude00\\""]}' >>lines # no line end
timeout 60 "$LOCKSTEP" grammar --jsonl <lines >answers || fail "--jsonl: exit status $?"
python3 - <<'P' || fail "--jsonl"
import json
got = [json.loads(line) for line in open("answers")]
want = [[True, False, False, False], [True, False], None, None, None, None, None, None, None, None, [True], None, None,
        [True]]
assert len(got) == len(want), got
for i, (a, w) in enumerate(zip(got, want)):
    assert list(a) == ["status", "error", "accepted"], a
    if w is None:
        assert a["status"] == "refused" and a["error"] and a["accepted"] == [], (i, a)
    else:
        assert a == {"status": "ok", "error": None, "accepted": w}, (i, a)
P

[ $failures -eq 0 ] && echo "grammar: all as expected"
[ $failures = 0 ]
