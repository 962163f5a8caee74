// exchange.js: conversations as files that people keep: JSON, which the page reads again, and Markdown.
import { isConversation, pathOf, titleOf } from "./tree.js";

const FORMAT = "lockstep-conversations";

export function toJson(conversations) {
  return `${JSON.stringify({ format: FORMAT, version: 1, conversations }, null, 1)}\n`;
}

/* The conversations of such a file. Throws an error with a sentence. */
export function fromJson(text) {
  let read;
  try {
    read = JSON.parse(text);
  } catch {
    throw new Error("This file is not JSON.");
  }
  if (read?.format !== FORMAT || !Array.isArray(read.conversations)) throw new Error("This file has no conversations of lockstep.");
  if (read.version !== 1) throw new Error("This file comes from a newer version of lockstep.");
  const good = read.conversations.filter(isConversation).map(cleanOf);
  if (good.length === 0) throw new Error("There is no conversation in this file.");
  return good;
}

const FIELDS = ["role", "content", "parent", "reasoning", "note", "error", "model"];

/* What the page knows of it, in the types that it knows. */
function cleanOf({ id, changed, messages, leaf, title }) {
  const clean = messages.map((m) => {
    const message = Object.fromEntries(FIELDS.filter((name) => ["string", "number"].includes(typeof m[name])).map((name) => [name, m[name]]));
    if (m.role === "assistant") message.reasoning ??= "";
    for (const name of ["reasoning", "note", "error", "model"]) if (name in message) message[name] = String(message[name]);
    if (Number.isFinite(m.tokens)) message.tokens = m.tokens;
    if (Number.isFinite(m.at)) message.at = m.at;
    if (Number.isFinite(m.speed?.first_s)) message.speed = { first_s: m.speed.first_s, rate: Number.isFinite(m.speed.rate) ? m.speed.rate : null };
    const files = (Array.isArray(m.files) ? m.files : []).filter((f) => typeof f?.name === "string" && typeof f.text === "string" && Number.isFinite(f.size));
    if (files.length > 0) message.files = files.map(({ name, size, text }) => ({ name, size, text }));
    return message;
  });
  const conversation = { id: id.replace(/[^\w-]/g, "") || "imported", changed, messages: clean };
  if (leaf !== undefined) conversation.leaf = leaf;
  if (typeof title === "string" && title !== "") conversation.title = title;
  return conversation;
}

function partOf({ role, content, reasoning, files = [], model, note, error }) {
  const parts = [`## ${role === "user" ? "Question" : model ? `Answer of ${model}` : "Answer"}`];
  for (const file of files) parts.push(`*File: ${file.name}*`);
  if (reasoning) parts.push(`<details>\n<summary>Thinking</summary>\n\n${reasoning.trim()}\n\n</details>`);
  if (content) parts.push(content.trim());
  for (const remark of [note, error]) if (remark) parts.push(`*${remark}*`);
  return parts.join("\n\n");
}

/* The path that is shown. */
export function toMarkdown(conversation) {
  const { messages } = conversation;
  return `# ${titleOf(conversation)}\n\n${pathOf(conversation).map((i) => partOf(messages[i])).join("\n\n")}\n`;
}

/* A name for its file, of letters that every system takes. */
export function fileName(conversation, ending) {
  const words = titleOf(conversation).normalize("NFC").replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "");
  return `${words.slice(0, 60) || "conversation"}.${ending}`;
}

/* Does it have the text somewhere? In any case of letters. */
export function mentions(conversation, text) {
  const wanted = text.trim().toLowerCase();
  if (wanted === "" || titleOf(conversation).toLowerCase().includes(wanted)) return true;
  return conversation.messages.some((m) => m.content.toLowerCase().includes(wanted));
}
