// math.js: formulas as MathML, which browsers draw by themselves. A file of its own, for answers with formulas.
import katex from "katex";

/* Throws where the formula cannot be read. What TeX could address or include is not trusted. */
globalThis.lockstep_math = (tex, display) =>
  katex.renderToString(tex, {
    displayMode: display,
    output: "mathml",
    throwOnError: true,
    strict: "ignore",
    trust: false,
    maxSize: 20,
    maxExpand: 500,
  });
