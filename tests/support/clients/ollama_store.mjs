// Ollama's own client at a deployment's port, and at a plain server: node ollama_store.mjs URL NAME BYTES [KEY ADMIN]. It pulls
// hf.co/org/tiny of BYTES, and deletes it; with the token of the cluster's admin it also copies the model NAME.
import assert from "node:assert/strict";
import { Ollama } from "ollama";

const [host, name, bytes, key, admin] = process.argv.slice(2);
const headers = key ? { Authorization: `Bearer ${key}`, "Lockstep-Admin": admin } : {};
const ollama = new Ollama({ host, headers });
const model = "hf.co/org/tiny";
const messages = [{ role: "user", content: "What is a bit bucket?" }];
const options = { temperature: 0, num_predict: 8 };

// Progress, whole.
const seen = [];
for await (const part of await ollama.pull({ model, stream: true })) seen.push(part);
assert.equal(seen.at(-1).status, "success");
const layers = seen.filter((part) => part.digest);
assert.ok(layers.length >= 2 && layers.every((part) => part.total === Number(bytes) && part.completed <= part.total), JSON.stringify(seen));
assert.equal(layers.at(-1).completed, Number(bytes));
assert.deepEqual(await ollama.pull({ model }), { status: "success" });
assert.deepEqual(await ollama.pull({ model: name }), { status: "success" });

// Errors, in the stream and as a status.
await assert.rejects(async () => {
  for await (const _ of await ollama.pull({ model: "hf.co/org/none", stream: true }));
}, /org\/none/);
await assert.rejects(ollama.pull({ model: "hf.co/org/none" }), { status_code: 404 });
await assert.rejects(ollama.pull({ model: "llama3.2" }), /hf\.co\/ORG\/REPO:QUANT/);
await assert.rejects(ollama.push({ model: name }), /not supported/);
await assert.rejects(ollama.create({ model: "x", from: name }), /not supported/);
await assert.rejects(ollama.delete({ model: name }), /is up/);
await assert.rejects(ollama.delete({ model: "none" }), { status_code: 404 });

if (admin) {
  const said = (await ollama.chat({ model: name, messages, options })).message.content;
  await assert.rejects(ollama.chat({ model, messages }), /lockstep up hf:org\/tiny puts it up/);
  await ollama.copy({ source: name, destination: "another" });
  assert.equal((await ollama.chat({ model: "another", messages, options })).message.content, said);
  assert.deepEqual((await ollama.list()).models.map((one) => one.name), [`${name}:latest`, "another:latest"]);
  assert.ok((await ollama.show({ model: "another" })).capabilities.includes("completion"));
  await ollama.delete({ model: "another" });
  await assert.rejects(ollama.chat({ model: "another", messages }), /does not exist here/);
  const remote = new Ollama({ host, headers: { Authorization: `Bearer ${key}`, "X-Forwarded-For": "10.0.0.7" } });
  await assert.rejects(remote.pull({ model }), { status_code: 403 });
} else {
  await assert.rejects(ollama.copy({ source: name, destination: "another" }), /--alias/);
}
await ollama.delete({ model });
await assert.rejects(ollama.delete({ model }), { status_code: 404 });
console.log("Ollama's client: pull, delete, copy");
