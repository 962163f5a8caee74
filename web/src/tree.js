// tree.js: a conversation is a tree: a question may have several answers, and an edited one is asked beside the one that was
// there. Its messages are in the order in which they came; each has a parent, by default the one before it, and is newer than
// that. One path through the tree is shown: it ends at the leaf, by default the last message. Pure functions.

export function parentOf(messages, i) {
  return messages[i].parent ?? i - 1;
}

/* The indices of the messages that are shown. */
export function pathOf({ messages, leaf = messages.length - 1 }) {
  const path = [];
  for (let i = leaf; i >= 0; i = parentOf(messages, i)) path.push(i);
  return path.reverse();
}

/* The indices of this message and of those in its place. */
export function versionsOf(messages, i) {
  const parent = parentOf(messages, i);
  return messages.flatMap((m, j) => (parentOf(messages, j) === parent && m.role === messages[i].role ? [j] : []));
}

export function withMessage(conversation, parent, message) {
  const { messages } = conversation;
  return { ...conversation, messages: [...messages, { ...message, parent }], leaf: messages.length };
}

/* Shows message i, and below it what was added last. */
export function choosing(conversation, i) {
  const { messages } = conversation;
  const below = (at) => messages.findLastIndex((_, j) => j > at && parentOf(messages, j) === at);
  let leaf = i;
  for (let next = below(leaf); next !== -1; next = below(leaf)) leaf = next;
  return { ...conversation, leaf };
}

function isMessage(m, i) {
  const parent = m?.parent ?? i - 1;
  return (m?.role === "user" || m?.role === "assistant") && typeof m.content === "string" && Number.isInteger(parent) && parent >= -1 && parent < i;
}

export function isConversation(c) {
  if (typeof c?.id !== "string" || typeof c.changed !== "number" || !Array.isArray(c.messages)) return false;
  const { messages, leaf = messages.length - 1 } = c;
  return messages.length > 0 && messages.every(isMessage) && Number.isInteger(leaf) && leaf >= 0 && leaf < messages.length;
}

/* Its name: what the reader calls it, or the first line of the first question. */
export function titleOf({ title, messages }) {
  return title || messages[0].content.trim().split("\n", 1)[0] || messages[0].files?.[0]?.name || "Untitled";
}
