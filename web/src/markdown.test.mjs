// How answers are taken apart. What becomes of the parts in a browser: tests/support/page/page.mjs. node --test src/
import assert from "node:assert/strict";
import { test } from "node:test";
import { blocksOf } from "./markdown.js";

const shape = (text) => blocksOf(text).map((b) => `${b.type}: ${b.tokens?.map((t) => t.type) ?? ""}`);

test("what begins with thousands of markers is text, what begins with some is not", () => {
  for (const marker of ["> ", ">", "1. ", "12) ", "- > * ", "+\t"]) {
    const text = marker.repeat(9000);
    assert.deepEqual([marker, blocksOf(text).map((b) => [b.type, b.raw.trim()])], [marker, [["paragraph", text.trim()]]]);
    assert.equal(blocksOf(`a\n\n${text}`).length, 2);
  }
  assert.match(shape("> > > three deep")[0], /^blockquote/);
  assert.equal(blocksOf("1. 1. 1. three deep")[0].type, "list");
});

test("exclamation marks are one piece of text, but for an image's", () => {
  assert.deepEqual(shape("!".repeat(200000)), ["paragraph: text"]);
  assert.deepEqual(shape("Oh!!!![a](http://b/) No! No!!"), ["paragraph: text,image,text"]);
});
