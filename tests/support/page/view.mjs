// The page's view of a cluster in Debian's chromium, before the one of cluster.mjs: eight machines and five models. One line per check.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { Fixture, serve } from "./cluster.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const complaints = [];
let failures = 0;

/* Each check has a cluster and a browser profile of its own. */
async function check(name, run, { fixture = {}, hash = "#cluster", ...options } = {}) {
  const cluster = new Fixture(fixture);
  const server = await serve(0, cluster);
  const url = `http://127.0.0.1:${server.address().port}/`;
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20000);
  page.on("pageerror", (e) => complaints.push(`${name}: ${e}`));
  page.on("console", (m) => /Refused|Uncaught/.test(m.text()) && complaints.push(`${name}: ${m.text()}`));
  page.on("request", (r) => r.url().startsWith(url) || r.url().startsWith("data:") || complaints.push(`${name}: asks ${r.url()}`));
  try {
    await page.goto(url + hash);
    await page.getByRole("heading", { name: "Models" }).waitFor();
    await run(page, cluster);
    console.log(`ok ${name}`);
  } catch (e) {
    failures++;
    console.log(`FAILED ${name}: ${e.stack}`);
  }
  await context.close();
  server.close();
  server.closeAllConnections();
}

const button = (page, name) => page.getByRole("button", { name, exact: typeof name === "string" });
const model = (page, name) => page.getByRole("listitem").filter({ has: page.getByRole("heading", { name, exact: true, level: 3 }) });
const focused = (page) =>
  page.evaluate(() => {
    const { activeElement: e } = document;
    return e === document.body ? "nothing" : (e.getAttribute("aria-label") ?? e.textContent);
  });

async function hasNoFindings(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run());
  assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 160)).join(" | ")}`), []);
}

const isWide = (page) =>
  page.evaluate(() => [document.documentElement, document.querySelector(".scroll")].some((e) => e.scrollWidth > e.clientWidth));

await check("every machine, link, model and event is there", async (page) => {
  for (const name of ["rack", "shelf", "attic", "cellar", "desk", "porch", "loft", "barn"]) {
    await page.getByRole("heading", { name, exact: true, level: 3 }).waitFor();
    await button(page, new RegExp(`^${name} `)).waitFor();
  }
  assert.equal(await page.locator("line.wire").count(), 7);
  await page.locator(".label").getByText("MB/s of 9.7 GB/s").waitFor(); // after two answers
  const shown = await page.locator(".cluster").innerText();
  for (const text of ["rdma 4.1 \u00b5s", "tcp 88 \u00b5s", "8 machines 1 lost", "3 models serve 2 not", "heads 48\u201363 of 64", "layers 44\u201379 of 80",
    "rank 0 on NVIDIA RTX 4090", "stands by for gpt-oss-20b, gemma-3-27b", "cannot stand in for llama-3.3-70b: there is no room on its disk",
    "loft gets a copy from cellar", "110 MB/s", "downloads phi-4-Q4_K_M.gguf", "porch is lost; attic loads the model again", "weights 33 GB",
    "in place of 27.4", "shelf, attic could take over"])
    assert.ok(shown.replace(/\s+/g, " ").includes(text), text);
  assert.match(await page.locator(".label .now").first().textContent(), /[MGK]B\/s/);
});
await check("the table is the graph's equal", async (page) => {
  await button(page, "Table").press("Enter");
  const row = page.getByRole("row").filter({ hasText: "rack \u2013 shelf" });
  await row.getByText("rdma").waitFor();
  await row.getByText("MB/s").waitFor(); // after two answers
  assert.match(await row.innerText(), /qwen3-235b-a22b\s+rdma\s+4\.1 \u00b5s\s+9\.7 GB\/s\s+\d+ MB\/s/);
  assert.equal(await page.getByRole("row").count(), 1 + 8 + 1 + 7);
  await hasNoFindings(page);
});
await check("by the keyboard a machine of the graph is chosen, and its links said", async (page) => {
  await button(page, /^rack /).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("status").getByText("shelf: rdma, 4.1 \u00b5s, 9.7 GB/s measured").waitFor();
  assert.equal(await page.locator("line.wire.lit").count(), 3);
  await page.keyboard.press(" ");
  await page.locator(".chosen-links").waitFor({ state: "detached" });
});
await check("a change is shown within two seconds, and said once", async (page, cluster) => {
  await page.locator(".label .now").first().waitFor();
  cluster.lose("desk");
  await page.getByRole("listitem").filter({ has: page.getByRole("heading", { name: "desk", exact: true }) }).getByText(/^lost/).waitFor({ timeout: 2000 });
  const voice = page.locator(".cluster [aria-live=polite].unseen");
  await page.waitForFunction((e) => e.textContent !== "", await voice.elementHandle(), { timeout: 2000 });
  assert.equal(await voice.textContent(), "desk is lost");
  await page.getByRole("link", { name: "Cluster 2 of 8 lost" }).waitFor();
});
await check("nothing is asked while the page is hidden, or shows a conversation", async (page, cluster) => {
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => window.hides });
    window.hides = true;
  });
  await page.waitForTimeout(1500);
  const before = cluster.polls;
  await page.waitForTimeout(2500);
  assert.equal(cluster.polls, before);
  await page.evaluate(() => {
    window.hides = false;
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await page.waitForTimeout(1500);
  assert.ok(cluster.polls >= before + 2, `${cluster.polls - before} polls`);
  await page.evaluate(() => (location.hash = "")); // before anybody has chatted, it is the cluster that is shown
  await page.getByRole("heading", { name: "Models" }).waitFor();
  await page.getByRole("textbox", { name: "Question" }).fill("Are you there?");
  await page.keyboard.press("Enter");
  await page.getByRole("article", { name: "Answer" }).getByText("Yes.").waitFor();
  await page.waitForTimeout(1500);
  const shown = cluster.polls;
  await page.waitForTimeout(2500);
  assert.equal(cluster.polls, shown);
});
await check("a model is taken down, after a question", async (page, cluster) => {
  await button(page, "Take down gpt-oss-20b").focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Take gpt-oss-20b down?" });
  await dialog.waitFor();
  assert.equal(await focused(page), "Cancel");
  await hasNoFindings(page);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.equal(await focused(page), "Take down gpt-oss-20b");
  assert.deepEqual(cluster.asked, []);
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await model(page, "gpt-oss-20b").waitFor({ state: "detached" });
  assert.equal(await focused(page), "Models");
  assert.deepEqual(cluster.asked, [["down", { name: "gpt-oss-20b" }]]);
});
await check("what a placement would give is shown before a model is moved, and a refusal in the server's words", async (page, cluster) => {
  await button(page, "Move qwen3-235b-a22b").press("Enter");
  const dialog = page.getByRole("dialog", { name: "Move qwen3-235b-a22b" });
  await dialog.getByRole("row").filter({ hasText: "tensor2" }).getByText("21.9").waitFor();
  await dialog.getByRole("row").filter({ hasText: "one machine" }).getByText("rack has 115 GB, and it takes 141 GB").waitFor();
  await hasNoFindings(page);
  await dialog.getByRole("checkbox", { name: "barn" }).press(" ");
  await dialog.getByText("among attic,cellar,desk,loft,rack,shelf").waitFor();
  assert.equal(await dialog.getByRole("button", { name: "Move" }).getAttribute("aria-disabled"), "true");
  await dialog.getByRole("radio", { name: /^barn/ }).press(" ");
  await dialog.getByRole("button", { name: "Move" }).press("Enter");
  await dialog.getByRole("alert").getByText("barn cannot serve it: there is no room on its disk").waitFor();
  await dialog.getByRole("radio", { name: /^shelf/ }).press(" ");
  await dialog.getByRole("button", { name: "Move" }).press("Enter");
  await dialog.waitFor({ state: "detached" });
  await model(page, "qwen3-235b-a22b").getByText("shelf answers").waitFor();
  assert.equal(await focused(page), "Move qwen3-235b-a22b");
  assert.deepEqual(cluster.asked.filter(([what]) => what === "move").at(-1), ["move", { name: "qwen3-235b-a22b", node: "shelf" }]);
});
await check("a placement of the list is chosen, and the choice ended", async (page, cluster) => {
  await button(page, "Move qwen3-235b-a22b").press("Enter");
  const dialog = page.getByRole("dialog", { name: "Move qwen3-235b-a22b" });
  const row = (layout) => dialog.getByRole("row").filter({ hasText: layout });
  await row("pipeline3").getByRole("radio").press(" ");
  assert.equal(await row("tensor4").getByRole("radio").count(), 0); // it is what runs
  assert.equal(await row("one machine").getByRole("radio").count(), 0); // it does not fit
  await hasNoFindings(page);
  await dialog.getByRole("button", { name: "Use this" }).press("Enter");
  await dialog.waitFor({ state: "detached" });
  assert.deepEqual(cluster.asked.at(-1), ["move", { name: "qwen3-235b-a22b", nodes: ["attic", "cellar", "desk"], parallel: "pipeline3" }]);
  await model(page, "qwen3-235b-a22b").getByText("chosen: pipeline3 on attic, cellar, desk").waitFor();
  await button(page, "Move qwen3-235b-a22b").press("Enter");
  await dialog.getByRole("radio", { name: /^whatever is fastest/ }).press(" ");
  await dialog.getByRole("button", { name: "Use this" }).press("Enter");
  await dialog.waitFor({ state: "detached" });
  assert.deepEqual(cluster.asked.at(-1), ["move", { name: "qwen3-235b-a22b", nodes: "auto" }]);
});
await check("a model is put up on some of the machines, in a placement of the list", async (page, cluster) => {
  await button(page, "Put a model up").press("Enter");
  const dialog = page.getByRole("dialog", { name: "Put a model up" });
  await dialog.waitFor();
  await page.keyboard.type("no such model");
  await page.keyboard.press("Enter");
  await dialog.getByRole("alert").getByText("no machine has a model named no such model").waitFor();
  assert.deepEqual(cluster.asked.at(-1), ["up", { model: "no such model" }]);
  await dialog.getByRole("combobox", { name: "Model" }).fill("phi-4-Q4_K_M");
  await dialog.getByText("8.9 GB, on rack, desk").waitFor();
  await dialog.getByText("predicted for phi-4-Q4_K_M").waitFor();
  const fastest = dialog.getByRole("group", { name: "Placement" }).getByRole("radio", { name: /^whatever is fastest/ });
  const row = (layout) => dialog.getByRole("row").filter({ hasText: layout });
  assert.ok(await fastest.isChecked());
  assert.equal(await row("tensor2").getByRole("radio").count(), 0);
  await row("tensor2").getByText("attic, cellar: the model is not there").waitFor();
  assert.equal(await row("one machine").getByRole("radio").count(), 0); // it does not fit
  await fastest.press("ArrowDown"); // as radios do: to the next that may be chosen
  assert.ok(await row("pipeline3").getByRole("radio").isChecked());
  assert.ok(await row("pipeline3").getByRole("radio").evaluate((e) => e === document.activeElement));
  await dialog.getByLabel("Name in the APIs").fill("phi");
  await dialog.getByRole("checkbox", { name: "barn" }).press(" ");
  await dialog.getByText("predicted for phi-4-Q4_K_M among attic,cellar,desk,loft,rack,shelf").waitFor();
  assert.ok(await fastest.isChecked()); // the choice was one of others
  await row("pipeline3").getByRole("radio").press(" ");
  await dialog.getByLabel("Unloaded when nobody asks").selectOption("after half an hour");
  await hasNoFindings(page);
  await dialog.getByRole("button", { name: "Put up" }).press("Enter");
  await dialog.waitFor({ state: "detached" });
  assert.deepEqual(cluster.asked.at(-1), ["up", {
    model: "phi-4-Q4_K_M", name: "phi", nodes: "attic,cellar,desk,loft,rack,shelf", layout: { nodes: ["attic", "cellar", "desk"], parallel: "pipeline3" },
    options: { idle: "30m" },
  }]);
  assert.equal(await focused(page), "Put a model up");
});
await check("who may not change the cluster has no buttons for it, but may show the token", async (page, cluster) => {
  await page.getByText("this key may not change the cluster").waitFor();
  assert.equal(await button(page, /^(Move|Take|Put)/).count(), 0);
  await button(page, "I have the token").press("Enter");
  const dialog = page.getByRole("dialog");
  await page.keyboard.type("guess");
  await page.keyboard.press("Enter");
  await dialog.getByRole("alert").getByText("does not take this token").waitFor();
  await dialog.getByLabel(/^Token/).fill(cluster.token);
  await page.keyboard.press("Enter");
  await dialog.waitFor({ state: "detached" });
  await button(page, "Put a model up").waitFor();
}, { fixture: { manage: false } });
await check("a server that is gone is said, and what was known stays", async (page, cluster) => {
  cluster.broken = true;
  await page.getByText(/The server answered with status 502\. What is shown is \d+ s old\./).waitFor();
  await page.getByRole("heading", { name: "cellar", exact: true }).waitFor();
  cluster.broken = false;
  await page.getByText("What is shown").waitFor({ state: "detached" });
});
await check("while no model serves, the cluster is what the page shows first", async (page) => {
  await hasNoFindings(page);
  await page.evaluate(() => localStorage.setItem("lockstep.chat.a", '{"id": "a", "changed": 1, "messages": [{"role": "user", "content": "Hi"}]}'));
  await page.reload();
  await page.getByRole("heading", { name: "Models" }).waitFor();
}, { fixture: { serving: false }, hash: "" });
await check("an answer that waits says who is lost and who takes over", async (page, cluster) => {
  let go;
  cluster.waits = new Promise((done) => (go = done));
  await page.getByRole("textbox", { name: "Question" }).fill("Are you there?");
  await page.keyboard.press("Enter");
  await page.getByText("rack is lost; shelf takes over, your answer goes on.").waitFor();
  go();
  await page.getByRole("article", { name: "Answer" }).getByText("Yes.").waitFor();
  assert.equal(await page.getByText("rack is lost").count(), 0);
}, { hash: "" });
for (const colorScheme of ["light", "dark"]) {
  await check(`${colorScheme}: without a finding of axe`, hasNoFindings, { colorScheme });
  await check(`${colorScheme}, on a phone: nothing is wider, and no finding of axe`, async (page) => {
    assert.equal(await isWide(page), false);
    await hasNoFindings(page);
    await button(page, "Table").click();
    assert.equal(await isWide(page), false);
    await button(page, "Move qwen3-235b-a22b").click();
    await page.getByRole("dialog").getByText("21.9").waitFor();
    assert.ok(await page.getByRole("dialog").evaluate((e) => e.scrollWidth <= e.clientWidth && e.getBoundingClientRect().right <= innerWidth));
    await hasNoFindings(page);
  }, { colorScheme, viewport: { width: 360, height: 740 } });
}
await check("who wants less motion has none", async (page) => {
  assert.equal(await page.locator(".stack i").first().evaluate((e) => getComputedStyle(e).transitionProperty), "none");
}, { reducedMotion: "reduce" });

await browser.close();
for (const complaint of complaints) console.log(`FAILED: ${complaint}`);
process.exit(failures + complaints.length > 0 ? 1 : 0);
