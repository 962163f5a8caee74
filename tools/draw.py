#!/usr/bin/env python3
"""Draws docs/*.pic as SVG.

    tools/draw.py              writes docs/NAME.svg for every docs/NAME.pic
    tools/draw.py --check      says which SVG is not what its text gives

The same text always gives the same bytes. The colours follow the reader's light or dark theme.

A text is one of two kinds. A map has boxes on a grid of 10 pixels, and arrows between them:

    map WIDTH HEIGHT "title"
    box ID X Y W H CLASS "label" ["smaller line" ...]
    arrow FROM TO ["label"]            both FROM TO: an arrow with two heads

A life has lanes, and time runs down. Each line below takes the next row:

    life WIDTH "title"
    lane ID "label" ["smaller line"]
    send FROM TO "text"                an arrow; "both" has two heads, "quiet" is dashed
    event LANE CLASS "text" ["text"]   a box on the lane (class dead ends the lane, born begins it)
"""

import glob
import os
import shlex
import sys

UNIT = 10
COLOURS = {  # class: (fill, stroke, text) in the light theme, then in the dark one
    "page": ("#ffffff", "#ffffff", "#1f2328", "#0d1117", "#0d1117", "#e6edf3"),
    "machine": ("#f6f8fa", "#8c959f", "#57606a", "#161b22", "#6e7681", "#9da7b3"),
    "client": ("#ddf4ff", "#0969da", "#0a3069", "#0c2d4d", "#4493f8", "#cae8ff"),
    "node": ("#fff8c5", "#9a6700", "#4d2d00", "#332701", "#d29922", "#f8e3a1"),
    "server": ("#dafbe1", "#1a7f37", "#033a16", "#0f2e1a", "#3fb950", "#aceebb"),
    "rank": ("#fbefff", "#8250df", "#3e1f79", "#271052", "#a371f7", "#eddeff"),
    "born": ("#dafbe1", "#1a7f37", "#033a16", "#0f2e1a", "#3fb950", "#aceebb"),
    "dead": ("#ffebe9", "#cf222e", "#82071e", "#490b12", "#f85149", "#ffc1ba"),
    "line": ("none", "#57606a", "#57606a", "none", "#9da7b3", "#9da7b3"),
}


def styles():
    light, dark = [], []
    for name, c in COLOURS.items():
        for rules, (fill, stroke, text) in ((light, c[:3]), (dark, c[3:])):
            rules.append(f".{name}{{fill:{fill};stroke:{stroke}}}")
            rules.append(f"text.{name}{{fill:{text};stroke:none}}")
            if name == "line":
                rules.append(f".head{{fill:{stroke};stroke:none}}")
    base = "text{font-family:system-ui,Helvetica,Arial,sans-serif;font-size:13px;text-anchor:middle}"
    base += ".small{font-size:11px}.title{font-size:14px;font-weight:600}.start{text-anchor:start}"
    base += ".halo{stroke-width:4px;paint-order:stroke}.quiet{stroke-dasharray:5 4}"
    halo = [c for c in ("#ffffff", "#0d1117")]
    light.append(f"text.halo{{stroke:{halo[0]}}}")
    dark.append(f"text.halo{{stroke:{halo[1]}}}")
    return f"{base}\n{''.join(light)}\n@media (prefers-color-scheme: dark){{{''.join(dark)}}}"


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


class Drawing:
    def __init__(self, title):
        self.title, self.parts = title, []

    def text(self, x, y, text, classes):
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{classes}">{escape(text)}</text>')

    def box(self, x, y, w, h, kind, lines, top=False):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" class="{kind}"/>')
        first = y + 18 if top else y + h / 2 + 5 - 8 * (len(lines) - 1)
        for i, line in enumerate(lines):
            classes = kind + (" title" if i == 0 else " small") + (" start" if top else "")
            self.text(x + 12 if top else x + w / 2, first + 16 * i, line, classes)

    def head(self, x, y, dx, dy):
        a, b = -8 * dx, -8 * dy
        points = f"{x:g},{y:g} {x + a - b / 2:g},{y + b + a / 2:g} {x + a + b / 2:g},{y + b - a / 2:g}"
        self.parts.append(f'<polygon points="{points}" class="head"/>')

    def arrow(self, x1, y1, x2, y2, kind, heads):
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        dx, dy = round((x2 - x1) / length, 3), round((y2 - y1) / length, 3)
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{kind}" stroke-width="1.5"/>')
        self.head(x2, y2, dx, dy)
        if heads == 2:
            self.head(x1, y1, -dx, -dy)

    def svg(self, width, height, name):
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
                f"<!-- made by tools/draw.py from docs/{name}.pic -->",
                f"<title>{escape(self.title)}</title>",
                f"<style>\n{styles()}\n</style>",
                f'<rect width="{width}" height="{height}" rx="8" class="page"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


def ends(a, b):
    """Where an arrow leaves box a and reaches box b: straight where they lie side by side or one over the other."""
    ax, ay, aw, ah = a
    bx, by, bw, bh = b
    left, right = max(ax, bx), min(ax + aw, bx + bw)
    top, bottom = max(ay, by), min(ay + ah, by + bh)
    if left < right:
        x = (left + right) / 2
        return (x, ay + ah, x, by) if ay < by else (x, ay, x, by + bh)
    if top < bottom:
        y = (top + bottom) / 2
        return (ax + aw, y, bx, y) if ax < bx else (ax, y, bx + bw, y)
    return (ax + aw / 2, ay + ah, bx + bw / 2, by) if ay < by else (ax + aw / 2, ay, bx + bw / 2, by + bh)


def draw_map(lines, name):
    _, width, height, title = lines[0]
    d, boxes = Drawing(title), {}
    for words in lines[1:]:
        if words[0] == "box":
            x, y, w, h = (int(v) * UNIT for v in words[2:6])
            boxes[words[1]] = (x, y, w, h)
            d.box(x, y, w, h, words[6], words[7:], top=words[6] == "machine")
        elif words[0] in ("arrow", "both"):
            x1, y1, x2, y2 = ends(boxes[words[1]], boxes[words[2]])
            d.arrow(x1, y1, x2, y2, "line", 2 if words[0] == "both" else 1)
            for i, label in enumerate(words[3:]):
                if x1 == x2:
                    d.text(x1 + 8, (y1 + y2) / 2 + 4 + 14 * i, label, "line small start")
                else:
                    d.text((x1 + x2) / 2, (y1 + y2) / 2 - 6 + 20 * i, label, "line small halo")
        else:
            raise ValueError(f"{name}.pic: {words[0]} is not a word of a map")
    return d.svg(int(width) * UNIT, int(height) * UNIT, name)


def draw_life(lines, name):
    width, title = int(lines[0][1]) * UNIT, lines[0][2]
    lanes = [words for words in lines[1:] if words[0] == "lane"]
    steps = [words for words in lines[1:] if words[0] != "lane"]
    d, at, y = Drawing(title), {}, 80
    spacing = width / len(lanes)
    for i, words in enumerate(lanes):
        at[words[1]] = spacing * (i + 0.5)
    marks, ended = [], {}
    for words in steps:
        if words[0] == "event":
            _, lane, kind, *texts = words
            height = 16 + 16 * len(texts)
            wide = min(spacing - 14, 16 + 7.2 * max(len(t) for t in texts))
            marks.append(("box", at[lane] - wide / 2, y, wide, height, kind, texts))
            if kind == "dead":
                ended[lane] = y
            if kind == "born" and lane in ended:
                marks.append(("lane", at[lane], y, None))
            y += height + 16
        elif words[0] in ("send", "both", "quiet"):
            marks.append((words[0], at[words[1]], at[words[2]], y + 14, words[3]))
            y += 32
        else:
            raise ValueError(f"{name}.pic: {words[0]} is not a word of a life")
    for words in lanes:
        x = at[words[1]]
        end = ended.get(words[1], y)
        d.parts.append(f'<line x1="{x:g}" y1="60" x2="{x:g}" y2="{end:g}" class="line" stroke-opacity="0.5"/>')
        d.box(x - (spacing - 20) / 2, 12, spacing - 20, 48, words[2], words[3:])
    for mark in marks:
        if mark[0] == "lane":
            d.parts.append(f'<line x1="{mark[1]:g}" y1="{mark[2]:g}" x2="{mark[1]:g}" y2="{y:g}" class="line" stroke-opacity="0.5"/>')
    for mark in marks:
        if mark[0] == "box":
            _, x, top, w, h, kind, texts = mark
            d.parts.append(f'<rect x="{x:g}" y="{top:g}" width="{w:g}" height="{h:g}" rx="6" class="{kind}"/>')
            for i, text in enumerate(texts):
                d.text(x + w / 2, top + 20 + 16 * i, text, kind + " small")
        elif mark[0] != "lane":
            kind, x1, x2, line, text = mark
            d.arrow(x1, line, x2, line, "line quiet" if kind == "quiet" else "line", 2 if kind == "both" else 1)
            d.text((x1 + x2) / 2, line - 7, text, "line small halo")
    return d.svg(width, y + 4, name)


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs"))
    stale = []
    for source in sorted(glob.glob("*.pic")):
        name = source[: -len(".pic")]
        with open(source, encoding="utf-8") as f:
            lines = [shlex.split(line, comments=True) for line in f]
        lines = [words for words in lines if words]
        picture = {"map": draw_map, "life": draw_life}[lines[0][0]](lines, name)
        there = open(name + ".svg", encoding="utf-8").read() if os.path.exists(name + ".svg") else None
        if picture == there:
            continue
        if check:
            stale.append(name)
        else:
            with open(name + ".svg", "w", encoding="utf-8") as f:
                f.write(picture)
            print(f"docs/{name}.svg")
    for name in stale:
        print(f"docs/{name}.svg is not what docs/{name}.pic gives: run tools/draw.py")
    sys.exit(1 if stale else 0)


if __name__ == "__main__":
    main()
