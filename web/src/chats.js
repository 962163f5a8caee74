// chats.js: the conversations and the answers that are under way, one for each conversation at most. Knows nothing of
// the page: who shows it passes `changed`, which is called after every change. Conversations and messages are
// never changed in place, so that what is the same object shows the same.
//
// A conversation: {id, changed, messages}, and {title, leaf} if it has them (tree.js). A message: {role, content, parent}, a
// question's also with {files} (files.js), an answer's with {reasoning, model, speed, tokens, at, note, error}.
import { withFiles } from "./files.js";
import { loadConversations, removeConversation, saveConversation } from "./store.js";
import { choosing, parentOf, pathOf, withMessage } from "./tree.js";

const STOPPED = "You stopped this answer.";
const LEFT = "The page was closed before this answer ended.";
const TOO_LONG = "The answer ends here because it reached the limit of tokens.";
export const NO_ROOM = "The browser has no room to keep this conversation: it is gone when the page is closed.";

/* What the server is asked. Questions that got no answer are left out with it, but for the last. */
export function requestMessages(messages) {
  return messages
    .filter((m, i) => (m.role === "user" ? messages[i + 1]?.content !== "" : m.content !== ""))
    .map((m) => ({ role: m.role, content: withFiles(m) }));
}

/* The same for an answer that goes on: its thoughts come along. */
export function continuedMessages(messages) {
  const { reasoning } = messages.at(-1);
  const asked = requestMessages(messages);
  if (reasoning) asked.push({ ...asked.pop(), reasoning_content: reasoning });
  return asked;
}

/* {first_s, rate}: seconds to the first token, and tokens a second after it (null while there are too few). A run's
 * pieces stand for its tokens until the server has counted them. */
export function speedOf({ started, first, last, pieces, tokens }) {
  if (first === null) return null;
  const n = tokens ?? pieces;
  return { first_s: (first - started) / 1000, rate: n > 1 && last > first ? ((n - 1) * 1000) / (last - first) : null };
}

/* The answer after a chunk of the stream, which is noted in the run. */
export function addChunk(answer, run, chunk, now) {
  if (chunk.lost) run.lost = chunk.lost;
  const choice = chunk.choices?.[0];
  const { content = "", reasoning_content: reasoning = "" } = choice?.delta ?? {};
  if (content || reasoning) {
    run.first ??= now;
    run.last = now;
    run.pieces++;
    run.lost = false;
  }
  if (chunk.usage) run.tokens = chunk.usage.completion_tokens;
  const { note, ...rest } = answer;
  if (chunk.model) rest.model = chunk.model;
  if (choice?.finish_reason === "length") rest.note = TOO_LONG;
  else if (note !== undefined) rest.note = note;
  return {
    ...rest,
    tokens: (run.before ?? 0) + (run.tokens ?? run.pieces),
    content: answer.content + (content ?? ""),
    reasoning: answer.reasoning + (reasoning ?? ""),
    speed: speedOf(run),
  };
}

export class Chats {
  conversations; // the one changed last first
  runs = new Map(); // id -> what is known of the answer under way: {controller, lost (true, or a sentence), and what speedOf wants}
  unkept = new Set(); // ids of those that the browser had no room for
  unseen = new Set(); // ids of those whose last answer has ended since see()

  /* ask(messages, signal) gives the chunks of a streamed answer; denied(id) is told of one that needs a key. */
  constructor({ storage, ask, changed, denied = () => {} }) {
    Object.assign(this, { storage, ask, changed, denied });
    this.conversations = loadConversations(storage);
  }

  get(id) {
    return this.conversations.find((c) => c.id === id);
  }

  /* The messages that are shown. */
  shown(id) {
    const conversation = this.get(id);
    return pathOf(conversation).map((i) => conversation.messages[i]);
  }

  /* Asks, in a new conversation if there is none with this id. Returns the conversation's id. */
  send(id, question, files = []) {
    const conversation = this.get(id) ?? { id: this.#newId(), messages: [] };
    this.#ask(conversation, pathOf(conversation).at(-1) ?? -1, question, files);
    return conversation.id;
  }

  /* Asks question i in other words. The one that was there stays beside it, with what followed. */
  edit(id, i, question) {
    const { messages } = this.get(id);
    this.#ask(this.get(id), parentOf(messages, i), question, messages[i].files);
  }

  /* Has the question before answer i, by default the last one, answered again. The answer that was there stays beside the new
   * one, unless there was nothing in it. */
  again(id, i = pathOf(this.get(id)).at(-1)) {
    const conversation = this.get(id);
    const old = conversation.messages[i];
    if (old.role === "user") this.#begin(conversation, i);
    else if (old.content || old.reasoning) this.#begin(conversation, parentOf(conversation.messages, i));
    else this.#begin(conversation, parentOf(conversation.messages, i), i);
  }

  /* The last answer that is shown goes on where it ended. */
  goOn(id) {
    const conversation = this.get(id);
    const i = pathOf(conversation).at(-1);
    const { note, error, ...answer } = conversation.messages[i];
    this.#run(this.#withMessageAt(conversation, i, answer), i, continuedMessages(this.shown(id)), true);
  }

  /* Shows message i in place of its other versions. */
  choose(id, i) {
    this.#keep(choosing(this.get(id), i));
  }

  rename(id, title) {
    const { title: old, ...rest } = this.get(id);
    this.#keep(title.trim() === "" ? rest : { ...rest, title: title.trim() });
  }

  /* Conversations of a file. One that is here already stays as it is; another one with its id gets a new one. Returns the
   * number of those that came. */
  import(conversations) {
    let n = 0;
    for (const conversation of [...conversations].sort((a, b) => a.changed - b.changed)) {
      const here = this.get(conversation.id);
      if (here && JSON.stringify(here.messages) === JSON.stringify(conversation.messages)) continue;
      this.#keep(here ? { ...conversation, id: this.#newId() } : conversation);
      n++;
    }
    return n;
  }

  /* Somebody has looked at it. */
  see(id) {
    this.unseen.delete(id);
  }

  stop(id) {
    this.runs.get(id)?.controller.abort();
  }

  remove(id) {
    this.stop(id);
    this.conversations = this.conversations.filter((c) => c.id !== id);
    this.unkept.delete(id);
    this.unseen.delete(id);
    removeConversation(this.storage, id);
    this.changed();
  }

  /* A rank was lost: what is under way waits until tokens come again. */
  markLost() {
    for (const run of this.runs.values()) run.lost ||= true;
    this.changed();
  }

  /* Another tab changed what is kept. */
  reload() {
    const own = this.conversations.filter((c) => this.#isOnlyHere(c.id));
    const kept = loadConversations(this.storage).filter((c) => !this.#isOnlyHere(c.id));
    this.conversations = [...own, ...kept].sort((a, b) => b.changed - a.changed);
    this.changed();
  }

  /* The page goes: keeps what has come of the answers under way. */
  leave() {
    for (const id of this.runs.keys()) saveConversation(this.storage, this.#withAnswer(id, { note: LEFT }));
  }

  /* What the browser keeps of it, if anything, is older. */
  #isOnlyHere(id) {
    return this.runs.has(id) || this.unkept.has(id);
  }

  #newId() {
    let id = Date.now();
    while (this.get(id.toString(36))) id++;
    return id.toString(36);
  }

  #withMessageAt(conversation, i, message) {
    return { ...conversation, messages: conversation.messages.with(i, message) };
  }

  /* Of the one under way. */
  #withAnswer(id, fields) {
    const conversation = this.get(id);
    const { at } = this.runs.get(id);
    return this.#withMessageAt(conversation, at, { ...conversation.messages[at], ...fields });
  }

  /* Shows it in its place; keep also writes it down. */
  #show(conversation) {
    this.conversations = this.conversations.map((c) => (c.id === conversation.id ? conversation : c));
    this.changed();
  }

  /* Among the others by the time of its change, which this is not. */
  #keep(conversation) {
    if (saveConversation(this.storage, conversation)) this.unkept.delete(conversation.id);
    else this.unkept.add(conversation.id);
    const kept = new Set(loadConversations(this.storage).map((c) => c.id)); // saving may drop old ones
    const others = this.conversations.filter((c) => c.id !== conversation.id);
    this.conversations = [conversation, ...others.filter((c) => kept.has(c.id) || this.#isOnlyHere(c.id))];
    this.conversations.sort((a, b) => b.changed - a.changed);
    this.changed();
  }

  /* As the one changed last. */
  #put(conversation) {
    this.#keep({ ...conversation, changed: Math.max(Date.now(), (this.conversations[0]?.changed ?? 0) + 1) });
  }

  #ask(conversation, parent, content, files = []) {
    const question = { role: "user", content, at: Date.now() };
    if (files.length > 0) question.files = files;
    const asked = withMessage(conversation, parent, question);
    this.#begin(asked, asked.leaf);
  }

  /* Has the question answered: by a new message, or in place of message i. */
  #begin(conversation, question, i) {
    const answer = { role: "assistant", content: "", reasoning: "", at: Date.now(), parent: question };
    const begun = i === undefined ? withMessage(conversation, question, answer) : { ...this.#withMessageAt(conversation, i, answer), leaf: i };
    const path = pathOf(begun).slice(0, -1);
    this.#put(begun);
    this.#run(begun, begun.leaf, requestMessages(path.map((k) => begun.messages[k])), false);
  }

  /* Message `at` of the conversation grows by what the server answers. */
  async #run({ id, ...rest }, at, messages, continuing) {
    const controller = new AbortController();
    const before = continuing ? (rest.messages[at].tokens ?? 0) : 0;
    const run = { controller, at, before, lost: false, started: performance.now(), first: null, last: null, pieces: 0, tokens: null };
    let end = {};
    this.runs.set(id, run);
    this.unseen.delete(id);
    this.#show({ ...this.get(id), messages: rest.messages });
    try {
      for await (const chunk of this.ask(messages, controller.signal, continuing)) {
        if (controller.signal.aborted) break;
        this.#show(this.#withAnswer(id, addChunk(this.get(id).messages[at], run, chunk, performance.now())));
      }
    } catch (e) {
      if (e.name !== "AbortError") end = { error: e.message };
      if (e.status === 401) this.denied(id);
    }
    if (controller.signal.aborted) end = { note: STOPPED };
    const ended = this.get(id) && this.#withAnswer(id, end);
    this.runs.delete(id);
    if (!ended) return;
    this.unseen.add(id);
    this.#put(ended);
  }
}
