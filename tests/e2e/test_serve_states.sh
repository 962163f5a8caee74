#!/bin/bash
# A model whose layers keep states in place of keys and values (golden's qwen35), and one that makes a key of
# a block of positions when it is complete (deepseek4): the answers to 14 prompts that cross pages, and begin
# alike, are the same one after the other, in the other order on two ranks, all together, and again from the
# prefix cache; a slot that a cancelled request leaves has nothing of it. Of the other kinds of states and caches:
# answers together, from a shared prefix and after the loss of a rank are those that come alone.
set -u
for tool in curl python3 pgrep; do
    command -v $tool >/dev/null || { echo "skip: $tool is not there"; exit 77; }
done
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"
cat >ask.py <<'EOF'
import json, random, sys, threading, urllib.request
url, order, model = sys.argv[1:]
random.seed(5)
lengths = [3, 63, 64, 65, 100, 127, 128, 129, 200, 300, 300, 17]
prompts = [[random.randrange(10, 250) for _ in range(n)] for n in lengths]
prompts += [prompts[3] + [5, 6, 7, 8] * 20, prompts[5] + [9] * 70]
answers = [None] * len(prompts)
cached = [0] * len(prompts)

def ask(i, n=40):
    body = dict(model=model, prompt=prompts[i], max_tokens=n, temperature=0, ignore_eos=True)
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    a = json.load(urllib.request.urlopen(request, timeout=60))
    answers[i] = a["choices"][0]["text"]
    cached[i] = a["usage"]["prompt_tokens_details"]["cached_tokens"]

def hang_up(i):
    body = dict(model=model, prompt=prompts[i], max_tokens=3000, stream=True, ignore_eos=True)
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=60).close()

every = list(range(len(prompts)))
if order == "together":
    threads = [threading.Thread(target=ask, args=(i,)) for i in every]
    for t in threads: t.start()
    for t in threads: t.join()
else:
    for i in every if order == "forward" else reversed(every):
        hang_up(i if order == "forward" else (i + 1) % len(every))
        ask(i)
if order == "again":
    for i in every: ask(i)
    # as far as the last whole page of the prompt, whose state was kept
    assert cached[9] == 256 and cached[2] == 0 and cached[3] == 64, cached
print(json.dumps(answers))
EOF
answers() { # what order: the server's answers as $work/what.json
    timeout 200 python3 ask.py "$url" "$2" "$name" >"$1.json" || fail "$1: no answers"
}
same() { cmp -s "$1.json" forward.json || fail "$1: other answers"; }
check() { # name, memory of the cache in which one context fits
    local name=$1 small=$2 model=$SHARED_DIR/golden/logits/$1.gguf
    [ -e "$model" ] || { echo "note: $model is not there"; return; }
    serve_start "$model" -q
    answers forward forward
    answers together together; same together
    answers again again; same again
    serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
    serve_start "$model" -q --ranks 2
    answers ranks backward; same ranks
    serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
    # Room for one context alone: requests wait, and snapshots go.
    serve_start "$model" -q --ctx 512 --kv-memory "$small"
    answers small together; same small
    serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
    n=$((n + 1))
}
n=0
check qwen35 2M
check deepseek4 6M
[ $n != 0 ] || { echo "skip: no model is there"; exit 77; }

# One model of each other kind of state or cache: four prompts that begin alike, one after the other on one rank, and
# together on three, of which one is killed in the middle of the answers.
cat >lost.py <<'EOF'
import json, os, signal, subprocess, sys, threading, urllib.request
url, name, server = sys.argv[1:]
first = [(i * 37) % 240 + 10 for i in range(150)]
prompts = [first, first[:90] + [7] * 9, first[:64], first + [5, 6, 7] * 30]
texts, seen, killed = [""] * 4, [0] * 4, threading.Event()

def ask(i):
    body = dict(model=name, prompt=prompts[i], max_tokens=150, temperature=0, ignore_eos=True, stream=True)
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    for line in urllib.request.urlopen(request, timeout=60):
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            texts[i] += choice["text"]
        seen[i] += 1
        if server != "-" and seen[i] == 25 and not killed.is_set():
            killed.set()
            workers = subprocess.run(["pgrep", "-P", server, "-f", "worker"], capture_output=True, text=True)
            os.kill(int(workers.stdout.split()[-1]), signal.SIGKILL)

threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
for t in threads:
    t.start()
    if server == "-":
        t.join()
for t in threads:
    t.join()
assert server == "-" or killed.is_set()
print(json.dumps(texts))
EOF
for name in kimi-linear nemotron_h lfm2 glm-dsa minimax-m3 gemma4-ple; do
    model=$SHARED_DIR/golden/logits/$name.gguf
    [ -e "$model" ] || { echo "note: no golden $name"; continue; }
    serve_start "$model" -q -t 1 --ranks 1
    timeout 100 python3 lost.py "$url" $name - >alone.json || fail "$name: no answers"
    serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
    serve_start "$model" -q -t 1 --ranks 3 --failover
    timeout 100 python3 lost.py "$url" $name "$server" >lost.json || fail "$name: no answers without a rank"
    serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
    cmp -s alone.json lost.json || fail "$name: other answers together and without a rank than alone"
done
[ $failures = 0 ] && echo "states: all as it should be"
[ $failures = 0 ]
