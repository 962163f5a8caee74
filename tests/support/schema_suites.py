#!/usr/bin/env python3
"""What `lockstep grammar --jsonl` makes of schemas that others wrote.

    schema_suites.py maskbench LOCKSTEP maskbench.jsonl.gz [-v]
    schema_suites.py table LOCKSTEP JSON-Schema-Test-Suite [-v]

maskbench: people's own schemas with labelled instances, each written in up to four orders of its keys. Ends with 1 if fewer
than 97 % of the schemas are accepted, if an invalid instance is accepted, or if a valid one is refused that is in the
schema's order, has no key beside its properties, and is of the types and formats that the schema speaks of.

table: the official suite's required tests of two drafts, by keyword, as a table in Markdown: docs/schemas.md has it."""
import collections
import gzip
import json
import os
import re
import subprocess
import sys

DRAFTS = ("draft2020-12", "draft7")


def ask(lockstep, lines):
    """The answers of one run, one for each line."""
    sent = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([lockstep, "grammar", "--jsonl"], input=sent.encode(), capture_output=True, timeout=600)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len(answers) == len(lines), (done.returncode, done.stderr, len(answers))
    return answers


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# --- which instances are in the order of a schema, and closed as it is read ---


class Reader:
    """Follows an instance through a schema, roughly: which schemas speak of each object, and which names they have."""

    def __init__(self, root):
        self.root = root

    def follow(self, ref):
        at = self.root
        for part in ref.lstrip("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~").replace("%25", "%")
            at = at[int(part)] if isinstance(at, list) else at.get(part, {})
        return at

    def in_place(self, schema, depth=0):
        """The schema and all that it applies to the same value."""
        if not isinstance(schema, dict) or depth > 12:
            return []
        out = [schema]
        for key in ("allOf", "anyOf", "oneOf"):
            for part in schema.get(key) or []:
                out += self.in_place(part, depth + 1)
        for key in ("if", "then", "else", "not"):
            out += self.in_place(schema.get(key), depth + 1)
        for part in (schema.get("dependencies") or {}).values():
            out += self.in_place(part, depth + 1)
        if isinstance(schema.get("$ref"), str) and schema["$ref"].startswith("#"):
            out += self.in_place(self.follow(schema["$ref"]), depth + 1)
        return out

    def alternatives(self, schemas):
        """Each schema that names properties is one that the object may have been written after."""
        return [list(s["properties"]) for s in schemas if isinstance(s.get("properties"), dict)]

    def of_property(self, every, name):
        """What the schemas say of a property; None where none of them names it, nor a pattern, nor others."""
        said = [s["properties"][name] for s in every if name in (s.get("properties") or {})]
        for s in every:
            said += [v for p, v in (s.get("patternProperties") or {}).items() if re.search(p, name)]
        for s in every:
            if not said and s.get("additionalProperties", False) is not False:
                said.append(s["additionalProperties"])
        closed = any(s.get("properties") is not None or s.get("patternProperties") for s in every)
        return said or (None if closed else [{}])

    def plain(self, schemas, value):
        """The value is of a type that its schemas speak of, and every object in it has only names that its schemas
        know, in the order of each of them, others last."""
        every = [s for schema in schemas for s in self.in_place(schema)]
        if isinstance(value, list):
            return all(self.plain([s["items"] for s in every if isinstance(s.get("items"), dict)] or [{}], v)
                       for v in value)
        if isinstance(value, str) and any(s.get("format") == "uri" for s in every) and not re.match("[a-zA-Z][^/]*:", value):
            return False  # a label that took the format for an annotation
        if not isinstance(value, dict):
            return not any("properties" in s and "type" not in s for s in every)
        named = self.alternatives(every)
        for names in named:
            has = [name for name in value if name in names]
            if has != sorted(has, key=names.index):
                return False
        known = [any(name in names for names in named) for name in value]
        if known != sorted(known, reverse=True) or (len(named) > 1 and not any(set(value) <= set(n) for n in named)):
            return False
        said = {name: self.of_property(every, name) for name in value}
        return all(of is not None and self.plain(of, value[name]) for name, of in said.items())


# --- maskbench ---


def maskbench(lockstep, path, verbose):
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as f:
        cases = [json.loads(line) for line in f]
    answers = ask(lockstep, [{"schema": c["schema"], "texts": [t for i in c["instances"] for t in i["texts"]]}
                             for c in cases])
    n, refused, wrong = collections.Counter(), collections.Counter(), []
    for case, answer in zip(cases, answers):
        n["schemas"] += 1
        if answer["status"] == "refused":
            n["refused"] += 1
            refused[f'{answer["error"]} ({case["name"]})'] += 1
            continue
        took, reader = iter(answer["accepted"]), Reader(case["schema"])
        for instance in case["instances"]:
            accepted = any([next(took) for _ in instance["texts"]])
            n["valid" if instance["valid"] else "invalid"] += 1
            if instance["valid"] and not accepted:
                plain = any(reader.plain([case["schema"]], json.loads(text)) for text in instance["texts"])
                n["valid, not accepted, plain" if plain else "valid, not accepted: order, other keys, implied types, formats"] += 1
                if plain:
                    wrong.append(f'valid, but not accepted: {case["name"]}: {instance["texts"][0][:2000]}')
                elif verbose:
                    print(f'order or other keys: {case["name"]}: {instance["texts"][0][:2000]}')
            elif accepted and not instance["valid"]:
                n["invalid, accepted"] += 1
                wrong.append(f'not valid, but accepted: {case["name"]}: {instance["texts"][0][:2000]}')
    for what, times in n.items():
        print(f"{times:5} {what}")
    for error in refused:
        print("refused:", error)
    for line in wrong:
        print(line)
    return 1 if wrong or n["refused"] > 0.03 * n["schemas"] else 0


# --- the official suite ---


def orders(value):
    """A value written in its own order, and with the keys of its objects sorted."""
    texts = [compact(value)]
    again = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
    return texts + [again] if again != texts[0] else texts


def count_group(group, answer, n):
    if answer["status"] == "refused":
        n["schemas refused"] += 1
        return
    took = iter(answer["accepted"])
    for test in group["tests"]:
        accepted = any([next(took) for _ in orders(test["data"])])
        n["tests"] += 1
        if accepted == test["valid"]:
            n["right"] += 1
        else:
            n["narrower" if test["valid"] else "wider"] += 1


def table(lockstep, folder, verbose):
    rows = collections.OrderedDict()
    for draft in DRAFTS:
        for file in sorted(os.listdir(os.path.join(folder, draft))):
            if not file.endswith(".json"):
                continue
            groups = json.load(open(os.path.join(folder, draft, file)))
            answers = ask(lockstep, [{"schema": g["schema"],
                                      "texts": [t for test in g["tests"] for t in orders(test["data"])]} for g in groups])
            n = rows.setdefault(file[:-5], {}).setdefault(draft, collections.Counter())
            for group, answer in zip(groups, answers):
                before = n["wider"]
                n["schemas"] += 1
                count_group(group, answer, n)
                if verbose and n["wider"] > before:
                    print("WIDER", draft, file, group["description"], json.dumps(group["schema"]))
                if verbose and answer["status"] == "refused":
                    print("REFUSED", draft, file, group["description"], answer["error"])
    print("| keyword | 2020-12: schemas | refused | enforced | narrower | wider "
          "| 7: schemas | refused | enforced | narrower | wider |")
    print("|---" + "|--:" * 10 + "|")
    for keyword, drafts in sorted(rows.items()):
        cells = []
        for draft in DRAFTS:
            n = drafts.get(draft)
            cells += [n["schemas"], n["schemas refused"], n["right"], n["narrower"], n["wider"]] if n else [""] * 5
        print(f"| {keyword} | " + " | ".join(map(str, cells)) + " |")
    return 0


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in ("maskbench", "table"):
        print(__doc__)
        return 2
    return (maskbench if sys.argv[1] == "maskbench" else table)(sys.argv[2], sys.argv[3], "-v" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
