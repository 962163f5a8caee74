// files.js: text files that go with a question. They are read in the browser and sent as part of the question's text.
import { bytes } from "./format.js";

export const MAX_FILE = 256 * 1024; // bytes
export const MAX_FILES = 512 * 1024; // of one question together

/* The bytes as text; null if they are none. */
export function textOf(data) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(data);
    return text.includes("\0") ? null : text.replace(/\r\n?/g, "\n");
  } catch {
    return null;
  }
}

/* {files, problems}: those that were there, and the new ones that can be taken; a sentence for each of the others. */
export async function takeFiles(there, added) {
  const files = [...there];
  const problems = [];
  for (const file of added) {
    const total = files.reduce((sum, f) => sum + f.size, 0);
    if (file.size > MAX_FILE) {
      problems.push(`${file.name} has ${bytes(file.size)}; a file may have ${bytes(MAX_FILE)}.`);
    } else if (total + file.size > MAX_FILES) {
      problems.push(`${file.name} is too much: the files of a question may have ${bytes(MAX_FILES)} together.`);
    } else {
      const text = textOf(await file.arrayBuffer().catch(() => new Uint8Array([255])));
      if (text === null) problems.push(`${file.name} is no text in UTF-8: only text files can be sent.`);
      else files.push({ name: file.name, size: file.size, text });
    }
  }
  return { files, problems };
}

/* A fence of more backticks than there are anywhere in the text. */
function fenced({ name, text }) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `File ${name}:\n\n${fence}\n${text}${text.endsWith("\n") ? "" : "\n"}${fence}`;
}

/* What the model reads: the files, then the question. */
export function withFiles({ content, files = [] }) {
  return [...files.map(fenced), content].filter((part) => part !== "").join("\n\n");
}
