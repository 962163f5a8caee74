// build.mjs: makes the chat page in one file, ../src/api/page.html, and the files ../src/api/page/NAME-HASH.js that it
// loads when an answer needs them, from src/. The same sources give the same bytes.
//
//   node build.mjs          writes them
//   node build.mjs --check  says whether those that are there are what the sources give
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const output = new URL("../src/api/", import.meta.url);
const read = (path) => readFileSync(new URL(path, import.meta.url), "utf8");

async function bundle(entry, define = {}) {
  const result = await build({
    entryPoints: [entry],
    absWorkingDir: import.meta.dirname,
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: ["es2022", "chrome110", "firefox115", "safari16.4"],
    charset: "utf8",
    define,
    legalComments: "none", // license() has them whole
    jsx: "automatic",
    jsxImportSource: "preact",
    logLevel: "warning",
  });
  return result.outputFiles[0].text.trim();
}

/* The notices that the bundled libraries ask for. DOMPurify's license may be either of two; its own header names them. */
function license(name) {
  const title = `${name} ${JSON.parse(read(`node_modules/${name}/package.json`)).version}`;
  if (name !== "dompurify") return `${title}\n\n${read(`node_modules/${name}/LICENSE`).trim()}`;
  const [purify] = /@license[^]*?(?=\s*\*\/)/.exec(read("node_modules/dompurify/dist/purify.es.mjs"));
  return purify.replace("@license ", "");
}

function licenses(names) {
  return `/*!\nThis file contains:\n\n${names.map(license).join("\n\n---\n\n")}\n*/\n`;
}

function hash(text) {
  return `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
}

/* {name, path below the page, text} of a file that is loaded when it is needed. */
async function asset(name, libraries) {
  const text = licenses(libraries) + (await bundle(`src/assets/${name}.js`));
  const digest = createHash("sha256").update(text).digest("hex").slice(0, 12);
  return { name, path: `page/${name}-${digest}.js`, text };
}

async function page(assets) {
  const style = await bundle("src/page.css");
  const early = await bundle("src/early.js");
  const paths = assets.map(({ name, path }) => [`globalThis.LOCKSTEP_PATH_${name.toUpperCase()}`, JSON.stringify(path)]);
  const script = licenses(["preact", "marked", "dompurify"]) + (await bundle("src/main.jsx", Object.fromEntries(paths)));
  const policy = [
    "default-src 'none'",
    `script-src ${[early, script, ...assets.map(({ text }) => text)].map(hash).join(" ")}`,
    `style-src ${hash(style)}`,
    "connect-src 'self'",
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
  const icon = `data:image/svg+xml,${encodeURIComponent(read("src/icon.svg").trim())}`;
  const parts = { policy, icon, style, early, script };
  return read("src/page.html").replace(/\{\{(\w+)\}\}/g, (_, name) => parts[name]);
}

const assets = [await asset("math", ["katex"]), await asset("code", ["highlight.js"])];
const made = new Map([["page.html", await page(assets)], ...assets.map(({ path, text }) => [path, text])]);
const folder = new URL("page/", output);
mkdirSync(folder, { recursive: true });
const there = ["page.html", ...readdirSync(folder).map((name) => `page/${name}`)];
if (!process.argv.includes("--check")) {
  for (const path of there) rmSync(new URL(path, output), { force: true });
  for (const [path, text] of made) writeFileSync(new URL(path, output), text);
} else if (there.length !== made.size || !there.every((path) => made.get(path) === readFileSync(new URL(path, output), "utf8"))) {
  console.log("src/api/page.html and src/api/page/ are not what web/ gives: run node web/build.mjs and commit them.");
  process.exitCode = 1;
}
