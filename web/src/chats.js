// chats.js: the conversations and the answers that are under way, one for each conversation at most. Knows nothing of
// the page: who shows it passes `changed`, which is called after every change. Conversations and messages are
// never changed in place, so that what is the same object shows the same.
//
// A conversation: {id, changed, messages}. A message: {role, content}, an answer's also with {reasoning, speed, note, error}.
import { loadConversations, removeConversation, saveConversation } from "./store.js";

const STOPPED = "You stopped this answer.";
const LEFT = "The page was closed before this answer ended.";
const TOO_LONG = "The answer ends here because it reached the limit of tokens.";
export const NO_ROOM = "The browser has no room to keep this conversation: it is gone when the page is closed.";

/* What the server is asked. Questions that got no answer are left out with it, but for the last. */
export function requestMessages(messages) {
  return messages
    .filter((m, i) => (m.role === "user" ? messages[i + 1]?.content !== "" : m.content !== ""))
    .map(({ role, content }) => ({ role, content }));
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
  return {
    ...answer,
    content: answer.content + (content ?? ""),
    reasoning: answer.reasoning + (reasoning ?? ""),
    note: choice?.finish_reason === "length" ? TOO_LONG : answer.note,
    speed: speedOf(run),
  };
}

export class Chats {
  conversations; // the one changed last first
  runs = new Map(); // id -> what is known of the answer under way: {controller, lost (true, or a sentence), and what speedOf wants}
  unkept = new Set(); // ids of those that the browser had no room for

  /* ask(messages, signal) gives the chunks of a streamed answer; denied(id) is told of one that needs a key. */
  constructor({ storage, ask, changed, denied = () => {} }) {
    Object.assign(this, { storage, ask, changed, denied });
    this.conversations = loadConversations(storage);
  }

  get(id) {
    return this.conversations.find((c) => c.id === id);
  }

  /* Asks, in a new conversation if there is none with this id. Returns the conversation's id. */
  send(id, question) {
    const conversation = this.get(id) ?? { id: this.#newId(), messages: [] };
    this.#put({ ...conversation, messages: [...conversation.messages, { role: "user", content: question }] });
    this.#answer(conversation.id);
    return conversation.id;
  }

  /* Asks the last question again, in other words if there are any. */
  again(id, question) {
    const { messages } = this.get(id);
    const last = messages.findLastIndex((m) => m.role === "user");
    const asked = question === undefined ? messages[last] : { role: "user", content: question };
    this.#put({ ...this.get(id), messages: [...messages.slice(0, last), asked] });
    this.#answer(id);
  }

  stop(id) {
    this.runs.get(id)?.controller.abort();
  }

  remove(id) {
    this.stop(id);
    this.conversations = this.conversations.filter((c) => c.id !== id);
    this.unkept.delete(id);
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

  #withAnswer(id, fields) {
    const conversation = this.get(id);
    const answer = { ...conversation.messages.at(-1), ...fields };
    return { ...conversation, messages: [...conversation.messages.slice(0, -1), answer] };
  }

  /* Shows it in its place; keep also writes it down, as the one changed last. */
  #show(conversation) {
    this.conversations = this.conversations.map((c) => (c.id === conversation.id ? conversation : c));
    this.changed();
  }

  #put(conversation) {
    const dated = { ...conversation, changed: Date.now() };
    if (saveConversation(this.storage, dated)) this.unkept.delete(dated.id);
    else this.unkept.add(dated.id);
    const kept = new Set(loadConversations(this.storage).map((c) => c.id)); // saving may drop old ones
    const others = this.conversations.filter((c) => c.id !== dated.id);
    this.conversations = [dated, ...others.filter((c) => kept.has(c.id) || this.#isOnlyHere(c.id))];
    this.changed();
  }

  async #answer(id) {
    const controller = new AbortController();
    const started = performance.now();
    const run = { controller, lost: false, started, first: null, last: null, pieces: 0, tokens: null };
    const messages = requestMessages(this.get(id).messages);
    let end = {};
    this.runs.set(id, run);
    this.#show({ ...this.get(id), messages: [...this.get(id).messages, { role: "assistant", content: "", reasoning: "" }] });
    try {
      for await (const chunk of this.ask(messages, controller.signal)) {
        if (controller.signal.aborted) break;
        this.#show(this.#withAnswer(id, addChunk(this.get(id).messages.at(-1), run, chunk, performance.now())));
      }
    } catch (e) {
      if (e.name !== "AbortError") end = { error: e.message };
      if (e.status === 401) this.denied(id);
    }
    if (controller.signal.aborted) end = { note: STOPPED };
    this.runs.delete(id);
    if (this.get(id)) this.#put(this.#withAnswer(id, end));
  }
}
