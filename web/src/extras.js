// extras.js: what draws formulas and colours code. Both come from the server only when an answer has some. They run
// because their hashes are in the page's policy, whatever the server would send in their place.
import DOMPurify from "dompurify";
import { mathAt } from "./maths.js";

const PATHS = { math: globalThis.LOCKSTEP_PATH_MATH, code: globalThis.LOCKSTEP_PATH_CODE }; // build.mjs
const AGAIN_MS = 10000;
const MOST_CODE = 100000; // characters that are coloured
const MOST_KEPT = 500; // formulas

const MATHML = {
  ALLOWED_TAGS: (
    "math semantics mrow mi mo mn ms mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mtable mtr mtd " +
    "mstyle mpadded mphantom menclose #text"
  ).split(" "),
  ALLOWED_ATTR: (
    "display mathvariant mathcolor mathbackground fence separator stretchy symmetric lspace rspace minsize maxsize linethickness " +
    "scriptlevel displaystyle rowspacing columnspacing columnalign columnlines rowlines frame width height depth voffset accent " +
    "accentunder movablelimits largeop notation"
  ).split(" "),
  FORBID_CONTENTS: ["annotation", "annotation-xml", "script", "style"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  NAMESPACE: "http://www.w3.org/1999/xhtml",
  RETURN_DOM_FRAGMENT: true,
};
const COLOURS = {
  ALLOWED_TAGS: ["span", "#text"],
  ALLOWED_ATTR: ["class"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

const loading = new Map(); // name -> {promise, at}

async function fetchAndRun(name) {
  const response = await fetch(PATHS[name]);
  if (!response.ok) throw new Error(`${PATHS[name]}: status ${response.status}`);
  const script = document.createElement("script");
  script.textContent = await response.text();
  document.head.append(script);
  script.remove();
  return globalThis[`lockstep_${name}`];
}

/* The function of a library, at once if it is there, or a promise of it; null if the server did not give it. */
function library(name) {
  const there = globalThis[`lockstep_${name}`];
  if (there) return there;
  const now = performance.now();
  let entry = loading.get(name);
  if (!entry || (entry.failed && now - entry.at > AGAIN_MS)) {
    entry = { at: now, failed: false };
    entry.promise = fetchAndRun(name).catch(() => {
      entry.failed = true;
      return null;
    });
    loading.set(name, entry);
  }
  return entry.promise;
}

function withLibrary(name, use) {
  const draw = library(name);
  if (typeof draw === "function") use(draw);
  else draw.then((later) => later && use(later));
}

const kept = new Map(); // source -> fragment or null: a growing answer draws the same ones again and again

function formulaOf(draw, source) {
  if (kept.has(source)) return kept.get(source);
  const found = mathAt(source, source.length);
  let fragment = null;
  try {
    if (found) fragment = DOMPurify.sanitize(draw(found.tex, found.display), MATHML);
  } catch {
    // no TeX, or more than is known: the source stays
  }
  if (fragment && !fragment.querySelector("math")) fragment = null;
  if (kept.size >= MOST_KEPT) kept.delete(kept.keys().next().value);
  kept.set(source, fragment);
  return fragment;
}

function drawFormula(draw, span) {
  const fragment = formulaOf(draw, span.textContent);
  if (fragment === null) return;
  const display = fragment.querySelector("math").getAttribute("display") === "block";
  delete span.dataset.formula;
  span.className = display ? "formula display" : "formula";
  span.dir = "ltr";
  if (display) span.tabIndex = 0; // so that the keyboard can scroll it
  span.replaceChildren(fragment.cloneNode(true));
}

function colour(draw, code, language) {
  const text = code.textContent;
  const html = draw(text, language);
  if (html === null) return;
  const fragment = DOMPurify.sanitize(html, COLOURS);
  for (const span of fragment.querySelectorAll("span"))
    span.className = [...span.classList].filter((name) => name.startsWith("hljs-")).join(" ");
  if (fragment.textContent === text) code.replaceChildren(fragment);
}

/* The language after a fence: "c++ title=x" is c++. */
export function languageOf(info) {
  return /^[\w+#.-]*/.exec(info.trim().toLowerCase())[0];
}

/* Draws what is in the element now, as soon as what draws it is there. An element that was drawn stays as it is. */
export function enrich(root) {
  const spans = root.querySelectorAll("span[data-formula]");
  if (spans.length > 0) withLibrary("math", (draw) => spans.forEach((span) => span.isConnected && drawFormula(draw, span)));
  for (const pre of root.querySelectorAll("pre[data-language]")) {
    const language = languageOf(pre.dataset.language);
    const code = pre.querySelector("code");
    if (!language || !code || code.childElementCount > 0 || code.textContent.length > MOST_CODE) continue;
    withLibrary("code", (draw) => code.isConnected && colour(draw, code, language));
  }
}
