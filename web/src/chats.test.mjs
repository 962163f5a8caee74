// Conversations, what the browser keeps of them, and the cluster's numbers. node --test src/
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseMetrics } from "./api.js";
import { addChunk, Chats, continuedMessages, requestMessages, speedOf } from "./chats.js";
import { fromJson, toJson } from "./exchange.js";
import { clusterOf } from "./status.js";
import { loadConversations, MAX_CONVERSATIONS, memoryStorage, saveConversation } from "./store.js";
import { pathOf } from "./tree.js";

/* localStorage with room for so many characters. */
function fakeStorage(room = Infinity) {
  const storage = memoryStorage();
  const { setItem } = storage;
  storage.room = room;
  storage.setItem = (key, value) => {
    let used = value.length;
    for (let i = 0; i < storage.length; i++) if (storage.key(i) !== key) used += storage.getItem(storage.key(i)).length;
    if (used > storage.room) throw new Error("QuotaExceededError");
    setItem(key, value);
  };
  return storage;
}

const conversation = (id, changed, text = "hi") => ({ id, changed, messages: [{ role: "user", content: text }] });
const delta = (fields) => ({ choices: [{ delta: fields, finish_reason: null }] });
const user = (content) => ({ role: "user", content });
const assistant = (content) => ({ role: "assistant", content, reasoning: "" });

test("only so many conversations are kept, the latest", () => {
  const storage = fakeStorage();
  for (let i = 0; i < MAX_CONVERSATIONS + 5; i++) assert.ok(saveConversation(storage, conversation(`c${i}`, i)));
  const kept = loadConversations(storage);
  assert.equal(kept.length, MAX_CONVERSATIONS);
  assert.equal(kept[0].id, `c${MAX_CONVERSATIONS + 4}`);
  storage.setItem("lockstep.chat.broken", "{");
  assert.equal(loadConversations(storage).length, MAX_CONVERSATIONS);
});

test("older conversations make room, and it is said when there is none", () => {
  const storage = fakeStorage(400);
  for (let i = 0; i < 3; i++) assert.ok(saveConversation(storage, conversation(`c${i}`, i, "x".repeat(80))));
  assert.ok(saveConversation(storage, conversation("long", 9, "x".repeat(200))));
  assert.equal(loadConversations(storage)[0].id, "long");
  assert.ok(!loadConversations(storage).some((c) => c.id === "c0"));
  assert.equal(saveConversation(storage, conversation("longer", 10, "x".repeat(500))), false);
});

test("what has no room takes nothing away, and stays while the page is open", async () => {
  const storage = fakeStorage(1000);
  for (let i = 0; i < 3; i++) assert.ok(saveConversation(storage, conversation(`c${i}`, i, "x".repeat(80))));
  const before = loadConversations(storage);
  assert.equal(saveConversation(storage, conversation("long", 9, "x".repeat(2000))), false);
  assert.deepEqual(loadConversations(storage), before);
  let done;
  const chats = new Chats({ storage, ask: async function* () {}, changed: () => chats?.runs.size === 0 && done?.() });
  const id = chats.send(undefined, "x".repeat(2000));
  await new Promise((resolve) => (done = resolve));
  assert.ok(chats.unkept.has(id));
  chats.reload(); // another tab kept something
  assert.deepEqual(chats.conversations.map((c) => c.id), [id, "c2", "c1", "c0"]);
  storage.room = Infinity; // somebody else has gone
  chats.rename(id, "kept");
  assert.ok(!chats.unkept.has(id));
  assert.equal(loadConversations(storage).length, 4);
});

test("an answer grows by its chunks, and its speed is known", () => {
  const run = { started: 0, first: null, last: null, pieces: 0, tokens: null, lost: true };
  let answer = assistant("");
  answer = addChunk(answer, run, delta({ reasoning_content: "Hm." }), 500);
  answer = addChunk(answer, run, delta({ content: "Yes" }), 1000);
  answer = addChunk(answer, run, { choices: [{ delta: { content: "." }, finish_reason: "length" }] }, 1500);
  answer = addChunk(answer, run, { choices: [], usage: { completion_tokens: 11 } }, 1600);
  assert.deepEqual([answer.content, answer.reasoning, run.lost], ["Yes.", "Hm.", false]);
  assert.match(answer.note, /limit of tokens/);
  assert.deepEqual(answer.speed, { first_s: 0.5, rate: 10 });
  assert.equal(speedOf({ started: 0, first: null }), null);
});

test("questions without an answer are not asked again", () => {
  const messages = [user("a"), assistant("A"), user("failed"), assistant(""), user("b")];
  assert.deepEqual(requestMessages(messages).map((m) => m.content), ["a", "A", "b"]);
});

test("a conversation is asked, stopped, asked again and kept", async () => {
  const storage = fakeStorage();
  const asked = [];
  let changed = () => {};
  async function* ask(messages, signal) {
    asked.push(messages.map((m) => m.content));
    yield delta({ content: "first" });
    if (asked.length === 1) await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  }
  const until = (condition) =>
    new Promise((resolve) => {
      changed = () => condition() && resolve();
      changed();
    });
  const chats = new Chats({ storage, ask, changed: () => changed() });
  const id = chats.send(undefined, "hi");
  await until(() => chats.get(id).messages.at(-1).content === "first");
  chats.stop(id);
  await until(() => !chats.runs.has(id));
  assert.match(chats.get(id).messages.at(-1).note, /stopped/);
  chats.again(id);
  await until(() => !chats.runs.has(id));
  chats.edit(id, 0, "hello");
  await until(() => !chats.runs.has(id));
  assert.deepEqual(asked, [["hi"], ["hi"], ["hello"]]);
  const [kept] = loadConversations(storage);
  assert.deepEqual(pathOf(kept).map((i) => kept.messages[i].content), ["hello", "first"]);
  assert.deepEqual(kept.messages.map((m) => [m.content, m.parent]), [["hi", -1], ["first", 0], ["first", 0], ["hello", -1], ["first", 3]]);
  chats.choose(id, 0);
  assert.deepEqual(pathOf(chats.get(id)), [0, 2]);
  chats.choose(id, 1);
  assert.deepEqual(pathOf(loadConversations(storage)[0]), [0, 1]);
});

/* Conversations before a server that says these pieces, and then what is left of `fail`. */
function fakeChats(answers, storage = fakeStorage()) {
  const asked = [];
  let idle = () => {};
  const ask = async function* (messages, signal, continuing) {
    asked.push({ messages, continuing });
    for (const piece of answers[asked.length - 1] ?? ["?"]) {
      if (piece instanceof Error) throw piece;
      yield delta({ content: piece });
    }
  };
  const chats = new Chats({ storage, ask, changed: () => chats?.runs.size === 0 && idle() });
  return { asked, storage, chats, done: () => new Promise((resolve) => (idle = resolve)) };
}

test("an answer goes on where it ended", async () => {
  const { asked, chats, done } = fakeChats([["Half", new Error("gone")], [" and half"]]);
  const id = chats.send(undefined, "hi");
  await done();
  assert.equal(chats.shown(id)[1].error, "gone");
  chats.goOn(id);
  await done();
  assert.deepEqual(asked[1], { messages: [user("hi"), { role: "assistant", content: "Half" }], continuing: true });
  const [, answer] = chats.shown(id);
  assert.deepEqual([answer.content, answer.error, answer.tokens], ["Half and half", undefined, 2]);
  assert.equal(chats.get(id).messages.length, 2);
  assert.deepEqual(continuedMessages([user("hi"), { ...assistant("a"), reasoning: "r" }])[1].reasoning_content, "r");
});

test("an answer of nothing makes way for the next one", async () => {
  const { chats, done } = fakeChats([[new Error("no")], ["yes"]]);
  const id = chats.send(undefined, "hi");
  await done();
  chats.again(id);
  await done();
  assert.deepEqual(chats.get(id).messages.map((m) => m.content), ["hi", "yes"]);
});

test("several conversations are answered at once, and the ones that nobody saw are known", async () => {
  const { chats, done } = fakeChats([["a"], ["b"]]);
  const ids = [chats.send(undefined, "one"), chats.send(undefined, "two")];
  assert.equal(chats.runs.size, 2);
  await done();
  assert.deepEqual([...chats.unseen].sort(), [...ids].sort());
  chats.see(ids[0]);
  assert.deepEqual(ids.map((id) => [chats.shown(id)[1].content, chats.unseen.has(id)]), [["a", false], ["b", true]]);
});

test("files go before the question, in a fence that they cannot end", async () => {
  const { asked, chats, done } = fakeChats([["a"]]);
  const id = chats.send(undefined, "What is it?", [{ name: "a.md", size: 9, text: "```\nx\n```" }]);
  await done();
  assert.equal(asked[0].messages[0].content, "File a.md:\n\n````\n```\nx\n```\n````\n\nWhat is it?");
  assert.equal(chats.shown(id)[0].content, "What is it?");
  chats.edit(id, 0, "And now?");
  await done();
  assert.match(asked[1].messages[0].content, /^File a.md[^]*And now\?$/);
});

test("conversations go out and come in again, each once", async () => {
  const first = fakeChats([["a"], ["b"]]);
  const id = first.chats.send(undefined, "hi");
  await first.done();
  first.chats.again(id);
  await first.done();
  first.chats.rename(id, " A name ");
  const file = toJson(first.chats.conversations);
  const second = fakeChats([]);
  assert.equal(second.chats.import(fromJson(file)), 1);
  assert.equal(second.chats.import(fromJson(file)), 0);
  assert.deepEqual(second.chats.get(id).messages.map((m) => m.content), ["hi", "a", "b"]);
  assert.equal(second.chats.get(id).title, "A name");
  second.chats.edit(id, 0, "other");
  await second.done();
  assert.equal(second.chats.import(fromJson(file)), 1);
  assert.equal(loadConversations(second.storage).length, 2);
});

test("shares of the time are between two samples, and unknown after a recovery", () => {
  const at = (s0, s1) => parseMetrics(`lockstep_ranks 2
lockstep_rank_resident_bytes{rank="0"} 5
lockstep_rank_resident_bytes{rank="1"} 6
lockstep_rank_compute_seconds_total{rank="0"} ${s0}
lockstep_rank_compute_seconds_total{rank="1"} ${s1}
`);
  const { ranks, n_ranks } = clusterOf(at(3, 0.5), at(2, 9), 2);
  assert.equal(n_ranks, 2);
  assert.deepEqual(ranks.map((r) => [r.rank, r.bytes, r.kernels]), [["0", 5, 0.5], ["1", 6, null]]);
  assert.equal(clusterOf(at(3, 1), null, 0).ranks[0].kernels, null);
});
