// The official clients against a running server: node clients.mjs URL MODEL. One line per check.
import assert from "node:assert/strict";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";

const [url, model] = process.argv.slice(2);
const messages = [{ role: "user", content: "What is a bit bucket?" }];
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const ollama = new Ollama({ host: url });
const schema = { type: "object", properties: { unit: { enum: ["C", "F"] } }, required: ["unit"] };
const units = ["C", "F"];
let failures = 0;

async function check(name, run) {
  try {
    await run();
    console.log(`ok ${name}`);
  } catch (e) {
    failures++;
    console.log(`FAILED ${name}: ${e.stack}`);
  }
}

const plain = { model, messages, max_tokens: 12, temperature: 0 };
let text;
await check("openai: chat, streamed, logprobs", async () => {
  const whole = await openai.chat.completions.create({ ...plain, logprobs: true, top_logprobs: 2 });
  text = whole.choices[0].message.content;
  assert.equal(whole.choices[0].logprobs.content.length, 12);
  const final = await openai.chat.completions.stream(plain).finalChatCompletion();
  assert.equal(final.choices[0].message.content, text);
});
await check("openai: tools round trip", async () => {
  const tools = [{ type: "function", function: { name: "look", parameters: schema } }];
  const first = await openai.chat.completions
    .stream({ model, messages, tools, tool_choice: "required", parallel_tool_calls: false })
    .finalChatCompletion();
  const call = first.choices[0].message.tool_calls[0];
  assert.ok(units.includes(JSON.parse(call.function.arguments).unit));
  const result = { role: "tool", tool_call_id: call.id, content: "20" };
  const told = [...messages, { role: "assistant", content: null, tool_calls: [call] }, result];
  await openai.chat.completions.create({ ...plain, messages: told, tools });
});
await check("openai: json_schema", async () => {
  const response_format = { type: "json_schema", json_schema: { name: "x", schema } };
  const r = await openai.chat.completions.create({ model, messages, response_format });
  assert.ok(units.includes(JSON.parse(r.choices[0].message.content).unit));
});
await check("openai: embeddings, list, errors", async () => {
  const e = await openai.embeddings.create({ model, input: ["a", "b"] });
  assert.ok(Math.abs(e.data[1].embedding.reduce((s, x) => s + x * x, 0) - 1) < 1e-4);
  assert.equal((await openai.models.list()).data[0].id, model);
  await assert.rejects(openai.chat.completions.create({ model: "other", messages }), OpenAI.NotFoundError);
  await assert.rejects(openai.chat.completions.create({ model, messages: [] }), OpenAI.BadRequestError);
});
await check("openai: abort in mid-stream", async () => {
  const stream = await openai.chat.completions.create({ model, messages, stream: true, ignore_eos: true });
  for await (const _ of stream) break;
  for (let i = 0; i < 30 && (await (await fetch(`${url}/health`)).json()).running > 0; i++)
    await new Promise((r) => setTimeout(r, 100));
  assert.equal((await (await fetch(`${url}/health`)).json()).running, 0);
});
await check("anthropic: messages, streamed, tokens, errors", async () => {
  assert.equal((await anthropic.messages.create(plain)).content[0].text, text);
  assert.equal(await anthropic.messages.stream(plain).finalText(), text);
  assert.ok((await anthropic.messages.countTokens({ model, messages })).input_tokens > 5);
  await assert.rejects(anthropic.messages.create({ ...plain, model: "other" }), Anthropic.NotFoundError);
});
await check("anthropic: tools", async () => {
  const tools = [{ name: "look", input_schema: schema }];
  const tool_choice = { type: "any", disable_parallel_tool_use: true };
  const m = await anthropic.messages
    .stream({ model, messages, max_tokens: 200, tools, tool_choice })
    .finalMessage();
  assert.equal(m.stop_reason, "tool_use");
  assert.ok(units.includes(m.content.at(-1).input.unit));
});
await check("ollama: chat, generate, format, list, show, embed, errors", async () => {
  const options = { num_predict: 12, temperature: 0 };
  assert.equal((await ollama.chat({ model, messages, options })).message.content, text);
  let streamed = "";
  const prompt = messages[0].content;
  for await (const part of await ollama.generate({ model, prompt, stream: true, options }))
    streamed += part.response;
  assert.equal(streamed, text);
  assert.ok(units.includes(JSON.parse((await ollama.chat({ model, messages, format: schema })).message.content).unit));
  assert.equal((await ollama.list()).models[0].name, model);
  assert.ok((await ollama.show({ model })).capabilities.includes("completion"));
  assert.equal((await ollama.embed({ model, input: ["a", "b"] })).embeddings.length, 2);
  await assert.rejects(ollama.chat({ model: "other", messages }), /does not exist/);
});
process.exit(failures > 0 ? 1 : 0);
