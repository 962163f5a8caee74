// The official clients against a running server: node clients.mjs URL MODEL PID. One line per check.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, embedMany, generateObject, generateText, jsonSchema, streamText, tool } from "ai";

const [url, model, pid] = process.argv.slice(2);
const messages = [{ role: "user", content: "What is a bit bucket?" }];
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const ollama = new Ollama({ host: url });
const provider = createOpenAICompatible({ name: "lockstep", baseURL: `${url}/v1`, supportsStructuredOutputs: true });
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

/* What the server does: its counters twice, a second apart, and where each of its threads is. */
async function describeServer() {
  const read = (path) => { try { return readFileSync(path, "utf8").trim(); } catch (e) { return e.code; } };
  const counters = async () => (await (await fetch(`${url}/metrics`)).text()).split("\n").filter((l) => !/^#|_bucket| 0$/.test(l));
  const threads = () => readdirSync(`/proc/${pid}/task`).map((t) =>
    ["stat", "wchan", "stack"].map((name) => read(`/proc/${pid}/task/${t}/${name}`)).join("\n"));
  const seen = [...await counters(), ...threads()];
  await new Promise((r) => setTimeout(r, 1000));
  seen.push("a second later:", ...await counters(), ...threads());
  const gdb = spawnSync("gdb", ["-p", pid, "-batch", "-ex", "thread apply all bt 16"], { encoding: "utf8", timeout: 60000 });
  return [...seen, gdb.stdout ?? gdb.error.code].join("\n");
}

/* What a client gave up is no longer computed. A machine may stand still for long, a server may not. */
async function becomesIdle() {
  const running = async () => (await (await fetch(`${url}/health`)).json()).running;
  for (let i = 0; i < 600 && (await running()) > 0; i++) await new Promise((r) => setTimeout(r, 100));
  if ((await running()) > 0) assert.fail(`still running: ${await describeServer()}`);
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
  await becomesIdle();
});
await check("openai: completions with logprobs", async () => {
  const r = await openai.completions.create({ model, prompt: "A bit", max_tokens: 4, logprobs: 2, temperature: 0 });
  assert.equal(r.choices[0].logprobs.tokens.length, 4);
  assert.equal(r.choices[0].logprobs.tokens.join(""), r.choices[0].text);
});

/* ---- the Responses API ---- */
const asked = { model, input: messages[0].content, max_output_tokens: 12, temperature: 0 };
await check("responses: whole, remembered, gone on from, forgotten", async () => {
  const first = await openai.responses.create({ ...asked, metadata: { a: "b" } });
  assert.equal(first.output_text, text);
  assert.equal(first.status, "incomplete");
  assert.equal(first.incomplete_details.reason, "max_output_tokens");
  assert.equal(first.usage.output_tokens, 12);
  assert.equal(first.metadata.a, "b");
  const second = await openai.responses.create({ ...asked, input: "Why?", previous_response_id: first.id });
  const told = [...messages, { role: "assistant", content: text }, { role: "user", content: "Why?" }];
  const chat = await openai.chat.completions.create({ ...plain, messages: told });
  assert.equal(second.output_text, chat.choices[0].message.content);
  assert.equal(second.usage.input_tokens, chat.usage.prompt_tokens);
  assert.equal((await openai.responses.retrieve(first.id)).output_text, text);
  await openai.responses.delete(first.id);
  await assert.rejects(openai.responses.retrieve(first.id), OpenAI.NotFoundError);
  await assert.rejects(openai.responses.create({ ...asked, previous_response_id: first.id }), OpenAI.BadRequestError);
  const unstored = await openai.responses.create({ ...asked, store: false });
  await assert.rejects(openai.responses.retrieve(unstored.id), OpenAI.NotFoundError);
});
await check("responses: streamed", async () => {
  const kinds = [];
  let streamed = "", number = 0, final;
  for await (const e of await openai.responses.create({ ...asked, stream: true })) {
    assert.equal(e.sequence_number, number++);
    if (kinds.at(-1) !== e.type) kinds.push(e.type);
    if (e.type === "response.output_text.delta") streamed += e.delta;
    final = e.response;
  }
  assert.deepEqual(kinds, [
    "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
    "response.output_text.delta", "response.output_text.done", "response.content_part.done",
    "response.output_item.done", "response.incomplete"]);
  assert.equal(streamed, text);
  const helper = await openai.responses.stream(asked).finalResponse();
  assert.equal(helper.output_text, text);
  assert.equal(final.output[0].content[0].text, text);
  assert.deepEqual(helper.usage.output_tokens, final.usage.output_tokens);
});
const long = { model, input: messages, max_output_tokens: 4000, temperature: 0, ignore_eos: true };
const wordsOf = (events) => events.filter((e) => e.type === "response.output_text.delta").map((e) => e.delta).join("");
await check("responses: in the background, polled", async () => {
  let r = await openai.responses.create({ ...asked, background: true });
  assert.equal(r.status, "queued");
  for (let i = 0; i < 600 && ["queued", "in_progress"].includes(r.status); i++) {
    await new Promise((done) => setTimeout(done, 100));
    r = await openai.responses.retrieve(r.id);
  }
  assert.equal(r.status, "incomplete");
  assert.equal(r.output_text, text);
  const { output_text, ...told } = r; // which the client itself adds, but not to what is cancelled
  assert.deepEqual(await openai.responses.cancel(r.id), told);
  const direct = await openai.responses.create(asked);
  await assert.rejects(openai.responses.cancel(direct.id), OpenAI.BadRequestError);
});
await check("responses: in the background, streamed again from where the client was", async () => {
  const whole = await openai.responses.create(long);
  const events = [];
  for await (const e of await openai.responses.create({ ...long, background: true, stream: true })) {
    events.push(e);
    if (events.length === 20) break; // this client goes away
  }
  const { id } = events[0].response;
  assert.equal((await openai.responses.retrieve(id)).status, "in_progress");
  for await (const e of await openai.responses.retrieve(id, { stream: true, starting_after: events.at(-1).sequence_number }))
    events.push(e);
  assert.deepEqual(events.map((e) => e.sequence_number), events.map((_, i) => i));
  assert.equal(wordsOf(events), whole.output_text);
  const helper = await openai.responses.stream({ response_id: id }).finalResponse();
  assert.equal(helper.output_text, whole.output_text);
});
await check("responses: in the background, cancelled", async () => {
  const events = [];
  let cancelled;
  for await (const e of await openai.responses.create({ ...long, background: true, stream: true })) {
    events.push(e);
    if (events.length === 20) cancelled = await openai.responses.cancel(events[0].response.id);
  }
  assert.equal(cancelled.status, "cancelled");
  assert.equal(cancelled.output[0].content[0].text, wordsOf(events));
  assert.deepEqual(await openai.responses.cancel(cancelled.id), cancelled);
  assert.equal((await openai.responses.retrieve(cancelled.id)).output_text, wordsOf(events));
  await openai.responses.delete(cancelled.id);
  await assert.rejects(openai.responses.retrieve(cancelled.id), OpenAI.NotFoundError);
  await becomesIdle();
});
await check("responses: instructions, items, logprobs", async () => {
  const input = [{ role: "developer", content: "Be brief." },
    { role: "user", content: [{ type: "input_text", text: "What is" }, { type: "input_text", text: " a bit bucket?" }] }];
  const r = await openai.responses.create({ ...asked, input, instructions: "You know machines.",
    include: ["message.output_text.logprobs"], top_logprobs: 2 });
  const system = { role: "system", content: "You know machines.\n\nBe brief." };
  const chat = await openai.chat.completions.create({ ...plain, messages: [system, ...messages] });
  assert.equal(r.output_text, chat.choices[0].message.content);
  assert.equal(r.output[0].content[0].logprobs.length, 12);
  assert.equal(r.output[0].content[0].logprobs[0].top_logprobs.length, 2);
});
await check("responses: tools round trip", async () => {
  const tools = [{ type: "function", name: "look", parameters: schema, strict: true }];
  const turn = { model, input: messages, tools, tool_choice: "required", parallel_tool_calls: false };
  const r = await openai.responses.stream(turn).finalResponse();
  const call = r.output[0];
  assert.equal(r.status, "completed");
  assert.equal(call.type, "function_call");
  assert.ok(units.includes(JSON.parse(call.arguments).unit));
  const result = { type: "function_call_output", call_id: call.call_id, output: "20" };
  const byId = await openai.responses.create({ ...asked, input: [result], tools, previous_response_id: r.id });
  const byItems = await openai.responses.create({ ...asked, input: [...messages, call, result], tools });
  assert.equal(byId.output_text, byItems.output_text);
  assert.ok(byId.usage.input_tokens > r.usage.input_tokens);
});
await check("responses: tools as agents send them", async () => {
  const look = { type: "function", name: "look", parameters: schema, strict: false };
  const tools = [{ type: "namespace", name: "eyes", description: "To see.", tools: [look] }, { type: "web_search" }];
  const turn = { model, input: messages, tools, tool_choice: "required", parallel_tool_calls: false };
  const r = await openai.responses.create(turn);
  const call = r.output.find((item) => item.type === "function_call");
  assert.deepEqual([call.namespace, call.name], ["eyes", "look"]);
  const result = { type: "function_call_output", call_id: call.call_id, output: "20" };
  await openai.responses.create({ ...asked, input: [...messages, call, result], tools });
});
await check("responses: json_schema, errors, abort", async () => {
  const format = { type: "json_schema", name: "x", schema };
  const r = await openai.responses.create({ model, input: messages, text: { format } });
  assert.ok(units.includes(JSON.parse(r.output_text).unit));
  await assert.rejects(openai.responses.create({ ...asked, model: "other" }), OpenAI.NotFoundError);
  for (const bad of [{ input: 3 }, { input: [] }, { input: [{ type: "computer_call" }] }, { background: true, store: false },
    { tools: [{ type: "web_search" }] }, { text: { format: { type: "xml" } } }])
    await assert.rejects(openai.responses.create({ ...asked, ...bad }), OpenAI.BadRequestError);
  const stream = await openai.responses.create({ model, input: messages, stream: true, ignore_eos: true });
  for await (const e of stream) if (e.type === "response.output_text.delta") break;
  await becomesIdle();
});

await check("responses: input_items, input_tokens, custom tools", async () => {
  const input = [{ role: "user", content: "one" }, { role: "assistant", content: "two" }, { role: "user", content: "three" }];
  const r = await openai.responses.create({ ...asked, input });
  const items = [];
  for await (const item of openai.responses.inputItems.list(r.id, { order: "asc", limit: 2 })) items.push(item.content[0].text);
  assert.deepEqual(items, ["one", "two", "three"]);
  assert.equal((await openai.responses.inputTokens.count({ model, input })).input_tokens, r.usage.input_tokens);
  const patch = { type: "custom", name: "patch", description: "Changes a file." };
  const turn = { model, input: messages, tools: [patch], tool_choice: { type: "custom", name: "patch" }, max_output_tokens: 400 };
  const call = (await openai.responses.create(turn)).output.find((item) => item.type === "custom_tool_call");
  assert.equal(typeof call.input, "string");
  const result = { type: "custom_tool_call_output", call_id: call.call_id, output: "done" };
  await openai.responses.create({ ...asked, input: [...messages, call, result], tools: [patch] });
});
await check("openai: fields of vLLM and llama.cpp, echo", async () => {
  const limit = { model, max_tokens: 60 };
  for (const form of [{ guided_choice: ["on", "off"] }, { structured_outputs: { regex: "on|off" } }, { grammar: 'root ::= "on" | "off"' }])
    assert.match((await openai.chat.completions.create({ ...limit, messages, ...form })).choices[0].message.content, /^(on|off)$/);
  const even = await openai.completions.create({ model, prompt: "A bit", max_tokens: 20, min_tokens: 20, ignore_eos: true });
  assert.equal(even.usage.completion_tokens, 20);
  await assert.rejects(openai.completions.create({ model, prompt: "A bit", best_of: 3 }), /use n/);
  const { logprobs, text: echoed } = (await openai.completions.create({ model, prompt: "A bit", max_tokens: 0, echo: true, logprobs: 1 })).choices[0];
  assert.equal(echoed, "A bit");
  assert.deepEqual([logprobs.tokens.join(""), logprobs.token_logprobs[0]], ["A bit", null]);
});
await check("openai: embeddings with dimensions", async () => {
  const { data } = await openai.embeddings.create({ model, input: "a bit bucket", dimensions: 16 });
  assert.equal(data[0].embedding.length, 16);
});

/* ---- Anthropic ---- */
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
await check("anthropic: tool results, abort in mid-stream", async () => {
  const tools = [{ name: "look", input_schema: schema }];
  const told = [...messages, { role: "assistant", content: [{ type: "tool_use", id: "a", name: "look", input: { unit: "C" } }] },
    { role: "user", content: [{ type: "tool_result", tool_use_id: "a", content: "20" }] }];
  const m = await anthropic.messages.create({ ...plain, messages: told, tools });
  assert.equal(m.usage.output_tokens, 12);
  const stream = anthropic.messages.stream({ model, messages, max_tokens: 100000, ignore_eos: true });
  let usage;
  for await (const e of stream) {
    if (e.type === "message_start") usage = e.message.usage;
    if (e.type === "content_block_delta") break;
  }
  const { input_tokens } = await anthropic.messages.countTokens({ model, messages });
  assert.equal(usage.input_tokens + usage.cache_read_input_tokens, input_tokens);
  await becomesIdle();
});
await check("anthropic: the tool runner sends the whole conversation", async () => {
  const look = { type: "custom", name: "look", input_schema: schema, run: () => "20", parse: (v) => v };
  const tool_choice = { type: "any", disable_parallel_tool_use: true };
  const runner = anthropic.beta.messages.toolRunner({ ...plain, max_tokens: 100, tools: [look], tool_choice, max_iterations: 2 });
  const counts = [];
  for await (const m of runner) counts.push(m.usage.input_tokens + m.usage.cache_read_input_tokens);
  assert.ok(counts.length === 2 && counts[1] > counts[0], counts.join());
});

/* ---- Ollama ---- */
await check("ollama: chat, generate, format, list, show, embed, errors", async () => {
  const options = { num_predict: 12, temperature: 0 };
  assert.equal((await ollama.chat({ model, messages, options })).message.content, text);
  let streamed = "";
  const prompt = messages[0].content;
  for await (const part of await ollama.generate({ model, prompt, stream: true, options }))
    streamed += part.response;
  assert.equal(streamed, text);
  assert.ok(units.includes(JSON.parse((await ollama.chat({ model, messages, format: schema })).message.content).unit));
  assert.equal((await ollama.list()).models[0].name, `${model}:latest`);
  assert.ok((await ollama.show({ model })).capabilities.includes("completion"));
  assert.equal((await ollama.embed({ model, input: ["a", "b"] })).embeddings.length, 2);
  await assert.rejects(ollama.chat({ model: "other", messages }), /does not exist/);
});
await check("ollama: tool results, abort in mid-stream", async () => {
  const tools = [{ type: "function", function: { name: "look", description: "", parameters: schema } }];
  const told = [...messages, { role: "assistant", content: "", tool_calls: [{ function: { name: "look", arguments: { unit: "C" } } }] },
    { role: "tool", tool_name: "look", content: "20" }];
  const r = await ollama.chat({ model, messages: told, tools, options: { num_predict: 5 } });
  assert.equal(r.message.role, "assistant");
  const stream = await ollama.chat({ model, messages, stream: true, options: { num_predict: -1, ignore_eos: true } });
  await assert.rejects(async () => {
    for await (const _ of stream) stream.abort();
  }, { name: "AbortError" });
  await becomesIdle();
});

await check("ollama: log probabilities; template and context are refused", async () => {
  const options = { num_predict: 6, temperature: 0 };
  const r = await ollama.chat({ model, messages, logprobs: true, top_logprobs: 2, options });
  assert.equal(r.logprobs.map((t) => t.token).join(""), r.message.content);
  assert.equal(r.logprobs[0].top_logprobs.length, 2);
  for (const field of [{ template: "{{ .Prompt }}" }, { context: [1, 2] }])
    await assert.rejects(ollama.generate({ model, prompt: "hi", ...field }), /is not supported/);
});

/* ---- the AI SDK, which OpenCode and many others are made with ---- */
const chatModel = provider(model);
const settings = { model: chatModel, messages, maxOutputTokens: 12, temperature: 0, maxRetries: 0 };
await check("ai-sdk: text, streamed, usage", async () => {
  const whole = await generateText(settings);
  assert.equal(whole.text, text);
  assert.equal(whole.usage.outputTokens, 12);
  assert.equal(whole.finishReason, "length");
  const stream = streamText(settings);
  let streamed = "";
  for await (const piece of stream.textStream) streamed += piece;
  assert.equal(streamed, text);
});
await check("ai-sdk: tools round trip", async () => {
  const seen = [];
  const look = tool({ inputSchema: jsonSchema(schema), execute: async ({ unit }) => seen.push(unit) && "20" });
  const r = await generateText({ ...settings, maxOutputTokens: 100, tools: { look }, toolChoice: "required",
    stopWhen: ({ steps }) => steps.length === 2 });
  assert.ok(seen.length >= 2 && seen.every((unit) => units.includes(unit)));
  assert.equal(r.steps[0].finishReason, "tool-calls");
  const stream = streamText({ ...settings, maxOutputTokens: 100, tools: { look }, toolChoice: "required" });
  assert.equal((await stream.toolCalls)[0].toolName, "look");
});
await check("ai-sdk: json_schema, embeddings, errors, abort in mid-stream", async () => {
  const { object } = await generateObject({ ...settings, maxOutputTokens: 100, schema: jsonSchema(schema) });
  assert.ok(units.includes(object.unit));
  const { embeddings } = await embedMany({ model: provider.textEmbeddingModel(model), values: ["a", "b"] });
  assert.equal(embeddings.length, 2);
  await assert.rejects(generateText({ ...settings, model: provider("other") }), APICallError);
  const abort = new AbortController();
  const stream = streamText({ model: chatModel, messages, maxRetries: 0, abortSignal: abort.signal,
    providerOptions: { lockstep: { ignore_eos: true } } });
  for await (const _ of stream.textStream) {
    abort.abort();
    break;
  }
  await becomesIdle();
});
process.exit(failures > 0 ? 1 : 0);
