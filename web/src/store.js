// store.js: what stays in the browser: conversations, one entry each, so that two tabs do not overwrite each other's,
// and the settings. Storage is localStorage, or anything with its methods.

import { isConversation } from "./tree.js";

export const MAX_CONVERSATIONS = 50;
const PREFIX = "lockstep.chat.";
const SETTINGS = "lockstep.settings";

function parse(text, otherwise) {
  try {
    return JSON.parse(text) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/* All conversations, the one changed last first. What is no conversation is left out. */
export function loadConversations(storage) {
  const found = [];
  for (let i = 0; i < storage.length; i++) {
    const key = storage.key(i);
    if (!key.startsWith(PREFIX)) continue;
    const conversation = parse(storage.getItem(key), null);
    if (isConversation(conversation)) found.push(conversation);
  }
  return found.sort((a, b) => b.changed - a.changed);
}

/* Keeps the conversation. Where there is no room, older ones go, and so do those beyond the limit. False, and all is
 * as it was, if there would be no room even then: it is too long, or other pages of this address took the room. */
export function saveConversation(storage, conversation) {
  const others = loadConversations(storage).filter((c) => c.id !== conversation.id);
  const gone = []; // [key, text]
  const dropLast = () => {
    const key = PREFIX + others.pop().id;
    gone.push([key, storage.getItem(key)]);
    storage.removeItem(key);
  };
  for (;;) {
    try {
      storage.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
      break;
    } catch {
      if (others.length > 0) dropLast();
      else return giveBack(storage, gone);
    }
  }
  while (others.length >= MAX_CONVERSATIONS) dropLast();
  return true;
}

function giveBack(storage, entries) {
  try {
    for (const [key, text] of entries.reverse()) storage.setItem(key, text);
  } catch {
    // another tab took the room meanwhile
  }
  return false;
}

export function removeConversation(storage, id) {
  storage.removeItem(PREFIX + id);
}

export function loadSettings(storage) {
  return parse(storage.getItem(SETTINGS), {});
}

export function saveSettings(storage, settings) {
  keep(storage, SETTINGS, JSON.stringify(settings));
}

/* What has no room holds until the page is closed. */
export function keep(storage, name, text) {
  try {
    storage.setItem(name, text);
  } catch {
    // somebody else has taken all of it
  }
}

/* A storage that lasts as long as the page. */
export function memoryStorage() {
  const entries = new Map();
  return {
    get length() {
      return entries.size;
    },
    key: (i) => [...entries.keys()][i],
    getItem: (key) => entries.get(key) ?? null,
    setItem: (key, value) => entries.set(key, value),
    removeItem: (key) => entries.delete(key),
  };
}

/* The browser's storage, or one in memory where the browser gives none. */
export function openStorage(name) {
  try {
    return window[name] ?? memoryStorage();
  } catch {
    return memoryStorage();
  }
}
