// layout.test.mjs: where the graph's machines stand, and its labels.
import assert from "node:assert/strict";
import { test } from "node:test";
import { labelsOf, orderOf, placesOf } from "./layout.js";

const pair = (a, b) => ({ key: `${a}-${b}`, a, b });
const names = (n) => Array.from({ length: n }, (_, i) => `m${i}`);
const ring = (list) => list.map((name, i) => pair(name, list[(i + 1) % list.length]));

test("machines that talk to each other stand side by side", () => {
  const order = orderOf(["a", "b", "c", "d", "e"], [pair("a", "d"), pair("d", "e")]);
  assert.deepEqual(order.slice(0, 3).sort(), ["a", "d", "e"]);
  assert.deepEqual(order.toSorted(), ["a", "b", "c", "d", "e"]);
  assert.equal(order[0], "d");
  assert.deepEqual(orderOf(["a"], [pair("a", "gone")]), ["a"]);
});

for (const width of [300, 700, 1300])
  for (const n of [1, 2, 3, 4, 5, 6, 8])
    test(`${n} machines in ${width} pixels: inside, and none on another`, () => {
      for (const linked of [0, n]) {
        const list = names(n + 2);
        const layout = placesOf(list, linked > 1 ? ring(list.slice(0, linked)) : [], width);
        const places = [...layout.places.values()];
        assert.equal(places.length, n + 2);
        for (const [i, p] of places.entries()) {
          assert.ok(p.x >= layout.box.width / 2 && p.x <= width - layout.box.width / 2, `x of ${i}: ${p.x}`);
          assert.ok(p.y >= layout.box.height / 2 && p.y <= layout.height - layout.box.height / 2, `y of ${i}: ${p.y}`);
          for (const q of places.slice(i + 1))
            assert.ok(Math.abs(p.x - q.x) >= layout.box.width || Math.abs(p.y - q.y) >= layout.box.height, `${i} lies on another`);
        }
      }
    });

test("labels cover neither machines nor each other, and those without a place are left out", () => {
  const list = names(5);
  const pairs = list.flatMap((a, i) => list.slice(i + 1).map((b) => pair(a, b)));
  const layout = placesOf(list, pairs, 700);
  const labels = labelsOf(pairs.map((p) => ({ key: p.key, from: p.a, to: p.b, width: 78, height: 32 })), layout);
  const boxes = [...labels.values()].map((l) => ({ ...l, w: 78, h: 32 }));
  assert.ok(labels.size >= 8, `${labels.size} labels`);
  for (const [i, p] of boxes.entries())
    for (const q of [...boxes.slice(i + 1), ...[...layout.places.values()].map((m) => ({ ...m, w: layout.box.width, h: layout.box.height }))])
      assert.ok(Math.abs(p.x - q.x) >= (p.w + q.w) / 2 - 1 || Math.abs(p.y - q.y) >= (p.h + q.h) / 2 - 1);
  const none = labelsOf([{ key: "x", from: "m0", to: "m1", width: 5000, height: 5000 }, { key: "y", from: "m0", to: "gone", width: 1, height: 1 }], layout);
  assert.equal(none.size, 0);
});

test("where two lines cross there is no label, if there is room elsewhere", () => {
  const list = names(4);
  const pairs = list.flatMap((a, i) => list.slice(i + 1).map((b) => pair(a, b)));
  const layout = placesOf(list, pairs, 700);
  const labels = labelsOf(pairs.map((p) => ({ key: p.key, from: p.a, to: p.b, width: 78, height: 32 })), layout);
  assert.equal(labels.size, 6);
  const middle = { x: 350, y: layout.height / 2 };
  for (const l of labels.values()) assert.ok(Math.abs(l.x - middle.x) > 39 || Math.abs(l.y - middle.y) > 16);
});
