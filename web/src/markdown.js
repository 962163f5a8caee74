// markdown.js: from an answer's text to elements that are safe to show. An answer is hostile: whatever it contains,
// only the tags and attributes below get into the page, and nothing is loaded from anywhere. What looks like another
// tag (<iostream>, List<String>, <input>) is text: nothing that the model said is left out.
import DOMPurify from "dompurify";
import { Marked } from "marked";
import { mathAt, mathBlockAt, mayBegin, withoutMaths } from "./maths.js";

const FORMULA = "tex"; // the language of a span that is one
const NO_ADDRESS = ["align", "colspan", "rowspan", "start", "lang"]; // attributes that are not checked as one

const TAGS = (
  "a b blockquote br code del dd details dl dt em h1 h2 h3 h4 h5 h6 hr i kbd li mark ol p pre s span strong sub summary sup " +
  "table tbody td th thead tr u ul"
).split(" ");
const SAFE = {
  ALLOWED_TAGS: TAGS,
  ALLOWED_ATTR: ["href", "title", ...NO_ADDRESS],
  ADD_URI_SAFE_ATTR: NO_ADDRESS,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  RETURN_DOM_FRAGMENT: true,
};

const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const escape = (text) => text.replace(/[&<>"']/g, (c) => escapes[c]);

/* Models that lost their way say the same few characters until they are stopped. A line that begins with very many
 * markers of quotes and lists is text: marked calls itself for each, and the stack ends. */
const VERY_DEEP = /^(?:[ \t]*(?:>|(?:[-*+]|\d{1,9}[.)])(?=[ \t]))){30}/;
const deepIsText = (src) => (VERY_DEEP.test(src) ? undefined : false);
/* marked looks for an image at every "!", to the end of the text. */
const EXCLAMATIONS = /^(?:!(?!\[)){2,}/;

/* Where a tag begins that is meant as one. Those of HTML are written small; Box<A>, Set<S> are of programs. */
const TAG = `</?(?:${TAGS.join("|")})(?=[\\s/>])`;
const BEGINS_TAG = new RegExp(`^ {0,3}${TAG}`);
const NO_TAG = new RegExp(`(?!${TAG})<`, "g");

const NEAR = 5000; // characters in which a formula's beginning is looked for

/* In a tokenizer false means "as always", undefined "not that". */
const tokenizer = {
  blockquote: deepIsText,
  list: deepIsText,
  html: (src) => (BEGINS_TAG.test(src) ? false : undefined),
  tag(src) {
    if (BEGINS_TAG.test(src)) return false;
    const [raw] = this.rules.inline.tag.exec(src) ?? [];
    return raw === undefined ? undefined : { type: "text", raw, text: escape(raw), escaped: true };
  },
  inlineText(src) {
    let [raw] = EXCLAMATIONS.exec(src) ?? [];
    if (raw === undefined) {
      const near = src.slice(0, NEAR);
      const end = mayBegin(near);
      if (end === -1) return false;
      [raw] = this.rules.inline.text.exec(near.slice(0, end)) ?? [near[0]];
    }
    return { type: "text", raw, text: raw, escaped: this.lexer.state.inRawBlock };
  },
};

const BEGINS_BLOCK = /(?<=\n) {0,3}(?:\$\$|\\\[)/; // within a paragraph

/* A formula is its source until what draws it is there (extras.js), and where that cannot read it. */
const formula = ({ raw, after = "" }) => `<span lang="${FORMULA}">${escape(raw.trim().slice(0, -after.length || undefined).trim())}</span>${after}`;
const maths = [
  {
    name: "maths",
    level: "inline",
    tokenizer: (src) => {
      const found = mathAt(src);
      return found ? { type: "maths", ...found } : undefined;
    },
    renderer: formula,
  },
  {
    name: "mathsBlock",
    level: "block",
    start: (src) => BEGINS_BLOCK.exec(src.slice(0, NEAR))?.index,
    tokenizer: (src) => {
      const found = mathBlockAt(src);
      return found ? { type: "mathsBlock", ...found } : undefined;
    },
    renderer: (token) => `<p>${formula(token)}</p>`,
  },
];

const marked = new Marked({
  gfm: true,
  tokenizer,
  extensions: maths,
  hooks: { emStrongMask: withoutMaths },
  renderer: {
    html: ({ text }) => text.replace(NO_TAG, "&lt;"),
    text: ({ text, tokens, escaped }) => (escaped && !tokens ? text.replaceAll("<", "&lt;") : false),
    code: ({ text, lang }) => `<pre lang="${escape(lang ?? "")}"><code>${escape(text)}</code></pre>`,
    image: ({ href, text }) => `<a href="${escape(href)}">${escape(text || href)}</a>`,
    checkbox: ({ checked }) => (checked ? "\u2611 " : "\u2610 "),
  },
});

/* The parts of a text that stand for themselves: while it grows only the last ones change. A text that cannot be
 * taken apart is one of them, as it is. */
export function blocksOf(text) {
  try {
    return marked.lexer(text).filter((token) => token.type !== "space" && token.type !== "def");
  } catch {
    return [{ type: "plain", raw: text }];
  }
}

function plain(text) {
  const place = document.createElement("p");
  place.className = "plain";
  place.textContent = text;
  return place;
}

function safe(block) {
  try {
    return DOMPurify.sanitize(marked.parser([block]), SAFE);
  } catch {
    return plain(block.raw);
  }
}

/* A fragment of the document, or an element. */
export function render(block) {
  if (block.type === "plain") return plain(block.raw);
  const fragment = safe(block);
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  for (const place of fragment.querySelectorAll(`pre[lang], span[lang="${FORMULA}"]`)) {
    place.dataset[place.localName === "pre" ? "language" : "formula"] = place.lang; // no language that people speak
    place.removeAttribute("lang");
  }
  return fragment;
}
