// data.js: from what GET v1/cluster says to what the view shows: pure functions. What a server does not know is null or absent.

const KINDS_THAT_MATTER = new Set(["up", "down", "lost", "left", "joined", "back", "took_over", "moved", "placed", "failed"]);

const list = (v) => (Array.isArray(v) ? v : []);

/* What draws with the processor is no device of its own. */
function nodeOf(n) {
  const devices = list(n.devices).filter((d) => d.kind !== "software");
  return { ...n, devices, workers: list(n.workers), downloads: list(n.downloads) };
}

/* The answer with every list there, so that nobody else asks whether one is. */
export function clusterOf(answer) {
  return {
    ...answer,
    isKeptUp: answer.deployments?.length !== 1 || answer.deployments[0].standby !== undefined, // by nodes: not what one serve tells of itself
    may: answer.may ?? { manage: false, sentence: "" },
    nodes: list(answer.nodes).map(nodeOf).toSorted((x, y) => (x.name < y.name ? -1 : 1)), // the same at every machine
    links: list(answer.links),
    deployments: list(answer.deployments).map((d) => ({
      ...d,
      ...Object.fromEntries(["standby", "silent", "absent", "copies", "candidates"].map((name) => [name, list(d[name])])),
    })),
    events: list(answer.events).toSorted((x, y) => y.time - x.time),
    models: list(answer.models),
  };
}

export const isHere = (node) => node.state !== "lost" && node.state !== "left";
export const isServing = (deployment) => deployment.state === "listening";

const sum = (numbers) => numbers.reduce((a, b) => a + (b ?? 0), 0);

/* The headline: of machines, models and memory. */
export function totalsOf({ nodes, deployments }) {
  const here = nodes.filter(isHere);
  const known = here.filter((n) => n.memory != null && n.memory_free != null);
  return {
    machines: nodes.length,
    lost: nodes.length - here.length,
    models: deployments.length,
    serving: deployments.filter(isServing).length,
    memory: sum(known.map((n) => n.memory)),
    used: sum(known.map((n) => n.memory - n.memory_free)),
    tokens: sum(deployments.map((d) => d.tokens_per_second)),
    running: sum(deployments.map((d) => d.requests?.running)),
    waiting: sum(deployments.map((d) => d.requests?.waiting)),
  };
}

const linkKey = (l) => JSON.stringify([l.model, l.ranks, l.a, l.b, l.kind]);

/* What each link carries a second, if the server does not say it: from two answers; null where the count began again. */
export function withRates(links, time, before) {
  const old = new Map(before?.links.map((l) => [linkKey(l), l.bytes]));
  const seconds = time - (before?.time ?? time);
  return links.map((l) => {
    const was = old.get(linkKey(l));
    const known = was != null && l.bytes != null && l.bytes >= was && seconds > 0;
    return { ...l, rate: l.rate ?? (known ? (l.bytes - was) / seconds : null) };
  });
}

/* Links between the same two machines are one line of the graph, {a, b, links, rate}: names in order. */
export function pairsOf(links) {
  const pairs = new Map();
  for (const link of links) {
    const [a, b] = [link.a, link.b].sort();
    if (a === b) continue; // within a machine
    const key = JSON.stringify([a, b]);
    if (!pairs.has(key)) pairs.set(key, { key, a, b, links: [], rate: null });
    const pair = pairs.get(key);
    pair.links.push(link);
    if (link.rate != null) pair.rate = (pair.rate ?? 0) + link.rate;
  }
  return [...pairs.values()];
}

/* What a machine does for each model: serves (has a share of it), stands by, or cannot and why. */
export function rolesOf(node, deployments) {
  const roles = { serves: [], answers: [], standsBy: [], cannot: [] };
  for (const d of deployments) {
    const workers = node.workers.filter((w) => w.model === d.name);
    const standby = d.standby.find((s) => s.node === node.name);
    if (d.node === node.name) roles.answers.push(d.name);
    if (workers.length > 0) roles.serves.push({ deployment: d, workers });
    else if (d.node === node.name) roles.serves.push({ deployment: d, workers: [] });
    else if (standby && !standby.reason) roles.standsBy.push(d.name);
    else if (standby) roles.cannot.push({ name: d.name, ...standby });
  }
  return roles;
}

/* Those that may stand in for a model first, then those that cannot; without the lost and the one that answers now. */
export function placesFor(deployment, nodes) {
  const why = (n) => deployment.standby.find((s) => s.node === n.name);
  const rank = (n) => (why(n) ? (why(n).reason ? 2 : 0) : 1);
  return nodes
    .filter((n) => isHere(n) && n.name !== deployment.node)
    .map((n) => ({ name: n.name, able: why(n)?.reason === "", why: why(n)?.sentence || why(n)?.reason || "" }))
    .toSorted((x, y) => rank(x) - rank(y));
}

/* {state, word} of a machine as a whole. */
export function stateOf(node, roles) {
  if (!isHere(node)) return { state: node.state, word: node.state };
  if (roles.serves.length > 0) return { state: "serves", word: "serves" };
  if (roles.standsBy.length > 0) return { state: "standby", word: "stands by" };
  if (roles.cannot.length > 0) return { state: "cannot", word: "cannot stand in" };
  return { state: "idle", word: "idle" };
}

const PARTS = ["weights", "cache", "buffers"];

function bar(name, total, workers, free) {
  const known = workers.some((w) => PARTS.some((part) => w.memory?.[part] != null));
  const parts = (known ? PARTS : ["process"]).map((part) => ({ part, bytes: sum(workers.map((w) => w.memory?.[part])) }));
  const own = sum(parts.map((p) => p.bytes));
  const other = free == null ? 0 : Math.max(0, total - free - own);
  const left = Math.max(0, total - own - other);
  const all = [...parts, { part: "other", bytes: other }, { part: "free", bytes: left }];
  return { name, total, segments: all.filter((s) => s.bytes > 0).map((s) => ({ ...s, share: s.bytes / Math.max(total, own + other) })) };
}

/* The bars of a machine: its memory, and that of each device with memory of its own which computes. */
export function barsOf(node) {
  const own = node.devices.filter((d) => d.kind === "discrete" && d.memory_bytes);
  const deviceOf = (w) => own.find((d) => d.name === w.device);
  const bars = node.memory == null ? [] : [bar("memory", node.memory, node.workers.filter((w) => !deviceOf(w)), node.memory_free)];
  for (const device of own) {
    const workers = node.workers.filter((w) => deviceOf(w) === device);
    if (workers.length > 0) bars.push(bar(device.name, device.memory_bytes, workers, null));
  }
  return bars;
}

/* Seconds until a copy is whole; null where nobody can say. */
export function leftOf(copy) {
  if (copy.left_s != null) return copy.left_s;
  return copy.rate > 0 && copy.total >= copy.bytes ? (copy.total - copy.bytes) / copy.rate : null;
}

const eventKey = (e) => JSON.stringify([e.time, e.kind, e.node, e.model, e.sentence]);

/* The events that were not there before, oldest first; none at first. */
export function newsOf(events, before) {
  if (before == null) return [];
  const known = new Set(before.map(eventKey));
  return events.filter((e) => KINDS_THAT_MATTER.has(e.kind) && !known.has(eventKey(e))).reverse();
}

/* "layers 0-43 of 80", "heads 0-15 of 64" of a worker; all of them is said so. */
export function shareOf(worker, deployment) {
  const range = (name, part, total) => {
    if (!part) return null;
    const [begin, end] = part;
    if (begin === 0 && end === total) return `all ${total} ${name}`;
    const which = end - begin === 1 ? `${name.slice(0, -1)} ${begin}` : `${name} ${begin}\u2013${end - 1}`;
    return `${which}${total ? ` of ${total}` : ""}`;
  };
  return [worker.parts, range("layers", worker.layers, deployment?.layers), range("heads", worker.heads, deployment?.heads)].filter(Boolean);
}
