// markdown.js: from an answer's text to elements that are safe to show. An answer is hostile: whatever it contains,
// only the tags and attributes below get into the page, and nothing is loaded from anywhere.
import DOMPurify from "dompurify";
import { Marked } from "marked";

const NO_ADDRESS = ["align", "colspan", "rowspan", "start", "lang"]; // attributes that are not checked as one

const SAFE = {
  ALLOWED_TAGS: (
    "a b blockquote br code del dd details dl dt em h1 h2 h3 h4 h5 h6 hr i kbd li mark ol p pre s span strong sub summary sup " +
    "table tbody td th thead tr u ul"
  ).split(" "),
  ALLOWED_ATTR: ["href", "title", ...NO_ADDRESS],
  ADD_URI_SAFE_ATTR: NO_ADDRESS,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  RETURN_DOM_FRAGMENT: true,
};

const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const escape = (text) => text.replace(/[&<>"']/g, (c) => escapes[c]);

const marked = new Marked({
  gfm: true,
  renderer: {
    code: ({ text, lang }) => `<pre lang="${escape(lang ?? "")}"><code>${escape(text)}</code></pre>`,
    image: ({ href, text }) => `<a href="${escape(href)}">${escape(text || href)}</a>`,
    checkbox: ({ checked }) => (checked ? "\u2611 " : "\u2610 "),
  },
});

/* The parts of a text that stand for themselves: while it grows only the last ones change. */
export function blocksOf(text) {
  return marked.lexer(text).filter((token) => token.type !== "space" && token.type !== "def");
}

/* A fragment of the document. */
export function render(block) {
  const fragment = DOMPurify.sanitize(marked.parser([block]), SAFE);
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  return fragment;
}
