// maths.js: where in a text there is a formula in TeX: $..$, $$..$$, \(..\), \[..\]. Dollars are money as well, and
// programs are full of them, so what is between two of them is looked at closely. Pure functions.

const MOST = 2000; // characters of a formula in a line; of one that stands for itself ten times as many
const MONEY = /^\d[\d.,]*[\s,;:()\u2013-]+[a-z]{2,}/i; // 5 and, 1,000 (about
const PAIRS = [
  { open: "$$", close: "$$", display: true },
  { open: "\\[", close: "\\]", display: true },
  { open: "\\(", close: "\\)", display: false },
];

/* Where `close` is, at `from` or later, that no backslash takes away; -1. */
function closing(src, close, from, most) {
  const text = src.slice(0, from + most);
  for (let at = text.indexOf(close, from); at !== -1; at = text.indexOf(close, at + 1)) {
    let slashes = 0;
    while (text[at - 1 - slashes] === "\\" && at - slashes > from) slashes++;
    if (slashes % 2 === 0) return at;
  }
  return -1;
}

function between(src, { open, close, display }, most) {
  const end = closing(src, close, open.length, most);
  const tex = src.slice(open.length, end).trim();
  return end === -1 || tex === "" ? null : { raw: src.slice(0, end + close.length), tex, display };
}

/* $x$ as pandoc has it: no space inside at either end, no letter or digit after it. */
function betweenDollars(src) {
  if (!/^\$[^\s$`]/.test(src)) return null;
  const end = closing(src, "$", 1, MOST);
  const tex = src.slice(1, end);
  if (end === -1 || /\s$|`|\n\s*\n/.test(tex) || MONEY.test(tex) || /[\w$]/.test(src[end + 1] ?? "")) return null;
  return { raw: src.slice(0, end + 1), tex, display: false };
}

/* The formula with which the text begins, {raw, tex, display}, or null. */
export function mathAt(src, most = MOST) {
  const pair = PAIRS.find(({ open }) => src.startsWith(open));
  return pair ? between(src, pair, most) : betweenDollars(src);
}

/* The same of a formula that has its lines to itself. */
export function mathBlockAt(src) {
  const [indent] = /^ {0,3}(?=\$\$|\\\[)/.exec(src) ?? [];
  if (indent === undefined) return null;
  const found = mathAt(src.slice(indent.length), 10 * MOST);
  const end = found && /^[ \t]*[.,;]?[ \t]*(?:\n+|$)/.exec(src.slice(indent.length + found.raw.length));
  if (!end) return null;
  return { ...found, raw: src.slice(0, indent.length + found.raw.length + end[0].length), after: end[0].trim() };
}

/* Where a formula may begin that is not at the very beginning: a dollar not right behind a letter, a digit or another. */
export function mayBegin(text) {
  const dollar = /(?<![\w$\\])\$/g;
  dollar.lastIndex = 1;
  return dollar.exec(text)?.index ?? -1;
}

/* The text, as long as before, with letters for formulas: what is in them emphasizes nothing. */
export function withoutMaths(text) {
  const begins = /(?<![\w$\\])\$|\\[([]/g;
  let out = "";
  let end = 0;
  for (let next; (next = begins.exec(text)) !== null; ) {
    const found = mathAt(text.slice(next.index));
    if (found === null) continue;
    out += text.slice(end, next.index) + "a".repeat(found.raw.length);
    begins.lastIndex = end = next.index + found.raw.length;
  }
  return out + text.slice(end);
}
