// What the checks of the chat page in Debian's chromium share: a page for each of them, and answers that a server seldom gives
// (errors, a lost rank, hostile ones), which routes say in its place. node FILE.mjs URL prints one line per check.
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

export const url = process.argv[2];
export const completions = "**/v1/chat/completions";
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
export const complaints = [];
let failures = 0;

/* Each check has a browser profile of its own, so nothing is remembered from the one before; and answers are
 * always the likeliest ones. */
export async function check(name, run, viewport = { width: 1200, height: 800 }) {
  const context = await browser.newContext({ viewport, acceptDownloads: true });
  await context.route(completions, (route) =>
    route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), temperature: 0 }) }));
  const page = await context.newPage();
  page.setDefaultTimeout(60000);
  page.on("dialog", (dialog) => dialog.accept());
  page.on("pageerror", (e) => complaints.push(`${name}: ${e}`));
  page.on("console", (m) => /Refused|Uncaught|violates/.test(m.text()) && complaints.push(`${name}: ${m.text()}`));
  try {
    await run(page);
    console.log(`ok ${name}`);
  } catch (e) {
    failures++;
    console.log(`FAILED ${name}: ${e.stack}`);
  }
  await context.close();
}

export const answers = (page) => page.getByRole("article", { name: "Answer" });
export const box = (page) => page.getByRole("textbox", { name: "Question" });
export const button = (page, name) => page.getByRole("button", { name });

export async function ask(page, text) {
  await box(page).fill(text);
  await box(page).press("Enter");
}

/* Until the last answer is whole. */
export async function answered(page) {
  await button(page, "Send").waitFor();
  await page.waitForFunction(() => [...document.querySelectorAll("article.answer")].at(-1)?.getAttribute("aria-busy") === "false");
  return answers(page).last().innerText();
}

export const event = (v) => `data: ${JSON.stringify(v)}\n\n`;
export const delta = (content) => event({ choices: [{ index: 0, delta: { content } }] });
export const fakeAnswer = (page, body, status = 200, type = "text/event-stream") =>
  page.route(completions, (route) => route.fulfill({ status, contentType: type, body }));
/* A server that answers with these chunks one after the other, and with the last one again and again; {asked}: the requests. */
export async function fakeAnswers(page, ...texts) {
  const asked = [];
  await page.route(completions, (route) => {
    asked.push(route.request().postDataJSON());
    const text = texts[Math.min(asked.length, texts.length) - 1];
    return route.fulfill({ contentType: "text/event-stream", body: delta(text) + DONE });
  });
  return asked;
}

const axe = readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

/* What axe finds in the page as it is now: ids of rules, with places. */
export async function findings(page) {
  await page.evaluate(`${axe};0`);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  return violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(" ")).join(", ")}`);
}

export const DONE = "data: [DONE]\n\n";

/* The last check of a file. */
export async function end() {
  await check("nothing was complained of", () => {
    if (complaints.length > 0) throw new Error(complaints.join("\n"));
  });
  await browser.close();
  process.exit(failures > 0 ? 1 : 0);
}
