#!/usr/bin/env python3
"""How hard Markdown is to read: words and commas per sentence.

    tools/prose.py README.md docs/*.md           a table, a row per file
    tools/prose.py --long 30 docs/serve.md       and every sentence of more than 30 words

Code, tables, headings and comments are left out. A list item or a paragraph ends its last sentence;
a short lead such as "**Limits.**" belongs to the sentence after it."""

import argparse
import re

SENTENCE_END = re.compile(r'(?<=[.!?])(?<!\.\.\.)["\')*]*\s+')
NOT_AN_END = re.compile(r"\b(e\.g|i\.e|vs|etc|cf|approx|No|Fig)\.$")


def paragraphs(text):
    """Running text only: one string for a paragraph or a list item."""
    lines, fenced, block = [], False, []
    after_blank = True
    for line in text.splitlines() + [""]:
        if line.lstrip().startswith("```"):
            fenced = not fenced
            line = ""
        code = line.startswith("    ") and (after_blank or not block)
        skip = fenced or code or re.match(r"\s*(\||#|<!--)", line)
        if skip or not line.strip():
            if block:
                lines.append(" ".join(block))
            block, after_blank = [], True
            continue
        if re.match(r"\s*([-*]|\d+\.)\s", line) and block:
            lines.append(" ".join(block))
            block = []
        block.append(re.sub(r"^\s*([-*]|\d+\.)\s+", "", line.strip()))
        after_blank = False
    return lines


def plain(text):
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)  # a link is its text
    text = re.sub(r"`[^`]*`", "CODE", text)  # a name of code is one word
    return text


def sentences(text):
    found = []
    for block in paragraphs(text):
        start, lead = 0, ""
        block = plain(block)
        parts = []
        for end in SENTENCE_END.finditer(block):
            part = block[start : end.start()]
            if NOT_AN_END.search(part):
                continue
            parts.append(part)
            start = end.end()
        parts.append(block[start:])
        for part in parts:
            part = (lead + " " + part).strip()
            lead = ""
            if re.fullmatch(r"\*\*[^*]+", part) and len(part.split()) <= 6:
                lead = part
            elif part.split():
                found.append(part)
        if lead:
            found.append(lead)
    return found


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(p * len(values)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--long", type=int, metavar="N", help="print sentences of more than N words")
    options = parser.parse_args()
    print(f"{'file':<28}{'sentences':>10}{'words: median':>15}{'90 %':>6}{'longest':>9}{'commas: mean':>14}{'longest line':>14}")
    for name in options.files:
        text = open(name, encoding="utf-8").read()
        all_of_it = sentences(text)
        if not all_of_it:
            continue
        words = [len(s.split()) for s in all_of_it]
        commas = sum(s.count(",") for s in all_of_it) / len(all_of_it)
        line = max(len(x) for x in text.splitlines() if not x.startswith("|"))
        print(f"{name:<28}{len(words):>10}{percentile(words, .5):>15}{percentile(words, .9):>6}{max(words):>9}{commas:>14.1f}{line:>14}")
        if options.long:
            for s in all_of_it:
                if len(s.split()) > options.long:
                    print(f"    {len(s.split())}: {s}")


if __name__ == "__main__":
    main()
