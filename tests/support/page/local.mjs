// The page of a node's own machine, where no model is up: node local.mjs URL.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const url = process.argv[2];
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const page = await (await browser.newContext({ viewport: { width: 1200, height: 800 } })).newPage();
const complaints = [];
page.setDefaultTimeout(30000);
page.on("pageerror", (e) => complaints.push(String(e)));

async function hasNoFindings() {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run());
  assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 160)).join(" | ")}`), []);
}
const shot = async (name) => process.env.SHOTS && page.screenshot({ path: `${process.env.SHOTS}/local-${name}.png` });

try {
  await page.goto(url);
  await page.getByRole("heading", { name: "desk", exact: true }).waitFor();
  await page.getByText("No model is up").waitFor();
  assert.equal(await page.getByRole("textbox", { name: "Question" }).count(), 0); // nobody would answer
  await hasNoFindings();
  await shot("empty");
  await page.getByRole("button", { name: "Put a model up" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Model", { exact: true }).fill("first");
  await dialog.getByRole("row").filter({ hasText: "one rank" }).waitFor(); // what it would give
  assert.match(await dialog.getByLabel("API key").inputValue(), /^[0-9a-f]{32}$/);
  await hasNoFindings();
  await shot("up");
  const [request] = await Promise.all([
    page.waitForRequest((r) => r.url().endsWith("/v1/cluster/up")),
    dialog.getByRole("button", { name: "Put up" }).click(),
  ]);
  assert.match(request.postDataJSON().api_key, /^[0-9a-f]{32}$/);
  await dialog.waitFor({ state: "detached" });
  const model = page.locator(".model").filter({ has: page.getByRole("heading", { name: "first", exact: true }) });
  await model.getByText(/serves|failed/).first().waitFor({ timeout: 60000 }); // 8080 may be somebody else's
  if (await model.getByText("serves", { exact: true }).count())
    assert.equal(await model.getByRole("link", { name: "Chat with first" }).getAttribute("href"), "http://127.0.0.1:8080/");
  await hasNoFindings();
  await shot("serves");
  await page.getByRole("button", { name: "Take down first" }).click();
  await dialog.getByRole("button", { name: "Take down" }).click();
  await page.getByText("No model is up").waitFor();
  assert.deepEqual(complaints, []);
  console.log("ok a first model is put up and taken down");
} catch (e) {
  console.log(`FAILED ${e.stack}\n${complaints}`);
  process.exitCode = 1;
}
await browser.close();
