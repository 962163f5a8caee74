// The chat page: questions, answers, conversations, the state of the server. node page.mjs URL
import assert from "node:assert/strict";
import { answered, answers, ask, box, button, check, completions, delta, end, event, fakeAnswer, url } from "./harness.mjs";

const question = "What is a bit bucket?";

await check("a question is answered as it streams", async (page) => {
  await page.goto(url);
  await ask(page, question);
  assert.match(await answered(page), /bit bucket/);
  assert.match(await page.locator("header, .top").first().innerText(), /jargon-3m-f16[^]*tokens\/s[^]*first token after/);
  await page.getByText("2 ranks").first().waitFor();
});
await check("stop, again, edit", async (page) => {
  await page.goto(url);
  let release;
  const held = new Promise((r) => (release = r));
  await page.route(completions, async (route) => {
    await held; // an answer that does not come
    await route.abort().catch(() => {});
  });
  await ask(page, question);
  await button(page, "Stop").click();
  await page.getByText("You stopped this answer.").waitFor();
  release();
  await page.unroute(completions);
  await button(page, /again|regenerate/i).last().click();
  const first = await answered(page);
  assert.match(first, /bit bucket/);
  await button(page, "Edit").click();
  await page.getByRole("textbox", { name: "Edit the question" }).fill("Define kluge.");
  await page.keyboard.press("Enter");
  assert.notEqual(await answered(page), first);
  assert.equal(await answers(page).count(), 1);
});
await check("conversations are kept, begun and deleted", async (page) => {
  const list = page.getByRole("navigation", { name: "Conversations" });
  await page.goto(url);
  await ask(page, question);
  const said = await answered(page);
  await page.reload();
  await list.getByText(question).click();
  assert.equal(await answers(page).last().innerText(), said);
  await page.getByRole("link", { name: "New chat" }).click();
  await page.getByText("What would you like to know?").waitFor();
  await ask(page, "Define kluge.");
  await answered(page);
  await button(page, `More: ${question}`).click();
  await button(page, "Delete").click();
  await list.getByText(question).waitFor({ state: "detached" });
  assert.equal(await list.getByRole("listitem").count(), 1);
});
await check("without room nothing is lost", async (page) => {
  await page.goto(url);
  await fakeAnswer(page, delta("Yes.") + "data: [DONE]\n\n");
  await ask(page, "First?");
  await answered(page);
  await page.evaluate(() => {
    for (let size = 1 << 22, i = 0; size > 0; size >>= 1, i++) // another page of this address is greedy
      try {
        localStorage.setItem(`greed${i}`, "x".repeat(size));
      } catch {}
  });
  await page.getByRole("link", { name: "New chat" }).click();
  await ask(page, `Second? ${"x".repeat(3000)}`);
  await page.getByRole("alert").getByText("no room").waitFor();
  await page.evaluate(() => dispatchEvent(new StorageEvent("storage"))); // as when another tab keeps something
  await page.getByRole("navigation").getByText("First?").click();
  await page.getByRole("navigation").getByText("Second?").waitFor();
  await page.reload();
  await page.getByRole("navigation").getByText("First?").waitFor();
});
await check("the page says how many conversations are kept", async (page) => {
  const limit = page.getByRole("navigation").getByText("Only 50 conversations are kept");
  const keep = (from, to) =>
    page.evaluate(
      ([begin, end]) => {
        for (let i = begin; i < end; i++) {
          const conversation = { id: `c${i}`, changed: i, messages: [{ role: "user", content: `Number ${i}` }] };
          localStorage.setItem(`lockstep.chat.c${i}`, JSON.stringify(conversation));
        }
      },
      [from, to],
    );
  await page.goto(url);
  await keep(0, 49);
  await page.reload();
  await page.getByRole("navigation").getByText("Number 48").waitFor();
  assert.equal(await limit.count(), 0);
  await keep(49, 50);
  await page.reload();
  await limit.waitFor();
});
await check("an answer is text, never a program", async (page) => {
  await page.goto(url);
  const evil = "<script>window.pwned = 1</script> <img src=x onerror='window.pwned = 1'> [x](javascript:window.pwned=1)\n\n**bold**";
  await fakeAnswer(page, delta(evil) + "data: [DONE]\n\n");
  await ask(page, "Do evil.");
  await answers(page).last().locator("strong", { hasText: "bold" }).waitFor();
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  assert.equal(await answers(page).last().locator("img, script, a[href^='javascript']").count(), 0);
});
await check("what looks like a tag is read as it was said", async (page) => {
  await page.goto(url);
  const said = [
    "Use #include <iostream>, std::vector<int>, Box<A>, the <input name='*x*'> tag, <!-- a remark --> & if (a <b && c> d).",
    "<answer>\nIt is **bold**.\n</answer>",
    "<div>\n  <p>one</p>\n</div>",
    "- <think>hm</think> x<sub>2</sub>, <kbd>a <x> b</kbd>, <script>if (a<b) c()</script> 1 < 2",
    "<details><summary>More</summary>of <this></details>",
    "Mail <a@b.example>, see <http://c.example>, `<code>`.",
  ];
  await fakeAnswer(page, delta(said.join("\n\n")) + "data: [DONE]\n\n");
  await ask(page, "Tags?");
  await answered(page);
  const shown = (await answers(page).last().locator(".markdown").textContent()).replace(/\s+/g, " ");
  for (const text of [
    "Use #include <iostream>, std::vector<int>, Box<A>, the <input name='*x*'> tag, <!-- a remark --> & if (a <b && c> d).",
    "<answer> It is bold. </answer>",
    "<div> one </div>",
    "<think>hm</think> x2, a <x> b, <script>if (a<b) c()</script> 1 < 2",
    "Moreof <this>",
    "Mail a@b.example, see http://c.example, <code>.",
  ])
    assert.ok(shown.includes(text), `${text} in ${shown}`);
  const tags = await answers(page).last().locator(".markdown").evaluate((e) => [...e.querySelectorAll("*")].map((x) => x.localName));
  for (const tag of ["strong", "sub", "kbd", "details", "a", "code"]) assert.ok(tags.includes(tag), tag);
});
await check("an answer of nothing but markers does not take the page away, nor its conversation", async (page) => {
  await page.goto(url);
  await fakeAnswer(page, delta("1. ".repeat(9000)) + delta("!".repeat(9000) + " the end") + "data: [DONE]\n\n");
  await ask(page, "Go mad.");
  assert.match(await answered(page), /1\. 1\. 1\..*!!! the end/);
  await page.reload();
  await answers(page).last().getByText("!!! the end").waitFor();
});
await check("code can be copied, thinking is folded", async (page) => {
  await page.goto(url);
  const thought = event({ choices: [{ index: 0, delta: { reasoning_content: "Hm, hm." } }] });
  await fakeAnswer(page, thought + delta("```c\nint x;\n```") + "data: [DONE]\n\n");
  await ask(page, "Code?");
  await button(page, "Copy").first().waitFor();
  assert.equal(await answers(page).locator("pre[data-language=c]").count(), 1);
  assert.equal(await page.getByText("Hm, hm.").isVisible(), false);
  await page.locator("summary", { hasText: "Thinking" }).click();
  await page.getByText("Hm, hm.").waitFor();
});
await check("what the server refuses is said, and can be asked again", async (page) => {
  await page.goto(url);
  await fakeAnswer(page, JSON.stringify({ error: { message: "the model has a headache" } }), 500, "application/json");
  await ask(page, question);
  await page.getByRole("alert").getByText("the model has a headache").waitFor();
  await page.unroute(completions);
  await fakeAnswer(page, delta("Half of") + event({ error: { message: "rank 1 is gone" } }));
  await ask(page, "And now?");
  await page.getByText("rank 1 is gone").waitFor();
  await page.getByText("Half of").waitFor();
  await page.unroute(completions);
  await ask(page, question);
  assert.match(await answered(page), /Regenerate$/);
});
await check("a key is asked for, and sent", async (page) => {
  await page.goto(url);
  await page.route(completions, (route) =>
    route.request().headers().authorization === "Bearer sesame"
      ? route.fallback()
      : route.fulfill({ status: 401, contentType: "application/json", body: '{"error":{"message":"an API key is needed"}}' }));
  await ask(page, question);
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("API key").fill("\u201csesame\u201d"); // as word processors quote it
  await dialog.locator("button[type=submit]").click();
  await dialog.getByText("It does not take the one it was given.").waitFor();
  await dialog.getByLabel("API key").fill("sesame");
  await dialog.locator("button[type=submit]").click();
  await dialog.waitFor({ state: "hidden" });
  if ((await button(page, "Stop").count()) === 0 && !/bit bucket: /.test(await answers(page).last().innerText()))
    await button(page, /again|regenerate/i).last().click();
  await page.waitForFunction(() => /universal data sink/.test([...document.querySelectorAll("article.answer")].at(-1)?.innerText ?? ""));
});
await check("a lost rank is told while the answer waits", async (page) => {
  await page.goto(url);
  await page.route("**/health?*", (route) =>
    route.fulfill({ status: 503, contentType: "application/json", body: '{"status":"recovering","why":"rank 1 is gone"}' }));
  let release;
  const held = new Promise((r) => (release = r));
  await page.route(completions, async (route) => {
    await held;
    await route.fallback();
  });
  await ask(page, question);
  await page.getByText(/a rank was lost/i).waitFor();
  await page.getByRole("status").getByText(/recovering/).waitFor();
  release();
  assert.match(await answered(page), /bit bucket/);
  assert.equal(await page.getByText(/a rank was lost/i).count(), 0);
});
await check("settings are sent, empty ones are not", async (page) => {
  await page.goto(url);
  let sent;
  await page.route(completions, async (route) => {
    sent = route.request().postDataJSON();
    await route.fallback();
  });
  await button(page, "Settings").click();
  await page.getByLabel("System prompt").fill("Be brief.");
  await page.getByLabel("Most tokens of an answer").fill("5");
  await page.keyboard.press("Escape");
  await ask(page, question);
  await answered(page);
  assert.deepEqual(sent.messages[0], { role: "system", content: "Be brief." });
  assert.equal(sent.max_tokens, 5);
  assert.ok(!("temperature" in sent) && !("seed" in sent));
});
await check("of several models one is chosen, and asked", async (page) => {
  const asked = new Set();
  await page.route("**/v1/models", (route) =>
    route.fulfill({ contentType: "application/json", body: '{"data": [{"id": "ann"}, {"id": "b&b"}]}' }));
  await page.route(/\/(health|metrics)\?model=/, (route) => {
    asked.add(new URL(route.request().url()).searchParams.get("model"));
    return route.fallback();
  });
  const sent = [];
  await page.route(completions, async (route) => {
    sent.push(route.request().postDataJSON().model);
    await route.fulfill({ contentType: "text/event-stream", body: delta("Yes.") + "data: [DONE]\n\n" });
  });
  await page.goto(url);
  await page.getByLabel("Model").waitFor();
  await ask(page, question);
  await answered(page);
  await page.getByLabel("Model").selectOption("b&b");
  await page.waitForFunction(() => document.querySelector(".status select").value === "b&b");
  await ask(page, question);
  await answered(page);
  assert.deepEqual(sent, ["ann", "b&b"]);
  await page.reload();
  await page.waitForFunction(() => document.querySelector(".status select")?.value === "b&b");
  assert.deepEqual([...asked].sort(), ["ann", "b&b"]);
  await page.unroute("**/v1/models");
  await page.locator("header strong", { hasText: "jargon-3m-f16" }).waitFor();
});
await check("no other model answers for one that is down", async (page) => {
  let listed = ["ann", "bob"];
  let isUp = () => true;
  let sent = [];
  let polls = 0;
  await page.route("**/v1/models", (route) => {
    polls++;
    return route.fulfill({ contentType: "application/json", body: JSON.stringify({ data: listed.map((id) => ({ id })) }) });
  });
  await page.route(/\/health(\?|$)/, async (route) => {
    const name = new URL(route.request().url()).searchParams.get("model") ?? "";
    const status = !["", "ann", "bob"].includes(name) ? 404 : isUp(name) ? 200 : 503;
    const body = { 200: { status: "ok" }, 404: { error: { message: "no such model" } }, 503: { status: "unhealthy", why: "nobody" } };
    await route.fulfill({ status, contentType: "application/json", body: JSON.stringify(body[status]) });
  });
  await page.route(completions, async (route) => {
    sent.push(route.request().postDataJSON().model);
    await route.fulfill({ contentType: "text/event-stream", body: delta("Yes.") + "data: [DONE]\n\n" });
  });
  const state = page.locator(".status .state");
  const aPollLater = async () => {
    for (const end = polls + 1; polls < end; ) await page.waitForResponse("**/v1/models");
  };
  await page.goto(url);
  await page.getByLabel("Model").selectOption("bob");
  await state.getByText("ok").waitFor();
  for (const left of [["ann", "bob"], ["ann"]]) {
    [listed, isUp, sent] = [left, (name) => name !== "bob", []];
    await state.getByText("unhealthy: nobody").waitFor();
    for (let i = 0; i < 2; i++) {
      await aPollLater();
      assert.equal(await state.innerText(), "unhealthy: nobody");
      assert.equal(await page.getByLabel("Model").inputValue(), "bob");
      await ask(page, question);
      await answered(page);
    }
    assert.deepEqual(sent, ["bob", "bob"]);
    await page.reload(); // it is remembered, and still down
  }
  await page.getByLabel("Model").selectOption("ann");
  await state.getByText("ok").waitFor();
  await page.evaluate(() => localStorage.setItem("lockstep.settings", '{"model": "gone"}'));
  await page.reload();
  await page.locator("header strong", { hasText: "ann" }).waitFor();
  await state.getByText("ok").waitFor();
});
await check("the model that was chosen is asked before the server has listed it", async (page) => {
  await page.goto(url);
  await page.evaluate(() => localStorage.setItem("lockstep.settings", '{"model": "bob"}'));
  await page.route(/\/health(\?|$)/, () => {}); // no answer
  let sent;
  await page.route(completions, async (route) => {
    sent = route.request().postDataJSON().model;
    await route.fulfill({ contentType: "text/event-stream", body: delta("Yes.") + "data: [DONE]\n\n" });
  });
  await page.reload();
  await ask(page, question);
  await answered(page);
  assert.equal(sent, "bob");
});
await check("text goes the way of its script, code does not", async (page) => {
  await page.goto(url);
  const paragraph = "\u05de\u05d4 \u05d6\u05d4 bit bucket?";
  await fakeAnswer(page, delta(`${paragraph}\n\n- ${paragraph}\n\n\`\`\`c\n// ${paragraph}\n\`\`\`\n\nLatin.`) + "data: [DONE]\n\n");
  const direction = (place) => place.evaluate((e) => getComputedStyle(e).direction);
  await box(page).fill(paragraph);
  assert.equal(await direction(box(page)), "rtl");
  await box(page).press("Enter");
  await answered(page);
  const answer = answers(page).last();
  assert.equal(await direction(page.locator(".question p")), "rtl");
  assert.equal(await direction(page.getByRole("navigation").getByRole("link")), "rtl");
  assert.deepEqual(await Promise.all(["p >> nth=0", "li", "pre", "p >> nth=1"].map((s) => direction(answer.locator(`.markdown ${s}`)))),
    ["rtl", "rtl", "ltr", "ltr"]);
});
await check("keys of a method of input are its own", async (page) => {
  await page.goto(url);
  await fakeAnswer(page, delta("Yes.") + "data: [DONE]\n\n");
  const press = (place, init) =>
    place.evaluate((e, fields) => e.dispatchEvent(new KeyboardEvent("keydown", { bubbles: true, cancelable: true, ...fields })), init);
  await box(page).fill("\u306b\u307b\u3093");
  await press(box(page), { key: "Enter", isComposing: true });
  await press(box(page), { key: "Enter", keyCode: 229 }); // Safari's
  await page.evaluate(() => new Promise(requestAnimationFrame)); // it would be sent by then
  assert.equal(await box(page).inputValue(), "\u306b\u307b\u3093");
  await box(page).press("Enter");
  await answered(page);
  await button(page, "Edit").click();
  const edit = page.getByRole("textbox", { name: "Edit the question" });
  await edit.fill("\u306b");
  await press(edit, { key: "Escape", isComposing: true });
  await press(edit, { key: "Escape", keyCode: 229 });
  assert.equal(await edit.inputValue(), "\u306b");
});
await check("on a narrow screen", async (page) => {
  await page.goto(url);
  assert.equal(await page.getByRole("link", { name: "New chat" }).isVisible(), false);
  await ask(page, question);
  assert.match(await answered(page), /bit bucket/);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth));
  await button(page, "Conversations and settings").click();
  await page.getByRole("link", { name: "New chat" }).click();
  await page.getByText("What would you like to know?").waitFor();
}, { width: 360, height: 640 });
await end();
