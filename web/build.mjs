// build.mjs: makes ../src/api/page.html, the chat page in one file, from src/. The same sources give the same bytes.
//
//   node build.mjs          writes it
//   node build.mjs --check  says whether the one that is there is what the sources give
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const output = new URL("../src/api/page.html", import.meta.url);
const read = (path) => readFileSync(new URL(path, import.meta.url), "utf8");

async function bundle(entry) {
  const result = await build({
    entryPoints: [entry],
    absWorkingDir: import.meta.dirname,
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: ["es2022", "chrome110", "firefox115", "safari16.4"],
    charset: "utf8",
    legalComments: "none", // licenses() has them whole
    jsx: "automatic",
    jsxImportSource: "preact",
    logLevel: "warning",
  });
  return result.outputFiles[0].text.trim();
}

/* The notices that the bundled libraries ask for. DOMPurify's license may be either of two; its own header names them. */
function licenses() {
  const version = (name) => `${name} ${JSON.parse(read(`node_modules/${name}/package.json`)).version}`;
  const whole = ["preact", "marked"].map((name) => `${version(name)}\n\n${read(`node_modules/${name}/LICENSE`).trim()}`);
  const [purify] = /@license[^]*?(?=\s*\*\/)/.exec(read("node_modules/dompurify/dist/purify.es.mjs"));
  return `/*!\nThis page contains:\n\n${[...whole, purify.replace("@license ", "")].join("\n\n---\n\n")}\n*/\n`;
}

function hash(text) {
  return `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
}

async function page() {
  const style = await bundle("src/page.css");
  const script = licenses() + (await bundle("src/main.jsx"));
  const policy = [
    "default-src 'none'",
    `script-src ${hash(script)}`,
    `style-src ${hash(style)}`,
    "connect-src 'self'",
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
  const icon = `data:image/svg+xml,${encodeURIComponent(read("src/icon.svg").trim())}`;
  const parts = { policy, icon, style, script };
  return read("src/page.html").replace(/\{\{(\w+)\}\}/g, (_, name) => parts[name]);
}

const made = await page();
if (!process.argv.includes("--check")) {
  writeFileSync(output, made);
} else if (readFileSync(output, "utf8") !== made) {
  console.log("src/api/page.html is not what web/ gives: run node web/build.mjs and commit it.");
  process.exitCode = 1;
}
