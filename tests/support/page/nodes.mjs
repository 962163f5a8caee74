// The page before a cluster of three machines, ann, bob and cat, at bob: node nodes.mjs URL. One line per step; after "kill ann" and
// "start ann" somebody else does that.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const url = process.argv[2];
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const context = await browser.newContext({ viewport: { width: 1200, height: 900 } });
/* A long answer, always the same. */
await context.route("**/v1/chat/completions", (route) =>
  route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), temperature: 1, seed: 5, max_tokens: 100, ignore_eos: true }) }));
const page = await context.newPage();
const complaints = [];
page.setDefaultTimeout(60000);
page.on("pageerror", (e) => complaints.push(String(e)));

const card = (name) => page.locator(".card").filter({ has: page.getByRole("heading", { name, exact: true }) });
const model = page.locator(".model").filter({ has: page.getByRole("heading", { name: "m", exact: true }) });
const events = page.locator(".events");
const answer = page.getByRole("article", { name: "Answer" }).last();
async function ask() {
  await page.getByRole("textbox", { name: "Question" }).fill("What is a bit bucket?");
  await page.keyboard.press("Enter");
}
async function answered() {
  await page.waitForFunction(() => [...document.querySelectorAll("article.answer")].at(-1)?.getAttribute("aria-busy") === "false");
  assert.equal(await page.getByRole("alert").count(), 0);
  return answer.locator(".markdown").innerText();
}
const shot = async (name) => process.env.SHOTS && page.screenshot({ path: `${process.env.SHOTS}/cluster-nodes-${name}.png` });

try {
  await page.goto(url); // nobody has chatted yet: the cluster
  for (const name of ["ann", "bob", "cat"]) await card(name).getByText("serves", { exact: true }).waitFor();
  await card("bob").getByText("you are here").waitFor();
  await model.getByText(/ann answers, on ann, bob, cat/).waitFor();
  assert.equal(await page.locator("line.wire").count(), 3);
  for (const name of ["ann", "bob", "cat"]) assert.match(await card(name).innerText(), /weights [\d.]+ [KM]B[^]*layers|weights [\d.]+ [KM]B[^]*heads/);
  console.log("ok three machines, and three links");
  await ask();
  const whole = await answered();
  assert.ok(whole.length > 100, whole);
  await page.getByRole("button", { name: "Regenerate" }).click();
  await page.waitForFunction((n) => document.querySelector("article.answer .markdown")?.innerText.length > n, 20);
  console.log("kill ann");
  await page.getByText(/^ann is lost; (bob|cat|another machine) takes over, your answer goes on\.$/).waitFor();
  await shot("lost-answer");
  console.log("ok the answer that waits says who is lost and who takes over");
  assert.equal(await answered(), whole);
  console.log("ok the answer is whole, with the same words");
  await page.getByRole("link", { name: /^Cluster/ }).click();
  await card("ann").getByText(/^lost/).waitFor();
  await model.getByText(/^(bob|cat) answers, on bob, cat/).waitFor();
  const facts = await model.locator(".facts").innerText();
  await events.getByText(/ann.* lost/).first().waitFor();
  await shot("lost");
  console.log("start ann");
  await card("ann").getByText("serves", { exact: true }).waitFor({ timeout: 120000 });
  await events.getByText(/ann.* back/).first().waitFor();
  await shot("back");
  console.log("ok ann is back, and has its part again");
  // What the page may do at the machine itself.
  const [other] = ["bob", "cat"].filter((name) => !/^(bob|cat) answers/.exec(facts)?.[0].startsWith(name));
  await page.getByRole("button", { name: "Move m" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("row").nth(1).getByText(/tensor|pipeline|one/).waitFor();
  await shot("move");
  await dialog.getByRole("radio", { name: new RegExp(`^${other}`) }).check();
  await dialog.getByRole("button", { name: "Move" }).click();
  await dialog.waitFor({ state: "detached" });
  await model.getByText(new RegExp(`^${other} answers`)).waitFor({ timeout: 120000 });
  console.log("ok it is moved");
  await page.getByRole("button", { name: "Put a model up" }).click();
  await dialog.getByLabel("Model", { exact: true }).fill("m");
  await dialog.getByLabel("Name in the APIs").fill("second");
  await dialog.getByRole("radio", { name: /^one rank\s*cat/ }).check();
  await dialog.getByRole("button", { name: "Put up" }).click();
  await dialog.waitFor({ state: "detached" });
  const second = page.locator(".model").filter({ has: page.getByRole("heading", { name: "second", exact: true }) });
  await second.getByText("serves", { exact: true }).waitFor({ timeout: 120000 });
  await second.getByText("chosen: one rank on cat").waitFor();
  console.log("ok another is put up, in a placement that was chosen");
  await page.getByRole("button", { name: "Take down second" }).click();
  await dialog.getByRole("button", { name: "Take down" }).click();
  await second.waitFor({ state: "detached" });
  console.log("ok it is taken down");
  assert.deepEqual(complaints, []);
} catch (e) {
  console.log(`FAILED: ${e.stack}`);
  console.log(`${await page.locator("main").innerText()}`);
  process.exitCode = 1;
}
await browser.close();
