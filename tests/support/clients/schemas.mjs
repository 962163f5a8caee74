// Constrained answers against an independent validator: node schemas.mjs URL MODEL N_SCHEMAS N_SEEDS.
// Schemas are made up from all that json_schema.h says it understands; each is asked for with several seeds at
// temperature 1.5 from a model of random weights, which would write anything. Whatever is finished must parse and
// validate (ajv). Not everything can be finished: a long text needs luck to end.
import assert from "node:assert/strict";
import Ajv from "ajv/dist/2020.js";
import formats from "ajv-formats";

const [url, model] = process.argv.slice(2);
const [nSchemas, nSeeds] = process.argv.slice(4).map(Number);
const MAX_TOKENS = 700, AT_ONCE = 8;

/* ---- made-up schemas ---------------------------------------------------------------------------- */

let state = 1;
const random = (n) => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * n);
};
const pick = (list) => list[random(list.length)];
const chance = (percent) => random(100) < percent;
const some = (list) => list.filter(() => chance(60));
const range = (n, make) => Array.from({ length: n }, (_, i) => make(i));

const values = ["red", "green", "a \"quoted\" one", "é", "\u{1f600}", "", 0, -1, 3.5, 1e6, true, false, null, ["x", 1], { k: "v" }];
const patterns = ["^[a-z]{1,6}$", "^\\d{3}-\\d{4}$", "^(foo|bar|baz)+$", "^[A-Z][a-z]*( [A-Z][a-z]*)?$", "^\\w+@\\w+\\.(com|org)$", "^[^\"\\\\]{0,5}$",
  "^#[0-9a-fA-F]{6}$", "^-?(0|[1-9]\\d*)$", "[aeiou]", "^x", "y$", "^.{2,4}$", "^a?b*c+$", "^(19|20)\\d\\d-[01]\\d$"];

const string = () => pick([
  () => ({ type: "string" }),
  () => ({ type: "string", maxLength: random(12) }),
  () => ({ type: "string", minLength: 1 + random(4), maxLength: 5 + random(20) }),
  () => ({ type: "string", pattern: pick(patterns) }),
  () => ({ type: "string", format: pick(["date", "time", "date-time", "uuid", "ipv4", "email"]) }),
])();
const integer = () => pick([
  () => ({ type: "integer" }),
  () => ({ type: "integer", minimum: random(200) - 100 }),
  () => ({ type: "integer", maximum: random(2000) - 1000 }),
  () => { const low = random(1000) - 500; return { type: "integer", minimum: low, maximum: low + random(300) }; },
  () => ({ type: "integer", exclusiveMinimum: 0, exclusiveMaximum: 2 + random(100) }),
  () => ({ type: "integer", multipleOf: pick([2, 5, 7, 10]) }),
])();
const number = () => pick([
  () => ({ type: "number" }),
  () => ({ type: "number", minimum: 0 }),
  () => ({ type: "number", minimum: 0, maximum: 1 }),
  () => ({ type: "number", minimum: -2.5, maximum: 17.25 }),
  () => ({ type: "number", exclusiveMaximum: random(50) }),
])();
const simple = () => pick([
  string, string, integer, integer, number,
  () => ({ type: "boolean" }), () => ({ type: "null" }),
  () => ({ enum: range(1 + random(5), () => pick(values)).filter((v, i, all) => all.indexOf(v) === i) }),
  () => ({ const: pick(values) }),
  () => ({ type: ["string", "null"] }), () => ({ type: ["integer", "boolean"] }),
  () => ({ type: "string", nullable: true, enum: ["on", "off", null] }),
])();

const list = (depth) => pick([
  () => ({ type: "array", items: any(depth - 1) }),
  () => ({ type: "array", items: any(depth - 1), maxItems: random(4) }),
  () => ({ type: "array", items: any(depth - 1), minItems: 1 + random(2), maxItems: 3 + random(3) }),
  () => ({ type: "array", prefixItems: [any(depth - 1), any(depth - 1)], items: false, minItems: 2 }),
  () => ({ type: "array", prefixItems: [any(depth - 1)], items: any(depth - 1) }),
  () => ({ type: "array", items: { enum: ["a", "b", "c", "d"] }, uniqueItems: true }),
])();
const names = ["a", "b", "id", "name", "the value", "größe", "x-y", "\"q\"", "items", "nested", "list"];
const object = (depth) => {
  const keys = some(names);
  const properties = Object.fromEntries(keys.map((k) => [k, any(depth - 1)]));
  return pick([
    () => ({ type: "object", properties, required: keys, additionalProperties: false }),
    () => ({ type: "object", properties, required: some(keys), additionalProperties: false }),
    () => ({ type: "object", properties, required: some(keys) }),
    () => ({ type: "object", properties, required: some(keys), additionalProperties: simple() }),
    () => ({ type: "object", additionalProperties: simple(), minProperties: random(2), maxProperties: 2 + random(2) }),
    () => ({ type: "object", propertyNames: { pattern: "^[a-z]{1,3}$" }, maxProperties: 3, additionalProperties: simple() }),
    () => ({ type: "object", patternProperties: { "^n_[a-z]+$": integer() }, additionalProperties: false, maxProperties: 3 }),
  ])();
};
const choice = (depth) => pick([
  () => ({ anyOf: range(2 + random(2), () => any(depth - 1)) }),
  // Kept apart by their types, since oneOf is read as anyOf.
  () => ({ oneOf: [string(), integer(), { type: "boolean" }, object(depth - 1)].slice(random(2)) }),
  () => ({ allOf: [{ type: "object", properties: { a: simple() }, required: ["a"] }, { type: "object", properties: { b: any(depth - 1) }, required: ["b"] }] }),
  () => ({ allOf: [{ type: "integer", minimum: random(10) }, { maximum: 20 + random(100) }] }),
])();
const any = (depth) => {
  if (depth <= 0) return simple();
  return pick([simple, simple, object, object, list, choice])(depth);
};
const recursive = () => pick([
  () => ({ $defs: { node: { type: "object", properties: { v: simple(), next: { anyOf: [{ type: "null" }, { $ref: "#/$defs/node" }] } },
    required: ["v", "next"], additionalProperties: false } }, $ref: "#/$defs/node" }),
  () => ({ type: "object", properties: { name: { $ref: "#/definitions/word" }, children: { type: "array", items: { $ref: "#" }, maxItems: 2 } },
    required: ["name"], additionalProperties: false, definitions: { word: { type: "string", maxLength: 5 } } }),
])();
const schema = () => (chance(8) ? recursive() : chance(10) ? choice(3) : chance(15) ? list(2) : object(2 + random(2)));

/* ---- asking ---------------------------------------------------------------------------------------- */

const ajv = new Ajv({ strict: false, allErrors: false });
formats(ajv);
const messages = [{ role: "user", content: "Go." }];
const count = { accepted: 0, refused: 0, finished: 0, cut: 0, tokens: 0, wrong: 0, barren: 0 };
const reasons = {};

async function ask(one) {
  const response_format = { type: "json_schema", json_schema: { name: "x", schema: one } };
  const r = await fetch(`${url}/v1/chat/completions`, { method: "POST",
    body: JSON.stringify({ model, messages, response_format, temperature: 1.5, top_k: 0, top_p: 1, min_p: 0, seed: 7, n: nSeeds, max_tokens: MAX_TOKENS }) });
  return { status: r.status, body: await r.json() };
}

function check(one, validate, choice) {
  if (choice.finish_reason !== "stop") return void count.cut++;
  count.finished++;
  try {
    const value = JSON.parse(choice.message.content);
    assert.ok(validate(value), ajv.errorsText(validate.errors));
  } catch (e) {
    count.wrong++;
    console.log(`FAILED ${e.message}\n  schema ${JSON.stringify(one)}\n  answer ${choice.message.content}`);
  }
}

async function worker() {
  while (count.accepted < nSchemas) {
    const one = schema();
    const validate = ajv.compile(one);
    count.accepted++;
    const { status, body } = await ask(one);
    if (status === 400) {
      count.accepted--;
      count.refused++;
      reasons[body.error.message] = (reasons[body.error.message] ?? 0) + 1;
      continue;
    }
    assert.equal(status, 200, JSON.stringify(body));
    const before = count.finished;
    for (const c of body.choices) check(one, validate, c);
    count.barren += count.finished === before;
    count.tokens += body.usage.completion_tokens;
  }
}

await Promise.all(range(AT_ONCE, worker));
console.log(`${count.accepted} schemas x ${nSeeds} seeds: ${count.finished} finished and ${count.wrong === 0 ? "all valid" : `${count.wrong} WRONG`}, ` +
  `${count.cut} cut off after ${MAX_TOKENS} tokens (${count.barren} schemas without any answer), ${count.tokens} tokens; ${count.refused} schemas refused`);
for (const [why, n] of Object.entries(reasons)) console.log(`  refused ${n} times: ${why}`);
// A test of nothing would be one in which little is finished.
assert.ok(count.finished > 0.7 * nSchemas * nSeeds, "too few answers came to their end");
assert.ok(count.refused < 0.2 * nSchemas, "too many schemas were refused");
assert.equal(count.wrong, 0);
