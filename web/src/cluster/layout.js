// layout.js: where the machines of the graph stand, and where its lines say what they carry. Pure functions.

const PAD = 6;

/* Machines that talk to each other stand side by side: from the one with most links along the links, the others after them. */
export function orderOf(names, pairs) {
  const neighbours = new Map(names.map((name) => [name, []]));
  for (const { a, b } of pairs)
    if (neighbours.has(a) && neighbours.has(b)) {
      neighbours.get(a).push(b);
      neighbours.get(b).push(a);
    }
  const degree = (name) => neighbours.get(name).length;
  const left = names.toSorted((x, y) => degree(y) - degree(x) || names.indexOf(x) - names.indexOf(y));
  const order = [];
  const visit = (name) => {
    if (order.includes(name)) return;
    order.push(name);
    neighbours.get(name).toSorted((x, y) => degree(y) - degree(x)).forEach(visit);
  };
  left.forEach(visit);
  return order;
}

/* n points on a circle as [x, y], stretched to -1..1 both ways; the first two are at the top where there are more than three. */
function ringOf(n) {
  const turn = n === 2 ? Math.PI : n === 3 ? -Math.PI / 2 : -Math.PI / 2 - Math.PI / n;
  const angles = Array.from({ length: n }, (_, i) => turn + (2 * Math.PI * i) / n);
  const stretched = (values) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return values.map((v) => (high - low > 1e-9 ? (2 * (v - low)) / (high - low) - 1 : 0));
  };
  const ys = stretched(angles.map(Math.sin));
  return stretched(angles.map(Math.cos)).map((x, i) => [Math.sign(x) * Math.abs(x) ** 0.6, ys[i]]); // away from the middle
}

const RING_HEIGHTS = { wide: [0, 0, 60, 210, 230], narrow: [0, 0, 60, 230, 260] };

/* {width, height, box, narrow, places: name -> {x, y}}, centres: those that have links on a ring, the others in rows below it. */
export function placesOf(order, pairs, width) {
  const narrow = width < 520;
  const box = narrow ? { width: 92, height: 42 } : { width: 132, height: 46 };
  const linked = order.filter((name) => pairs.some((p) => p.a === name || p.b === name));
  const rest = order.filter((name) => !linked.includes(name));
  const places = new Map();
  const put = (name, x, y) => places.set(name, { x: Math.round(x), y: Math.round(y) });
  const n = linked.length;
  const ring = n === 0 ? 0 : (RING_HEIGHTS[narrow ? "narrow" : "wide"][n] ?? 250 + 20 * n) + 2 * PAD;
  const rx = Math.min((width - box.width) / 2 - PAD, n === 2 ? 190 : 330);
  const ry = (ring - box.height) / 2 - PAD;
  ringOf(n).forEach(([x, y], i) => put(linked[i], width / 2 + x * rx, ring / 2 + y * ry));
  const columns = Math.max(1, Math.min(rest.length, Math.floor((width - 2 * PAD + 12) / (box.width + 12))));
  rest.forEach((name, i) => {
    const row = Math.floor(i / columns);
    const inRow = Math.min(columns, rest.length - row * columns);
    const x = width / 2 + ((i % columns) - (inRow - 1) / 2) * (box.width + 12);
    put(name, x, ring + (ring > 0 ? 16 : PAD) + row * (box.height + 12) + box.height / 2);
  });
  const rows = Math.ceil(rest.length / columns);
  return { width, height: ring + (rows > 0 ? (ring > 0 ? 16 : PAD) + rows * (box.height + 12) : 0), box, narrow, places };
}

const overlap = (p, q) =>
  Math.abs(p.x - q.x) < (p.width + q.width) / 2 && Math.abs(p.y - q.y) < (p.height + q.height) / 2;

/* Does the line from p to q come into the box? */
function crosses(box, p, q) {
  let [from, to] = [0, 1]; // the part of the line that is within
  for (const [at, start, end, half] of [[box.x, p.x, q.x, box.width / 2], [box.y, p.y, q.y, box.height / 2]]) {
    if (start === end && Math.abs(start - at) > half) return false;
    if (start === end) continue;
    const [t, u] = [(at - half - start) / (end - start), (at + half - start) / (end - start)];
    [from, to] = [Math.max(from, Math.min(t, u)), Math.min(to, Math.max(t, u))];
  }
  return from < to;
}

/* A place on its line for each label [{key, from, to, width, height}] where it covers neither a machine nor another label, nor, if
 * that can be, another line: key -> {x, y}. Those for which there is none are left out; the first ones are served first. */
export function labelsOf(wanted, { places, box }) {
  const taken = [...places.values()].map((p) => ({ ...p, width: box.width + 4, height: box.height + 4 }));
  const lines = wanted.filter((w) => places.has(w.from) && places.has(w.to));
  const found = new Map();
  for (const line of lines) {
    const [p, q] = [places.get(line.from), places.get(line.to)];
    const free = [0.5, 0.42, 0.58, 0.34, 0.66, 0.27, 0.73]
      .map((t) => ({ ...line, x: p.x + (q.x - p.x) * t, y: p.y + (q.y - p.y) * t }))
      .filter((label) => !taken.some((other) => overlap(label, other)));
    const alone = free.find((label) => !lines.some((l) => l !== line && crosses(label, places.get(l.from), places.get(l.to))));
    const label = alone ?? free[0];
    if (label === undefined) continue;
    taken.push(label);
    found.set(line.key, { x: Math.round(label.x), y: Math.round(label.y) });
  }
  return found;
}
