"""Runs the commands of README.md and docs/ as they are written there, or checks them against --help.

    docs_commands.py SOURCE_DIR BUILD_DIR

For test_docs.sh, which calls it in an empty folder, in a network and host name (desk) of its own. Every model that a
page names is the bundled one. A command is a line of a code block: after "$ " where the block has such lines, else each
line that begins with a program below. What stands in EXCEPTIONS is not run; its options must still exist. Each
`lockstep ...` in running text, and each --option, must exist too."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request

SOURCE, BUILD = sys.argv[1:3]
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md"]
PAGES += sorted(f"docs/{f}" for f in os.listdir(f"{SOURCE}/docs") if f.endswith(".md"))
PAGES += sorted(f"docs/models/{f}" for f in os.listdir(f"{SOURCE}/docs/models") if f.endswith(".md"))
PROGRAMS = "lockstep build/lockstep build/bench/bench_batch build/bench/bench_http build/bench/bench_masks make curl torchrun srun mpirun"
PROGRAMS += " build/examples/generate build/examples/stream build/examples/logits"

# Not run, and why. The first expression that matches counts.
EXCEPTIONS = [
    (r"^make( (test|check))?$", "takes minutes, and is what runs this test"),
    (r"^make demo$", "test_demo runs it"),
    (r"^make install PREFIX=", "writes to the system; test_install and test_library install elsewhere"),
    (r"^make docs$", "needs Doxygen; test_doxygen runs it"),
    (r"^make && build/lockstep help$", "make is what built the program"),
    (r"\[--", "a usage line: its brackets are for the reader"),
    (r"^(torchrun|srun|mpirun) ", "needs a launcher; test_launch stands in for one"),
    (r"--hosts [ab@]|--join a:", "needs machines called a, b and c; test_launch has them"),
    (r"--device rack=", "needs nodes called rack and shelf; test_device_nodes has others"),
    (r"/v1/cluster/move", "needs a node called shelf; test_overview moves a model"),
    (r"--compare-links", "measures a model of 0.6B for minutes"),
    (r"synth --shape qwen3-0.6b", "writes 340 MB"),
    (r"^build/bench/bench_batch ", "16 streams of so small a model may be over before they meet"),
    (r"^build/bench/bench_masks ", "needs a model with Qwen's vocabulary"),
    (r"^lockstep fetch ", "needs another machine that has the model; test_models has one"),
    (r"lockstep pull |^lockstep (chat|verify|rm) hf:", "needs the hub; test_pull has an imitation of it"),
    (r"lockstep top$", "needs a whole terminal; test_top has one"),
    (r"^lockstep chat --server desk", "needs a machine called desk; test_view has some"),
    (r"^lockstep key --set$", "asks on a terminal; test_nodes types it"),
    (r"^lockstep move ", "needs a model on several machines; test_layout has one"),
    (r"^lockstep down model$", "is run at the end, to end what was put up"),
]
# Run as written, with these words behind, since only their length is not for a test.
SHORTER = [(r"lockstep bench ", "-r 1 -p 16 -n 8"), (r"lockstep fabric bench", "--rounds 1")]
# Programs of others, whose options stand in our pages.
FOREIGN = set(
    "--test-dir --output-on-failure --init --cpus --core --no-python --nproc-per-node --nnodes --stdio --inplace --version --help --each --rounds --streams"
    " --faults --libllama --seed --predict --prompt --gap --network --now --oneline --oss --local-provider --model --static --libs --cflags --windows".split()
)

UNLISTED = {"help", "worker", "remote"}  # commands without a --help of their own
failures, counts = [], {"run": 0, "checked": 0}


def fail(text):
    failures.append(text)
    print("FAILED:", text, flush=True)


def code_blocks(text):
    """Lists of lines: fenced blocks of the shell, and indented ones."""
    block, fence, previous_blank, in_indented = [], None, True, False
    for line in text.splitlines() + [""]:
        if line.lstrip().startswith("```"):
            if fence is None:
                fence, block = line.strip()[3:], []
            else:
                if fence in ("", "sh"):
                    yield block
                fence, block = None, []
            continue
        if fence is not None:
            block.append(line)
        elif line.startswith("    ") and (previous_blank or in_indented):
            in_indented = True
            block.append(line.strip())
        elif in_indented and line.strip():
            yield block
            block, in_indented = [], False
        previous_blank = not line.strip()
    if in_indented:
        yield block


def without_comment(line):
    return re.sub(r"\s+#.*$", "", line).strip()


def commands(text):
    for block in code_blocks(text):
        prompted = [line[2:] for line in block if line.startswith("$ ")]
        for line in prompted or block:
            words = line.split()
            if words and words[0] in PROGRAMS.split():
                # A program's own sentences begin with its name, too: a command's second word is a subcommand or option.
                if words[0].endswith("lockstep") and (len(words) < 2 or words[1] not in SUBCOMMANDS):
                    continue
                yield without_comment(line)


helps = {}


def help_of(words):
    """The --help of a lockstep command line, of `fabric bench` where it has a part."""
    key = (words[0], words[1]) if words[0] == "fabric" and len(words) > 1 and words[1][0] != "-" else (words[0],)
    if key not in helps:
        made = subprocess.run(["lockstep", *key, "--help", "all"], capture_output=True, text=True, timeout=60)
        helps[key] = made.stdout if made.returncode == 0 else None
    return helps[key]


def check_options(page, command, words):
    counts["checked"] += 1
    text = help_of(words)
    if text is None:
        fail(f"{page}: '{command}': lockstep has no command {words[0]}")
        return
    for word in words[1:]:
        word = word.strip("[]`,;.:").split("=")[0]
        if re.fullmatch(r"--?[a-z][a-z0-9-]*", word) and not re.search(rf"(^|[\s,\[]){re.escape(word)}\b", text):
            fail(f"{page}: '{command}': lockstep {words[0]} has no option {word}")


def lockstep_words(command):
    """The words after the program's name, without what a launcher has before it."""
    words = re.split(r"\s+", re.sub(r'"[^"]*"', "TEXT", command))
    for i, word in enumerate(words):
        if word in ("lockstep", "build/lockstep"):
            return words[i + 1 :]
    return None


def wait_for(what, seconds, condition):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    fail(f"{what}: not within {seconds} s")
    return False


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def start(page, command, ready):
    out = open("daemon.out", "w")
    child = subprocess.Popen(["bash", "-c", f"exec {command}"], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    wait_for(f"{page}: '{command}' says '{ready}'", 120, lambda: ready in read("daemon.out") or child.poll() is not None)
    if child.poll() is not None:
        fail(f"{page}: '{command}' ended with {child.returncode}: {read('daemon.out')[-500:]}")
    return child


def stop(page, command, child):
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(60)
        except subprocess.TimeoutExpired:
            child.kill()
            fail(f"{page}: '{command}' did not end at SIGTERM")


def run_server(page, command):
    child = start(page, command, "listens on")
    if child.poll() is None:
        address = re.search(r"listens on (http://\S+?)[,;]?\s", read("daemon.out") + " ").group(1)
        with urllib.request.urlopen(address + "/health", timeout=30) as answer:
            if json.load(answer).get("status") != "ok":
                fail(f"{page}: '{command}': /health is not ok")
    stop(page, command, child)


def run(page, command):
    counts["run"] += 1
    started = time.monotonic()
    command += "".join(" " + words for pattern, words in SHORTER if re.search(pattern, command))
    if re.search(r"lockstep serve ", command):
        run_server(page, command)
    else:
        made = subprocess.run(
            ["bash", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
        )
        if made.returncode != 0:
            fail(f"{page}: '{command}' ended with {made.returncode}: {(made.stderr or made.stdout)[-500:]}")
    print(f"{time.monotonic() - started:5.1f} s  {page}: {command}", flush=True)


def models_of(command):
    """Words that stand for a model: they become the bundled one."""
    words = lockstep_words(command) or shlex.split(command)[1:]
    if not words or words[0] in ("synth", "node", "nodes", "key", "models", "down", "fabric", "pull", "rm", "verify"):
        return []
    found = words[1:2] if lockstep_words(command) else words[:1]
    return [w for w in found if not w.startswith(("-", "hf:")) and "://" not in w]


def prepare(lines):
    bundled = f"{SOURCE}/models/jargon-3m-f16.gguf"
    os.symlink(BUILD, "build")
    os.symlink(f"{SOURCE}/models", "models")
    stored = os.path.join(os.environ["XDG_DATA_HOME"], "lockstep/models")
    os.makedirs(stored)
    made = {without_comment(c).split()[-1] for _, c in lines if " --header-only " in c}  # by the pages themselves
    for _, command in lines:
        for model in models_of(command):
            if model in made or os.path.exists(model):
                continue
            os.symlink(bundled, model)
            name = os.path.join(stored, model.removesuffix(".gguf") + ".gguf")
            if model == model.lower() and not os.path.exists(name) and model.startswith("qwen3-"):
                os.link(bundled, name) if os.stat(bundled).st_dev == os.stat(stored).st_dev else os.symlink(bundled, name)
    for name in ("keys", "KEYS"):
        with open(name, "w", encoding="utf-8") as f:
            f.write("a-key-of-this-test\n")
    with open(os.path.join(os.environ["HOME"], ".curlrc"), "w", encoding="utf-8") as f:
        f.write('connect-to = "rack:8080:127.0.0.1:8080"\nconnect-to = "rack:7342:127.0.0.1:7342"\nfail\nmax-time = 90\n')
    os.environ["KEY"] = "a-key-of-this-test"


def check_running_text(page, text, options):
    text = re.sub(r"(?ms)^```.*?^```$", "", text)
    for span in re.findall(r"`([^`]+)`", text):
        span = " ".join(span.split())
        words = span.split()
        if words[0] == "lockstep" and len(words) > 1 and words[1] in SUBCOMMANDS - UNLISTED:
            check_options(page, span, words[1:])
        for word in re.findall(r"(?:^|\s)(--[a-z][a-z0-9-]*)", span):
            if word not in options and word not in FOREIGN:
                fail(f"{page}: no command has the option {word}")


def main():
    global SUBCOMMANDS
    general = subprocess.run(["lockstep", "help", "all"], capture_output=True, text=True, timeout=60).stdout
    SUBCOMMANDS = set(re.findall(r"(?m)^  ([a-z]+)  ", general)) | UNLISTED
    lines = []
    for page in PAGES:
        for command in commands(read(f"{SOURCE}/{page}")):
            plain = command.replace("build/lockstep", "lockstep", 1)
            if plain not in [c.replace("build/lockstep", "lockstep", 1) for _, c in lines]:
                lines.append((page, command))
    if len(lines) < 30:
        fail(f"only {len(lines)} commands were found: is this program looking in the right places?")
    prepare(lines)

    # A node, for the commands that ask one. Deployments hold the port 8080, so they come last.
    node = start("docs/nodes.md", "lockstep node", "listens on port")
    late = r"^(build/)?lockstep (up|down|nodes) |^(build/)?lockstep nodes$|^curl "
    for page, command in sorted(lines, key=lambda line: re.search(late, line[1]) is not None):
        reason = next((why for pattern, why in EXCEPTIONS if re.search(pattern, command)), None)
        words = lockstep_words(command)
        if command.endswith("lockstep node"):
            continue
        if reason is None:
            run(page, command)
        elif words and not command.startswith("make"):
            check_options(page, command, words)
        elif command.startswith("make"):
            target = command.split()[1:2] if "&&" not in command else []
            if subprocess.run(["make", "-n", "-C", SOURCE, *target], capture_output=True, timeout=60).returncode != 0:
                fail(f"{page}: '{command}': make has no such target")
            counts["checked"] += 1
    run("docs/nodes.md", "lockstep down model")
    stop("docs/nodes.md", "lockstep node", node)

    options = set()
    for name in sorted(SUBCOMMANDS - UNLISTED):
        options |= set(re.findall(r"--[a-z][a-z0-9-]*", help_of([name])))
    for part in ("bench", "doctor"):
        options |= set(re.findall(r"--[a-z][a-z0-9-]*", help_of(["fabric", part])))
    for page in PAGES:
        check_running_text(page, read(f"{SOURCE}/{page}"), options)
    print(f"{counts['run']} commands were run as written, {counts['checked']} checked against --help, {len(failures)} failed")
    sys.exit(1 if failures else 0)


main()
