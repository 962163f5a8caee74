// A cluster that is not there, of eight machines and five models, as GET /v1/cluster tells it: what a test of the page asks in place
// of one. It answers the changes, too. By itself it serves the built page: node cluster.mjs PORT.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const GB = 1e9;
const START = 1790000000;

const machine = (name, processor, cores, memory, rest = {}) => ({
  name, state: "here", age_s: 0.4, version: "0.2.0", processor, cores, memory: memory * GB, memory_free: memory * GB * 0.9,
  load: cores * 0.4, disk_free: 412 * GB, devices: [], workers: [], ...rest,
});
const gpu = (name, memory) => ({ name, kind: "discrete", driver: "", memory_bytes: memory * GB, error: null });

function machines() {
  return [
    machine("rack", "AMD Ryzen AI Max+ 395", 16, 128, { devices: [{ ...gpu("Radeon 8060S", 96), kind: "integrated" }], load: 14.2 }),
    machine("shelf", "AMD Ryzen AI Max+ 395", 16, 128, { load: 13.9 }),
    machine("attic", "Intel Xeon w7-2495X", 24, 256, { devices: [gpu("NVIDIA RTX 4090", 24)], load: 17.3 }),
    machine("cellar", "AMD EPYC 9354P", 32, 384, { load: 20.1 }),
    machine("desk", "Apple M3 Ultra", 28, 192, { load: 9.5 }),
    machine("porch", "Intel Core i5-8500T", 6, 16, { state: "lost", age_s: 42, load: null, memory_free: null }),
    machine("loft", "AMD Ryzen 9 7950X", 16, 64, {
      load: 0.2, downloads: [{ model: "phi-4-Q4_K_M.gguf", from: "rack", bytes: 4.1 * GB, total: 8.9 * GB, rate: 2.4e7, left_s: 200 }],
    }),
    machine("barn", "Raspberry Pi 5", 4, 8, { load: 0.1, disk_free: 2.1 * GB }),
  ];
}

/* Where each model lies: [machine, layers, heads, weights, cache, buffers], and in how many parts. */
const shares = {
  "qwen3-235b-a22b": [
    ["rack", [0, 94], [0, 16], 33.2, 6.4, 1.1, "tensor 1 of 4"], ["shelf", [0, 94], [16, 32], 33.2, 6.4, 1.1, "tensor 2 of 4"],
    ["attic", [0, 94], [32, 48], 33.2, 6.4, 1.1, "tensor 3 of 4"], ["cellar", [0, 94], [48, 64], 33.2, 6.4, 1.1, "tensor 4 of 4"],
  ],
  "llama-3.3-70b": [["cellar", [0, 44], [0, 64], 23.6, 4.1, 0.6, "stage 1 of 2"], ["desk", [44, 80], [0, 64], 19.4, 3.4, 0.6, "stage 2 of 2"]],
  "gpt-oss-20b": [["desk", [0, 24], [0, 64], 12.8, 2.2, 0.3, "whole"]],
  "gemma-3-27b": [["attic", [0, 62], [0, 32], 16.5, 3.1, 0.4, "whole", "NVIDIA RTX 4090"]],
  "mistral-small-24b": [],
};

function links(t) {
  const four = ["rack", "shelf", "attic", "cellar"];
  const all = four.flatMap((a, i) => four.slice(i + 1).map((b) => ({
    model: "qwen3-235b-a22b", a, b, kind: a === "rack" && b === "shelf" ? "rdma" : "tcp", latency_us: a === "rack" && b === "shelf" ? 4.1 : 41 + i,
    bandwidth: a === "rack" && b === "shelf" ? 9.7 * GB : 1.16 * GB, bytes: Math.round((31e6 + 1e6 * i) * t),
  })));
  return [...all, { model: "llama-3.3-70b", a: "cellar", b: "desk", kind: "tcp", latency_us: 87.5, bandwidth: 0.29 * GB, bytes: Math.round(1.4e6 * t) }];
}

function deployment(name, port, node, t, rest) {
  return {
    name, model: `${name}-Q4_K_M.gguf`, port, state: "listening", node, since: START - 86000, sentence: "", standby: [], silent: [], absent: [], copies: [],
    placement: "", candidates: [], requests: { running: 0, waiting: 0 }, tokens_per_second: 0, prompt_per_second: 0, cache: { pages: 4096, used: 0 }, ...rest,
  };
}

function deployments(t) {
  const wave = (base, part, period) => base * (1 + part * Math.sin(t / period));
  return [
    deployment("qwen3-235b-a22b", 8080, "rack", t, {
      layers: 94, heads: 64, placement: "tensor4, 1:1:1:1: 34.1 tokens/s predicted", tokens_per_second: wave(96, 0.2, 5), prompt_per_second: wave(410, 0.3, 7),
      requests: { running: 6, waiting: 2 }, cache: { pages: 4096, used: 2911 },
      candidates: [
        { layout: "tensor4", tokens_per_second: 34.1, prompt_per_second: 402 }, { layout: "tensor2xpipeline2", tokens_per_second: 29.8, prompt_per_second: 390 },
        { layout: "pipeline4", tokens_per_second: 14.2, prompt_per_second: 371 },
      ],
      standby: [{ node: "loft", reason: "memory", sentence: "with rack gone the remaining machines have 171.0 GB, and the model has 132.8 GB" },
        { node: "shelf", reason: "", sentence: "" }, { node: "attic", reason: "", sentence: "" }, { node: "barn", reason: "disk", sentence: "there is no room on its disk: the model has 132.8 GB, and it has room for 2.1 GB" }],
    }),
    deployment("llama-3.3-70b", 8080, "cellar", t, {
      layers: 80, heads: 64, placement: "pipeline2, 5:4: 11.6 tokens/s predicted", tokens_per_second: wave(11, 0.1, 4), prompt_per_second: 0, requests: { running: 1, waiting: 0 },
      cache: { pages: 2048, used: 310 }, standby: [{ node: "desk", reason: "", sentence: "" }, { node: "loft", reason: "copying", sentence: "the copy is under way" },
        { node: "barn", reason: "disk", sentence: "there is no room on its disk: the model has 42.5 GB, and it has room for 2.1 GB" }],
      copies: [{ to: "loft", from: "cellar", bytes: Math.min(42.5 * GB, 14.1 * GB + 1.1e8 * t), total: 42.5 * GB, rate: 1.1e8 }],
    }),
    deployment("gpt-oss-20b", 8081, "desk", t, {
      layers: 24, heads: 64, placement: "one machine: 71.0 tokens/s predicted", standby: [{ node: "loft", reason: "", sentence: "" }, { node: "barn", reason: "memory", sentence: "it has 8.0 GB of memory, and the model has 12.8 GB" }],
    }),
    deployment("gemma-3-27b", 8080, "attic", t, {
      state: "starting", layers: 62, heads: 32, sentence: "porch is lost; attic loads the model again", absent: ["porch"], placement: "one machine: 24.0 tokens/s predicted",
      tokens_per_second: null, prompt_per_second: null, requests: null, cache: null, standby: [{ node: "loft", reason: "", sentence: "" }],
    }),
    deployment("mistral-small-24b", 8080, null, t, {
      state: "failed", sentence: "loft has no room for the KV cache: --kv-memory asks for 96.0 GB; the next try is in 16 s", tokens_per_second: null,
      prompt_per_second: null, requests: null, cache: null, 
    }),
  ];
}

const events = [
  [-172000, "up", "desk", "gpt-oss-20b", "gpt-oss-20b is put up at desk"],
  [-86100, "up", "rack", "qwen3-235b-a22b", "qwen3-235b-a22b is put up at rack"],
  [-86000, "placed", "rack", "qwen3-235b-a22b", "qwen3-235b-a22b is placed as tensor4, 1:1:1:1: 34.1 tokens/s predicted, tensor2xpipeline2 would give 29.8"],
  [-3600, "copied", "shelf", "qwen3-235b-a22b", "shelf has a whole copy of qwen3-235b-a22b (132.8 GB in 19 min)"],
  [-1900, "lost", "shelf", null, "shelf is lost"],
  [-1899, "took_over", "rack", "qwen3-235b-a22b", "rack goes on with attic and cellar: 27.4 tokens/s predicted"],
  [-1500, "back", "shelf", null, "shelf is back"],
  [-1440, "placed", "rack", "qwen3-235b-a22b", "qwen3-235b-a22b is placed anew as tensor4: 34.1 tokens/s predicted, in place of 27.4"],
  [-300, "failed", "loft", "mistral-small-24b", "mistral-small-24b fails at loft: there is no room for the KV cache"],
  [-42, "lost", "porch", null, "porch is lost"],
  [-41, "took_over", "attic", "gemma-3-27b", "attic takes over gemma-3-27b from porch"],
].map(([at, kind, node, model, sentence]) => ({ time: START + at, kind, node, model, sentence }));

/* The cluster, t seconds after it began. */
export function clusterAt(t, { manage = true } = {}) {
  const nodes = machines();
  for (const [model, list] of Object.entries(shares))
    list.forEach(([node, layers, heads, weights, cache, buffers, parts, device = ""], rank) => {
      const of = nodes.find((n) => n.name === node);
      of.workers.push({ model, rank, device, layers, heads, parts,
        memory: { weights: weights * GB, cache: cache * GB, buffers: buffers * GB } });
      if (device === "") of.memory_free -= (weights + cache + buffers) * GB;
    });
  return {
    self: "rack", version: "0.2.0", time: START + t, may: { manage, sentence: manage ? "" : "this key may not change the cluster" },
    nodes, links: links(t), deployments: deployments(t), events: [...events],
    models: !manage ? [] : [{ name: "phi-4-Q4_K_M", bytes: 8.9 * GB, nodes: ["rack", "desk"] }, { name: "qwen3-0.6b-Q8_0", bytes: 0.6 * GB, nodes: ["barn"] }],
  };
}

const plan = {
  sentence: "tensor4 over rack, shelf, attic and cellar is predicted to be fastest",
  candidates: [
    { layout: "tensor4", nodes: ["rack", "shelf", "attic", "cellar"], tokens_per_second: 34.1, prompt_per_second: 402, chosen: true, fits: true, reading_ms: 26.2, wires_ms: 3.1 },
    { layout: "tensor2", nodes: ["attic", "cellar"], tokens_per_second: 21.9, prompt_per_second: 260 },
    { layout: "pipeline3", nodes: ["attic", "cellar", "desk"], tokens_per_second: 9.6, prompt_per_second: 233 },
    { layout: "one machine", nodes: ["rack"], fits: false, sentence: "rack has 115 GB, and it takes 141 GB" },
  ],
};

/* A server of that cluster, and of the page. */
export class Fixture {
  asked = []; // [what, body] of each change
  changes = []; // functions of the cluster, each of a change that was made
  polls = 0;
  token = "sesame"; // of who may change it
  broken = false; // answers with nothing but 502
  waits = null; // a promise: an answer waits so long for a machine that takes over

  /* manage: anybody may change it; serving: models serve. */
  constructor({ manage = true, serving = true } = {}) {
    Object.assign(this, { manage, serving });
    this.began = Date.now();
  }
  cluster(manage = this.manage) {
    const cluster = clusterAt((Date.now() - this.began) / 1000, { manage });
    if (!this.serving) for (const d of cluster.deployments) d.state = "failed";
    for (const change of this.changes) change(cluster);
    return cluster;
  }
  lose(name) {
    const { time } = this.cluster();
    this.changes.push((c) => {
      Object.assign(c.nodes.find((n) => n.name === name), { state: "lost", age_s: c.time - time, workers: [] });
      c.events.push({ time, kind: "lost", node: name, sentence: `${name} is lost` });
    });
  }
  change(what, body) {
    this.asked.push([what, body]);
    const found = this.cluster().deployments.find((d) => d.name === body.name);
    const no = (status, message) => [status, { error: { message } }];
    const among = body.nodes ? ` among ${body.nodes}` : "";
    if (what === "plan" && body.model) return [200, { sentence: `predicted for ${body.model}${among}`, candidates: plan.candidates.slice(1) }];
    if (what === "plan" && body.nodes) return [200, { ...plan, sentence: `among ${body.nodes}`, candidates: plan.candidates.slice(1, 3) }];
    if (what === "plan") return [200, plan];
    if (what === "up" && / /.test(body.model)) return no(400, `no machine has a model named ${body.model}`);
    if (what === "up") return [200, { name: body.model, id: "7f3a" }];
    if (!found) return no(404, `no model ${body.name} is up`);
    if (what === "move" && body.node === "barn") return no(409, "barn cannot serve it: there is no room on its disk");
    const { time } = this.cluster();
    const [kind, sentence] = what === "down" ? ["down", `${body.name} is taken down`] : ["moved", `${body.node} serves ${body.name} in place of ${found.node}`];
    this.changes.push((c) => {
      if (what === "down") c.deployments = c.deployments.filter((d) => d.name !== body.name);
      else if (body.nodes) c.deployments.find((d) => d.name === body.name).layout = body.nodes === "auto" ? null : { nodes: body.nodes, parallel: body.parallel };
      else c.deployments.find((d) => d.name === body.name).node = body.node;
      c.events.push({ time, kind, node: body.node ?? found.node, model: body.name, sentence });
    });
    return [200, { name: body.name }];
  }
  async answer(res) {
    res.writeHead(200, { "Content-Type": "text/event-stream" }).write(": still at work\n\n");
    if (this.waits) res.write(': lockstep {"lost": "rack", "next": "shelf", "sentence": "rack is lost; shelf takes over, and the answer goes on"}\n\n');
    await this.waits;
    res.end(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: "Yes." } }] })}\n\ndata: [DONE]\n\n`);
  }
}

const PAGE = new URL("../../../src/api/page.html", import.meta.url);

/* The server at that port (0: any), once it listens. */
export function serve(port, fixture) {
  const say = (res, status, body) => res.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
  const server = createServer(async (req, res) => {
    const path = req.url.replace(/\?.*/, "");
    const may = fixture.manage || req.headers["lockstep-admin"] === fixture.token;
    let body = "";
    for await (const piece of req) body += piece;
    if (path === "/") return res.setHeader("Content-Type", "text/html; charset=utf-8").end(readFileSync(PAGE));
    if (fixture.broken) return res.writeHead(502).end();
    if (path === "/health") return say(res, 200, { status: "ok" });
    if (path === "/v1/models") return say(res, 200, { data: fixture.cluster().deployments.map((d) => ({ id: d.name })) });
    if (path === "/metrics") return res.end("lockstep_ranks 4\n");
    if (path === "/v1/chat/completions") return fixture.answer(res);
    if (path === "/v1/cluster") return fixture.polls++, say(res, 200, fixture.cluster(may));
    if (!path.startsWith("/v1/cluster/")) return say(res, 404, { error: { message: "not here" } });
    if (!may) return say(res, 403, { error: { message: "this key may not change the cluster" } });
    say(res, ...fixture.change(path.slice("/v1/cluster/".length), JSON.parse(body)));
  });
  return new Promise((listens) => server.listen(port, "127.0.0.1", () => listens(server)));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const server = await serve(Number(process.argv[2] ?? 8091), new Fixture());
  console.log(`http://127.0.0.1:${server.address().port}/#cluster`);
}
