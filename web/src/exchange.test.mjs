// Trees of messages, files of conversations, files that go with questions. node --test src/
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileName, fromJson, mentions, toJson, toMarkdown } from "./exchange.js";
import { MAX_FILE, MAX_FILES, takeFiles, textOf } from "./files.js";
import { samplingOf, withoutSampling } from "./samplers.js";
import { choosing, isConversation, pathOf, titleOf, versionsOf, withMessage } from "./tree.js";

const message = (role, content, parent) => ({ role, content, ...(parent === undefined ? {} : { parent }) });
const old = { id: "a", changed: 1, messages: [message("user", "q"), message("assistant", "a"), message("user", "r"), message("assistant", "b")] };

test("a conversation without branches is a path", () => {
  assert.ok(isConversation(old));
  assert.deepEqual(pathOf(old), [0, 1, 2, 3]);
  assert.deepEqual(versionsOf(old.messages, 1), [1]);
});

test("versions lie beside each other, and each has what followed it", () => {
  const again = withMessage(old, 0, message("assistant", "c"));
  assert.deepEqual(pathOf(again), [0, 4]);
  assert.deepEqual(versionsOf(again.messages, 4), [1, 4]);
  assert.deepEqual(pathOf(choosing(again, 1)), [0, 1, 2, 3]);
  const edited = withMessage(again, 1, message("user", "s"));
  assert.deepEqual(pathOf(edited), [0, 1, 5]);
  assert.deepEqual(versionsOf(edited.messages, 5), [2, 5]);
  assert.deepEqual(pathOf(choosing(choosing(edited, 4), 1)), [0, 1, 5]); // what was added last
});

test("what is no tree is no conversation", () => {
  const bad = [
    { ...old, messages: [] },
    { ...old, messages: [message("user", "q", 0)] },
    { ...old, messages: [message("user", "q", -2)] },
    { ...old, messages: [message("user", "q", "0")] },
    { ...old, messages: [message("system", "q")] },
    { ...old, messages: [{ role: "user" }] },
    { ...old, leaf: 4 },
    { ...old, leaf: -1 },
    { ...old, leaf: null },
    { ...old, id: 1 },
    null,
  ];
  for (const c of bad) assert.ok(!isConversation(c), JSON.stringify(c));
});

test("a file of conversations is read with care", () => {
  assert.deepEqual(fromJson(toJson([old])).map((c) => c.messages.map((m) => m.content)), [["q", "a", "r", "b"]]);
  for (const [text, sentence] of [
    ["{", /not JSON/],
    ["null", /no conversations of lockstep/],
    ['{"format": "lockstep-conversations", "version": 2, "conversations": []}', /newer/],
    ['{"format": "lockstep-conversations", "version": 1, "conversations": [{"id": "x"}]}', /no conversation in/],
  ])
    assert.throws(() => fromJson(text), sentence);
  const odd = { ...old, id: '"><b>', title: 7, extra: 1, messages: [{ role: "assistant", content: "x", model: 5, speed: { first_s: "1" }, files: [1], evil: {} }] };
  assert.deepEqual(fromJson(toJson([odd])), [{ id: "b", changed: 1, messages: [{ role: "assistant", content: "x", model: "5", reasoning: "" }] }]);
});

test("Markdown has the path that is shown", () => {
  const c = withMessage({ ...old, title: "On *bits*" }, 0, { role: "assistant", content: "c", model: "m", reasoning: "Hm.", note: "You stopped this answer." });
  assert.equal(
    toMarkdown(c),
    "# On *bits*\n\n## Question\n\nq\n\n## Answer of m\n\n<details>\n<summary>Thinking</summary>\n\nHm.\n\n</details>\n\nc\n\n*You stopped this answer.*\n",
  );
  assert.equal(fileName({ ...old, title: "../a b?" }, "md"), "a-b.md");
  assert.equal(fileName({ ...old, title: "??" }, "json"), "conversation.json");
  assert.equal(titleOf({ messages: [{ role: "user", content: "", files: [{ name: "x.c" }] }] }), "x.c");
});

test("conversations are found by what is said in them", () => {
  assert.ok(mentions(old, " B ") && mentions({ ...old, title: "Zebra" }, "zeb") && mentions(old, ""));
  assert.ok(!mentions(old, "zebra"));
});

test("files are text, and not too large", async () => {
  assert.equal(textOf(new TextEncoder().encode("\u00e4\r\nb")), "\u00e4\nb");
  assert.equal(textOf(new Uint8Array([0x89, 0x50, 0x4e, 0x47])), null);
  assert.equal(textOf(new Uint8Array([65, 0])), null);
  const file = (name, text) => new File([text], name);
  const { files, problems } = await takeFiles([], [file("a", "x"), file("b", "x".repeat(MAX_FILE + 1)), file("c", "\0")]);
  assert.deepEqual([files.map((f) => f.name), problems.map((p) => p.split(" ")[0])], [["a"], ["b", "c"]]);
  const full = [{ name: "f", size: MAX_FILES, text: "" }];
  assert.match((await takeFiles(full, [file("d", "x")])).problems[0], /together/);
});

test("samplers that are empty, or no number, are left to the server", () => {
  const settings = { temperature: "0", top_k: " 40 ", min_p: "", dry_multiplier: "x", xtc_probability: "0.5", thinking: "low", system: "s", nothing: "1" };
  assert.deepEqual(samplingOf(settings), { temperature: 0, top_k: 40, xtc_probability: 0.5, reasoning_effort: "low" });
  assert.deepEqual(samplingOf({ thinking: "evil" }), {});
  assert.deepEqual(withoutSampling(settings), { thinking: "low", system: "s", nothing: "1" });
});
