// Versions and branches, several conversations at once, files, settings, and who uses the keyboard or hears the page.
// node chats.mjs URL
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import {
  answered, answers, ask, box, button, check, completions, delta, DONE, end, event, fakeAnswers, findings, url,
} from "./harness.mjs";

const list = (page) => page.getByRole("navigation", { name: "Conversations" });
const phone = { width: 360, height: 640 };
const contents = (request) => request.messages.map((m) => m.content);

await check("an answer that is given again keeps the old one", async (page) => {
  const asked = await fakeAnswers(page, "one", "two", "three");
  await page.goto(url);
  await ask(page, "Say a number.");
  await answered(page);
  await button(page, "Regenerate").click();
  await answers(page).getByText("two").waitFor();
  const versions = page.getByRole("group", { name: "Versions of this answer" });
  assert.match(await versions.innerText(), /2\/2/);
  await button(page, "Previous answer").click();
  await answers(page).getByText("one").waitFor();
  assert.equal(await button(page, "Previous answer").isDisabled(), true);
  await ask(page, "And then?");
  await answers(page).getByText("three").waitFor();
  assert.deepEqual(contents(asked[2]), ["Say a number.", "one", "And then?"]);
  await button(page, "Next answer").click();
  await answers(page).getByText("three").waitFor({ state: "detached" });
  await page.reload();
  await answers(page).getByText("two").waitFor();
  await button(page, "Previous answer").click();
  await answers(page).getByText("three").waitFor();
});
await check("an edited question is a branch, also in the middle", async (page) => {
  const asked = await fakeAnswers(page, "Alpha.", "Beta.", "Gamma.");
  await page.goto(url);
  await ask(page, "first");
  await answered(page);
  await ask(page, "second");
  await answers(page).getByText("Beta.").waitFor();
  await button(page, "Edit").first().click();
  await page.getByRole("textbox", { name: "Edit the question" }).fill("other");
  await page.keyboard.press("Enter");
  await answers(page).getByText("Gamma.").waitFor();
  assert.deepEqual(contents(asked[2]), ["other"]);
  assert.equal(await answers(page).count(), 1);
  await button(page, "Previous question").click();
  await answers(page).getByText("Beta.").waitFor();
  assert.equal(await answers(page).count(), 2);
});
await check("what is known of an answer is told at it", async (page) => {
  await page.goto(url);
  await ask(page, "What is a bit bucket?");
  await answered(page);
  assert.match(await page.locator(".told").innerText(), /jargon-3m-f16[^]*tokens\/s[^]*\d+ tokens[^]*\d+:\d\d/);
});
await check("a stopped answer goes on, as the server would have", async (page) => {
  await page.goto(url);
  await button(page, "Settings").click();
  await page.getByLabel("Most tokens of an answer").fill("6");
  await page.keyboard.press("Escape");
  await ask(page, "What is a bit bucket?");
  await page.getByText("reached the limit of tokens").waitFor();
  await answered(page);
  const first = await answers(page).locator(".markdown").innerText();
  await button(page, "Continue").click();
  await page.waitForFunction((n) => document.querySelector(".answer .markdown").innerText.length > n, first.length);
  await answered(page);
  const text = await answers(page).locator(".markdown").innerText();
  assert.ok(text.startsWith(first) && text.length > first.length, `${first} -> ${text}`);
  assert.equal(await answers(page).count(), 1);
  await page.unroute(completions);
  const asked = await fakeAnswers(page, " And so on.");
  await button(page, "Continue").click();
  await answers(page).getByText("And so on.").waitFor();
  assert.equal(asked[0].continue_final_message, true);
  assert.equal(asked[0].messages.at(-1).role, "assistant");
  assert.equal(await button(page, "Continue").count(), 0, "it has ended");
});
await check("several conversations are answered at once", async (page) => {
  const waiting = [];
  await page.route(completions, (route) => new Promise((done) => waiting.push(() => done(route.fulfill({
    contentType: "text/event-stream",
    body: delta(`Answer to ${route.request().postDataJSON().messages.at(-1).content}`) + DONE,
  })))));
  await page.goto(url);
  for (const question of ["one", "two", "three"]) {
    await page.getByRole("link", { name: "New chat" }).click();
    await ask(page, question);
    await list(page).getByText(question, { exact: true }).waitFor();
  }
  await list(page).getByRole("img", { name: "is being answered" }).nth(2).waitFor();
  while (waiting.length < 3) await page.waitForTimeout(20);
  waiting[1]();
  await list(page).getByRole("img", { name: "has a new answer" }).waitFor();
  await list(page).getByText("two", { exact: true }).click();
  await answers(page).getByText("Answer to two").waitFor();
  await list(page).getByRole("img", { name: "has a new answer" }).waitFor({ state: "detached" });
  assert.equal(await list(page).getByRole("img", { name: "is being answered" }).count(), 2);
  waiting[0]();
  waiting[2]();
  await list(page).getByText("one", { exact: true }).click();
  await answers(page).getByText("Answer to one").waitFor();
});
await check("a server that shuts down is told as such", async (page) => {
  await page.goto(url);
  const refuse = (route) => route.fulfill({
    status: 503,
    headers: { "Lockstep-Ending": "1", "Content-Type": "application/json" },
    body: '{"error":{"message":"the server is shutting down"}}',
  });
  await page.route(completions, refuse);
  await page.route("**/health*", refuse);
  await ask(page, "Are you there?");
  await page.getByRole("alert").getByText("The server is shutting down: it finishes the answers").waitFor();
  await page.getByRole("status").getByText("ending").waitFor();
});
await check("conversations are found, renamed, saved and read again", async (page) => {
  await fakeAnswers(page, "The zebra.", "Nothing of interest.");
  await page.goto(url);
  await ask(page, "animals");
  await answered(page);
  await page.getByRole("link", { name: "New chat" }).click();
  await ask(page, "things");
  await answers(page).getByText("Nothing").waitFor();
  const search = page.getByRole("searchbox", { name: "Search in conversations" });
  await search.fill("ZEBRA");
  assert.equal(await list(page).getByRole("listitem").count(), 1);
  await search.fill("nowhere");
  await page.getByText("No conversation has this text.").waitFor();
  await search.fill("");
  await button(page, "More: animals").click();
  await button(page, "Rename").click();
  await page.getByRole("textbox", { name: "Name of the conversation" }).fill("The zoo");
  await page.keyboard.press("Enter");
  await list(page).getByText("The zoo").waitFor();
  await page.waitForFunction(() => document.activeElement.ariaLabel === "More: The zoo");
  const saved = async (name) => {
    const [download] = await Promise.all([page.waitForEvent("download"), button(page, name).click()]);
    return { name: download.suggestedFilename(), text: readFileSync(await download.path(), "utf8") };
  };
  await button(page, "More: The zoo").click();
  const markdown = await saved("Save as Markdown");
  assert.equal(markdown.name, "The-zoo.md");
  assert.match(markdown.text, /^# The zoo\n\n## Question\n\nanimals\n\n## Answer\n\nThe zebra\.\n/);
  const all = await saved("Export all");
  assert.equal(JSON.parse(all.text).conversations.length, 2);
  for (const name of ["The zoo", "things"]) {
    await button(page, `More: ${name}`).click();
    await button(page, "Delete").click();
    await list(page).getByText(name).waitFor({ state: "detached" });
    assert.match(await page.evaluate(() => document.activeElement.ariaLabel ?? document.activeElement.innerText), /^\s*New chat|^Question/);
  }
  assert.equal(await list(page).getByRole("listitem").count(), 0);
  const input = page.getByLabel("File of conversations");
  await input.setInputFiles({ name: "x.json", mimeType: "application/json", buffer: Buffer.from("{}") });
  await page.getByText("This file has no conversations of lockstep.").waitFor();
  await input.setInputFiles({ name: all.name, mimeType: "application/json", buffer: Buffer.from(all.text) });
  await page.getByText("2 conversations imported.").waitFor();
  await page.reload();
  await list(page).getByText("The zoo").click();
  await answers(page).getByText("The zebra.").waitFor();
});
await check("text files go with a question: chosen, dropped, pasted", async (page) => {
  const asked = await fakeAnswers(page, "Seen.");
  await page.goto(url);
  const file = (name, text) => ({ name, mimeType: "text/plain", buffer: Buffer.from(text) });
  await page.getByLabel("Text files", { exact: true }).setInputFiles([file("a.txt", "alpha"), file("b.png", "\0"), file("c.txt", "x".repeat(300000))]);
  await page.getByText("b.png is no text in UTF-8").waitFor();
  await page.getByText("c.txt has 300 KB; a file may have 262 KB.").waitFor();
  const give = (kind, name, text) => page.evaluate(([k, n, t]) => {
    const data = new DataTransfer();
    data.items.add(new File([t], n));
    const init = { bubbles: true, cancelable: true };
    if (k === "drop") document.body.dispatchEvent(new DragEvent("drop", { ...init, dataTransfer: data }));
    else document.querySelector(".composer textarea").dispatchEvent(new ClipboardEvent("paste", { ...init, clipboardData: data }));
  }, [kind, name, text]);
  await give("drop", "d.txt", "delta");
  await page.getByText("d.txt").waitFor();
  await give("paste", "e.txt", "epsilon");
  await page.getByText("e.txt").waitFor();
  await button(page, "Remove d.txt").click();
  await ask(page, "What is in them?");
  await answered(page);
  const [sent] = contents(asked[0]);
  assert.equal(sent, "File a.txt:\n\n```\nalpha\n```\n\nFile e.txt:\n\n```\nepsilon\n```\n\nWhat is in them?");
  const question = page.getByRole("article", { name: "Question" });
  assert.match(await question.innerText(), /a\.txt\s+5 B\s+e\.txt\s+7 B\s+What is in them\?/);
  assert.equal(await box(page).inputValue(), "");
  assert.equal(await page.locator(".composer .files").count(), 0);
});
await check("all samplers and the thinking are sent, and taken by the server", async (page) => {
  await page.goto(url);
  await button(page, "Settings").click();
  const dialog = page.getByRole("dialog", { name: "Settings" });
  for (const summary of ["Rarer samplers", "Penalties"]) await dialog.getByText(summary).click();
  const values = {
    Temperature: 0.5, "Top-p": 0.9, "Top-k": 30, "Min-p": 0.1, Seed: 7, "Most tokens of an answer": 9, "Fewest tokens of an answer": 2,
    "Typical-p": 0.9, "Top-n-sigma": 2, "XTC probability": 0.1, "XTC threshold": 0.2, "Repeat penalty": 1.1,
    "Repeat last n tokens": 32, "Presence penalty": 0.5, "Frequency penalty": 0.25, "DRY multiplier": 0.8, "DRY base": 1.75,
    "DRY allowed length": 2, "DRY last n tokens": 64,
  };
  for (const [label, value] of Object.entries(values)) await dialog.getByLabel(label).fill(String(value));
  await dialog.getByRole("radio", { name: "Low" }).check();
  await button(page, "Close the settings").click();
  assert.equal(await page.getByLabel("Thinking").inputValue(), "low");
  let sent;
  await page.route(completions, (route) => {
    sent = route.request().postDataJSON();
    return route.fallback();
  });
  await ask(page, "What is a bit bucket?");
  await answered(page);
  assert.equal(await page.locator(".error").count(), 0);
  const names = (
    "temperature top_p top_k min_p seed max_tokens min_tokens typical_p top_n_sigma xtc_probability xtc_threshold repeat_penalty " +
    "repeat_last_n presence_penalty frequency_penalty dry_multiplier dry_base dry_allowed_length dry_penalty_last_n"
  ).split(" ");
  assert.deepEqual(names.map((name) => sent[name]), Object.values(values));
  assert.equal(sent.reasoning_effort, "low");
  await page.getByLabel("Thinking").selectOption("none");
  await button(page, "Settings").click();
  await button(page, "Back to the server's defaults").click();
  await page.keyboard.press("Escape");
  await ask(page, "And now?");
  await answered(page);
  assert.equal(sent.reasoning_effort, "none");
  assert.ok(names.every((name) => name === "temperature" || !(name in sent)));
});
await check("light, dark, or as the system", async (page) => {
  await page.goto(url);
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await ground();
  assert.notEqual(light, dark);
  await button(page, "Settings").click();
  await page.getByRole("radio", { name: "Light" }).check();
  assert.equal(await ground(), light);
  await page.reload();
  assert.equal(await ground(), light);
  await page.emulateMedia({ colorScheme: "light" });
  await button(page, "Settings").click();
  await page.getByRole("radio", { name: "Dark" }).check();
  assert.equal(await ground(), dark);
});
await check("a key is remembered only if that is wanted", async (page) => {
  await page.route(completions, (route) =>
    route.request().headers().authorization === "Bearer sesame"
      ? route.fulfill({ contentType: "text/event-stream", body: delta("Open.") + DONE })
      : route.fulfill({ status: 401, contentType: "application/json", body: '{"error":{"message":"an API key is needed"}}' }));
  const kept = () => page.evaluate(() => [sessionStorage.getItem("lockstep.key"), localStorage.getItem("lockstep.key")]);
  const give = async (remember) => {
    await ask(page, "Open?");
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("API key").fill("sesame");
    if (remember) await dialog.getByLabel("Remember it in this browser").check();
    await button(page, "Use this key").click();
    await answers(page).last().getByText("Open.").waitFor();
    await answered(page);
  };
  await page.goto(url);
  await give(false);
  assert.deepEqual(await kept(), ["sesame", null]);
  await button(page, "Settings").click();
  await button(page, "Forget the API key").click();
  await page.keyboard.press("Escape");
  assert.deepEqual(await kept(), [null, null]);
  await give(true);
  assert.deepEqual(await kept(), [null, "sesame"]);
  assert.equal(await button(page, /Previous answer/).count(), 0, "what was refused is no version");
});
await check("the keyboard reaches everything", async (page) => {
  await fakeAnswers(page, "one", "two");
  await page.goto(url);
  await ask(page, "Say a number.");
  await answered(page);
  const tabTo = async (name) => {
    for (let i = 0; i < 40; i++) {
      await page.keyboard.press("Tab");
      const at = await page.evaluate(() => document.activeElement.ariaLabel ?? document.activeElement.innerText);
      if (at?.trim() === name) return;
    }
    assert.fail(`Tab does not come to ${name}`);
  };
  await tabTo("More: Say a number.");
  await page.keyboard.press("Enter");
  await tabTo("Rename");
  await page.keyboard.press("Escape");
  await button(page, "Rename").waitFor({ state: "detached" });
  assert.equal(await page.evaluate(() => document.activeElement.ariaLabel), "More: Say a number.");
  await tabTo("Regenerate");
  await page.keyboard.press("Enter");
  await answers(page).getByText("two").waitFor();
  await tabTo("Previous answer");
  await page.keyboard.press("Space");
  await answers(page).getByText("one").waitFor();
  await tabTo("Settings");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  assert.equal(await page.evaluate(() => document.activeElement.innerText.trim()), "Settings");
});

const rich = "So $x_1*y_2$:\n\n$$\\frac{1}{2}$$\n\n```c\nint x; /* y */\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n$\\nosuch$";
for (const [form, viewport] of [["desktop", { width: 1200, height: 800 }], ["phone", phone]])
  await check(`axe finds nothing, nothing is too wide (${form})`, async (page) => {
    const thought = event({ choices: [{ index: 0, delta: { reasoning_content: "Hm." } }] });
    await page.route(completions, (route) => route.fulfill({ contentType: "text/event-stream", body: thought + delta(rich) + DONE }));
    const open = async (name) => {
      if (form === "phone") await button(page, "Conversations and settings").click();
      await button(page, name).click();
    };
    const views = {
      empty: () => page.goto(url),
      chat: async () => {
        await ask(page, "Show all.");
        await answered(page);
        await answers(page).locator("math").nth(1).waitFor();
        await answers(page).locator(".hljs-comment").waitFor();
        await button(page, "Regenerate").click();
        await button(page, "Previous answer").waitFor();
      },
      files: async () => {
        await page.getByLabel("Text files", { exact: true }).setInputFiles([{ name: `${"long".repeat(30)}.txt`, mimeType: "text/plain", buffer: Buffer.from("a") }]);
        await page.getByRole("list", { name: "Files" }).waitFor();
      },
      edit: () => button(page, "Edit").first().click(),
      actions: () => open("More: Show all."),
      rename: () => button(page, "Rename").click(),
      settings: async () => {
        await page.keyboard.press("Escape");
        await page.getByRole("button", { name: "Settings", exact: true }).click();
        await page.getByText("Penalties").click();
      },
    };
    for (const scheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
      await page.evaluate(() => localStorage.clear()).catch(() => {});
      await page.goto("about:blank");
      for (const [name, go] of Object.entries(views)) {
        await go();
        await page.waitForTimeout(250); // what fades has its colour
        assert.deepEqual([scheme, name, await findings(page)], [scheme, name, []]);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), `${name} is too wide`);
      }
    }
  }, viewport);

await end();
