// data.test.mjs: what the view of the cluster makes of the server's answer.
import assert from "node:assert/strict";
import { test } from "node:test";
import { barsOf, clusterOf, leftOf, newsOf, pairsOf, placesFor, rolesOf, shareOf, stateOf, totalsOf, withRates } from "./data.js";
import { clock, duration, latency, tokens } from "./words.js";

const GB = 1e9;
const worker = (model, weights, rest = {}) => ({ model, rank: 0, device: "", memory: { weights, cache: GB, buffers: 0 }, ...rest });

test("an answer without its lists is one of nothing", () => {
  const cluster = clusterOf({ self: "rack", time: 1 });
  assert.deepEqual([cluster.nodes, cluster.links, cluster.deployments, cluster.events, cluster.models], [[], [], [], [], []]);
  assert.equal(cluster.may.manage, false);
  const { nodes } = clusterOf({ nodes: [{ name: "b", devices: [{ kind: "software" }, { kind: "other" }] }, { name: "a", devices: null }] });
  assert.deepEqual(nodes.map((n) => [n.name, n.devices.length]), [["a", 0], ["b", 1]]);
  assert.deepEqual([[{}], [{ standby: [] }], [{}, {}], []].map((deployments) => clusterOf({ deployments }).isKeptUp), [false, true, true, true]);
  assert.deepEqual(clusterOf({ events: [{ time: 1 }, { time: 3 }, { time: 2 }] }).events.map((e) => e.time), [3, 2, 1]);
});

test("totals count who is here, and only memory that is known", () => {
  const cluster = clusterOf({
    nodes: [
      { name: "a", state: "here", memory: 64 * GB, memory_free: 16 * GB },
      { name: "b", state: "lost", memory: 64 * GB, memory_free: 16 * GB },
      { name: "c", state: "here", memory: 8 * GB, memory_free: null },
    ],
    deployments: [
      { name: "m", state: "listening", tokens_per_second: 12, requests: { running: 2, waiting: 1 } },
      { name: "n", state: "failed", tokens_per_second: null, requests: null },
    ],
  });
  assert.deepEqual(totalsOf(cluster), {
    machines: 3, lost: 1, models: 2, serving: 1, memory: 64 * GB, used: 48 * GB, tokens: 12, running: 2, waiting: 1,
  });
});

test("a link's rate is the server's, or comes from two answers", () => {
  const link = { model: "m", a: "a", b: "b", kind: "tcp", bytes: 3000 };
  const before = { time: 10, links: [{ ...link, bytes: 1000 }] };
  assert.equal(withRates([link], 12, before)[0].rate, 1000);
  assert.equal(withRates([{ ...link, rate: 7 }], 12, before)[0].rate, 7);
  assert.equal(withRates([{ ...link, bytes: 500 }], 12, before)[0].rate, null); // it began again
  assert.equal(withRates([link], 12, undefined)[0].rate, null);
  assert.equal(withRates([link], 10, before)[0].rate, null);
});

test("links between the same two machines are one line, those within one are none", () => {
  const pairs = pairsOf([
    { model: "m", a: "b", b: "a", rate: 5 },
    { model: "n", a: "a", b: "b", rate: null },
    { model: "n", a: "a", b: "a", rate: 9 },
    { model: "n", a: "a", b: "c", rate: null },
  ]);
  assert.deepEqual(pairs.map((p) => [p.a, p.b, p.links.length, p.rate]), [["a", "b", 2, 5], ["a", "c", 1, null]]);
});

test("a machine serves, stands by, cannot and why, or is lost", () => {
  const { deployments } = clusterOf({
    deployments: [
      { name: "m", state: "listening", node: "a", standby: [{ node: "b", reason: "" }, { node: "c", reason: "disk", sentence: "no room" }] },
      { name: "n", state: "listening", node: "b", standby: [{ node: "c", reason: "memory", sentence: "too little" }] },
    ],
  });
  const node = (name, workers = [], state = "here") => ({ name, state, workers, devices: [] });
  const is = (n) => stateOf(n, rolesOf(n, deployments)).state;
  assert.equal(is(node("a", [worker("m", GB)])), "serves");
  assert.equal(is(node("b")), "serves"); // it answers for n
  assert.deepEqual(rolesOf(node("b"), deployments).standsBy, ["m"]);
  assert.equal(is(node("c")), "cannot");
  assert.deepEqual(rolesOf(node("c"), deployments).cannot.map((c) => [c.name, c.sentence]), [["m", "no room"], ["n", "too little"]]);
  assert.equal(is(node("d")), "idle");
  assert.equal(is(node("a", [], "lost")), "lost");
  assert.equal(is(node("a", [], "left")), "left");
  const names = ["d", "c", "b", "a"].map((n) => node(n));
  assert.deepEqual(placesFor(deployments[0], [...names, node("e", [], "lost")]).map((p) => [p.name, p.able, p.why]),
    [["b", true, ""], ["d", false, ""], ["c", false, "no room"]]);
});

test("a memory's parts fill it, and a device's own memory has a bar of its own", () => {
  const device = { name: "GPU", kind: "discrete", memory_bytes: 24 * GB };
  const node = {
    memory: 100 * GB, memory_free: 60 * GB, devices: [device, { name: "iGPU", kind: "integrated", memory_bytes: 50 * GB }],
    workers: [worker("m", 19 * GB), worker("n", 11 * GB, { device: "GPU" }), worker("o", 9 * GB, { device: "iGPU" })],
  };
  const [memory, gpu, ...none] = barsOf(node);
  assert.equal(none.length, 0);
  assert.deepEqual(memory.segments.map((s) => [s.part, s.bytes / GB]), [["weights", 28], ["cache", 2], ["other", 10], ["free", 60]]);
  assert.ok(Math.abs(memory.segments.reduce((a, s) => a + s.share, 0) - 1) < 1e-9);
  assert.deepEqual(gpu.segments.map((s) => [s.part, s.bytes / GB]), [["weights", 11], ["cache", 1], ["free", 12]]);
});

test("more than there is overflows no bar, and unknown parts are the process's", () => {
  const [over] = barsOf({ memory: 10 * GB, memory_free: 0, devices: [], workers: [worker("m", 12 * GB)] });
  assert.ok(over.segments.reduce((a, s) => a + s.share, 0) <= 1 + 1e-9);
  const [rest] = barsOf({ memory: 10 * GB, memory_free: 4 * GB, devices: [], workers: [{ model: "m", device: "", memory: { weights: null, process: 5 * GB } }] });
  assert.deepEqual(rest.segments.map((s) => [s.part, s.bytes / GB]), [["process", 5], ["other", 1], ["free", 4]]);
  assert.deepEqual(barsOf({ memory: null, devices: [], workers: [] }), []);
});

test("what is left of a copy", () => {
  assert.equal(leftOf({ bytes: 20, total: 100, rate: 8 }), 10);
  assert.equal(leftOf({ bytes: 20, total: 100, rate: 8, left_s: 3 }), 3);
  assert.equal(leftOf({ bytes: 20, total: 100, rate: null }), null);
});

test("news are what was not there before, oldest first, and no copies", () => {
  const event = (time, kind) => ({ time, kind, sentence: kind });
  const before = [event(1, "lost")];
  const now = [event(4, "back"), event(3, "copied"), event(2, "took_over"), event(1, "lost")];
  assert.deepEqual(newsOf(now, undefined), []);
  assert.deepEqual(newsOf(now, before).map((e) => e.kind), ["took_over", "back"]);
  assert.deepEqual(newsOf(now, now), []);
});

test("shares are said from the first to the last", () => {
  const share = { parts: "stage 1 of 2", layers: [0, 44], heads: [0, 64] };
  assert.deepEqual(shareOf(share, { layers: 80, heads: 64 }), ["stage 1 of 2", "layers 0\u201343 of 80", "all 64 heads"]);
  assert.deepEqual(shareOf({ layers: [4, 8] }, undefined), ["layers 4\u20137"]);
  assert.deepEqual(shareOf({ layers: [3, 4] }, { layers: 4 }), ["layer 3 of 4"]);
});

test("numbers in words", () => {
  assert.deepEqual([0.2, 59, 61, 7200, 200000].map(duration), ["0 s", "59 s", "1 min", "2 h", "2 days"]);
  assert.deepEqual([4.06, 41, 1500, null].map(latency), ["4.1 \u00b5s", "41 \u00b5s", "1.5 ms", null]);
  assert.deepEqual([0, 9.96, 99.5, null].map(tokens), ["0", "10.0", "100", "\u2013"]);
  const noon = new Date(2026, 10, 30, 12, 5, 9).getTime() / 1000;
  assert.match(clock(noon, noon + 60), /^12:05:09$/);
  assert.match(clock(noon, noon + 86400), /30.*12:05$/);
});
