// Formulas, code and tables in answers, and hostile ones of them. node rich.mjs URL
import assert from "node:assert/strict";
import { answered, answers, ask, check, complaints, delta, DONE, end, fakeAnswer, url } from "./harness.mjs";

async function say(page, text) {
  await fakeAnswer(page, delta(text) + DONE);
  await ask(page, "Say it.");
  await answered(page);
  return answers(page).last();
}

/* The files that the page asks for, by the first word of their names. */
function files(page) {
  const asked = [];
  page.on("request", (r) => /\/page\//.test(r.url()) && asked.push(/\/page\/(\w+)/.exec(r.url())[1]));
  return asked;
}

await check("formulas are drawn, money is not one", async (page) => {
  const asked = files(page);
  await page.goto(url);
  const plain = await say(page, "It costs $5 and $6. **Bold.**");
  assert.match(await plain.innerText(), /It costs \$5 and \$6\. Bold\./);
  assert.deepEqual(asked, []);
  await page.unroute("**/v1/chat/completions");
  const answer = await say(
    page,
    "So $x_1*y_2$ and \\(a_1*b_2\\).\n\n$$\n\\frac{1}{2}\n$$\n\n\\[ \\sum_{i=1}^n i \\]\n\n| a | b |\n|---|---|\n| $z^2$ | 2 |\n\n`$code$`",
  );
  await answer.locator("math").nth(4).waitFor();
  assert.equal(await answer.locator("math msub").count(), 4);
  assert.equal(await answer.locator("math[display=block] mfrac").count(), 1);
  assert.equal(await answer.locator("math[display=block] munderover").count(), 1);
  assert.equal(await answer.locator("td math msup").count(), 1);
  assert.equal(await answer.locator("em, annotation").count(), 0);
  assert.equal(await answer.locator("code").innerText(), "$code$");
  assert.deepEqual(asked, ["math"]);
});
await check("what is no TeX is shown as it was said", async (page) => {
  await page.goto(url);
  const answer = await say(page, "See $\\frac{1}$ and $ok^2$ and \\(\\nosuchthing{x}\\).");
  await answer.locator("math").waitFor();
  assert.match(await answer.innerText(), /See \$\\frac\{1\}\$ and [^]* and \\\(\\nosuchthing\{x\}\\\)\./);
});
await check("code has colours and keeps every letter", async (page) => {
  const asked = files(page);
  await page.goto(url);
  const code = "int main(void) {\n    return 0; /* <b> & \"x\" */\n}";
  const answer = await say(page, `\`\`\`c\n${code}\n\`\`\`\n\n\`\`\`nosuch\nint x;\n\`\`\`\n\n\`\`\`\nint y;\n\`\`\``);
  await answer.locator("pre .hljs-comment").waitFor();
  assert.equal(await answer.locator("pre").first().evaluate((e) => e.textContent), code);
  assert.equal(await answer.locator("pre").nth(1).locator("span").count(), 0);
  assert.equal(await answer.locator("pre").nth(2).locator("span").count(), 0);
  assert.deepEqual(asked, ["code"]);
});
await check("hostile formulas and code are harmless", async (page) => {
  await page.goto(url);
  const before = complaints.length;
  let ran = false;
  await page.exposeFunction("pwn", () => (ran = true));
  const img = "<img src=x onerror='pwn()'>";
  const answer = await say(
    page,
    [
      "$\\href{javascript:pwn()}{x}$ $\\url{javascript:pwn()}$ $\\includegraphics{http://127.0.0.1:1/x.png}$",
      `$\\text{${img}}$ $$\\text{</math><script>pwn()</script>${img}}$$`,
      "$\\htmlData{onclick=pwn()}{x}$ $\\htmlStyle{background:url(http://127.0.0.1:1/)}{x}$ $\\class{x}{y}$",
      `<math><mtext><table><mglyph><style><!--</style>${img}</mglyph></table></mtext></math>`,
      `<math><annotation-xml encoding="text/html">${img}</annotation-xml></math>`,
      `<span lang="tex">$\\text{${img}}$</span> <span lang="tex">${img}</span> <span class="formula" style="position:fixed">x</span>`,
      `\`\`\`html\n${img}<script>pwn()</script>\n</code></pre>${img}\n\`\`\``,
      `\`\`\`"><img/src=x/onerror=pwn()>\nx\n\`\`\``,
      "```__proto__\nx\n```\n\n```constructor\nx\n```",
      "$\\def\\a{\\a\\a}\\a$ $\\rule{9999em}{9999em}$ $" + "{".repeat(900) + "}".repeat(900) + "$",
      "$ok^2$",
    ].join("\n\n"),
  );
  await answer.getByText("ok").last().waitFor();
  await answer.locator("math msup").waitFor();
  await answer.locator("pre .hljs-tag").first().waitFor();
  const bad = await answer.evaluate((e) => [...e.querySelectorAll("*")]
    .filter((x) => /^(script|img|style|iframe|object|svg|form|input|link|annotation-xml|mglyph)$/.test(x.localName)
      || [...x.attributes].some((a) => /^on|^style$|^(xlink:)?href$|^src$/.test(a.name)))
    .map((x) => x.outerHTML));
  assert.deepEqual([ran, bad], [false, []]);
  complaints.splice(before); // of the style that the policy refused
  assert.ok(await answer.evaluate((e) => e.scrollWidth <= e.clientWidth));
});
await check("a file that is not the one that was built does not run", async (page) => {
  await page.goto(url);
  await page.route("**/page/math-*", (route) => route.fulfill({ contentType: "text/javascript", body: "window.pwned = 1" }));
  const before = complaints.length;
  const answer = await say(page, "So $x_1*y_2$.");
  for (let i = 0; i < 100 && complaints.length === before; i++) await new Promise((r) => setTimeout(r, 50));
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  assert.match(await answer.innerText(), /So \$x_1\*y_2\$\./);
  assert.ok(complaints.splice(before).some((c) => /script/.test(c)), "the browser says that it was refused");
});
await check("a wide table moves in itself", async (page) => {
  await page.goto(url);
  const row = `|${" a long word or two |".repeat(12)}`;
  const answer = await say(page, `${row}\n|${"---|".repeat(12)}\n${row}\n\n$$${"x+".repeat(80)}x$$`);
  await answer.locator("math").waitFor();
  const frame = answer.getByRole("group", { name: "Table" });
  assert.ok(await frame.evaluate((e) => e.scrollWidth > e.clientWidth));
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth));
  await frame.focus();
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction(() => document.querySelector(".wide").scrollLeft > 0);
}, { width: 360, height: 640 });

await end();
