// api.js: the server's API as the page uses it. Addresses are relative, so that the page works below a prefix, too.
// What the bytes mean (server-sent events, Prometheus' text format, errors) is in pure functions.

import { samplingOf } from "./samplers.js";

export class ServerError extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

export const UNREACHABLE = "The server cannot be reached.";
export const ENDING = "The server is shutting down: it finishes the answers that it has begun, and takes no new questions.";
const ENDING_HEADER = "Lockstep-Ending"; // src/net/http.h
const CUT_OFF = "The connection ended before the answer did.";

/* A function that takes a stream's text piece by piece, cut anywhere, and returns the data of the events that are
 * complete. onComment gets what comments say; other fields are skipped. */
export function eventReader(onComment = () => {}) {
  let rest = "";
  let data = [];
  return (text) => {
    const lines = (rest + text).split(/\r\n|\n|\r(?!$)/); // a \r at the end may be half of a \r\n
    const events = [];
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith(":")) onComment(line.slice(1).trim());
      if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
      if (line !== "" || data.length === 0) continue;
      events.push(data.join("\n"));
      data = [];
    }
    return events;
  };
}

/* Samples of Prometheus' text format: name -> [{labels: {name: value}, value}]. Lines that are none are skipped. */
export function parseMetrics(text) {
  const metrics = new Map();
  for (const line of text.split("\n")) {
    const sample = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (sample === null) continue;
    const labels = {};
    for (const [, name, value] of (sample[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    const value = Number(sample[3].replace(/^([+-]?)Inf$/, "$1Infinity"));
    if (!metrics.has(sample[1])) metrics.set(sample[1], []);
    metrics.get(sample[1]).push({ labels, value });
  }
  return metrics;
}

/* The sentence of an error's body, {"error": {"message"}}, or one about its status. */
export function errorSentence(status, body) {
  try {
    const { error } = JSON.parse(body);
    const sentence = error?.message ?? error;
    if (typeof sentence === "string" && sentence !== "") return sentence;
  } catch {
    // no JSON: something between here and the server answered
  }
  return `The server answered with status ${status}.`;
}

/* The body of POST v1/chat/completions. Settings that are empty are left to the server, and so is the model "". With
 * `continuing` the last message is an answer that goes on. */
export function chatRequest(messages, settings, model = "", continuing = false) {
  const request = { messages, stream: true, stream_options: { include_usage: true }, ...samplingOf(settings) };
  if (model) request.model = model;
  if (settings.system?.trim()) request.messages = [{ role: "system", content: settings.system }, ...messages];
  if (continuing) request.continue_final_message = true;
  return request;
}

/* A header's value is of bytes: letters beyond ASCII go as UTF-8's, as other programs send them. */
export function bearer(key) {
  return `Bearer ${String.fromCharCode(...new TextEncoder().encode(key))}`;
}

async function request(path, key, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = bearer(key);
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options, headers });
  } catch (e) {
    throw e.name === "AbortError" ? e : new ServerError(0, UNREACHABLE);
  }
  return response;
}

async function needsSuccess(response) {
  if (response.headers.has(ENDING_HEADER)) throw new ServerError(response.status, ENDING);
  if (!response.ok) throw new ServerError(response.status, errorSentence(response.status, await response.text()));
  return response;
}

/* What a comment in a stream says of an answer that waits because a machine was lost; null if it says nothing of the kind. */
export function lossIn(comment) {
  const [, said] = /^lockstep (.*)/.exec(comment) ?? [];
  if (said === undefined) return null;
  try {
    const { lost, next, sentence } = JSON.parse(said);
    if (sentence) return sentence.replace("another node", "another machine").replace(", and the answer goes on", ", your answer goes on.");
    return lost ? `${lost} is lost; ${next ?? "another machine"} takes over, your answer goes on.` : null;
  } catch {
    return said;
  }
}

/* The chunks of a streamed answer, and {lost: sentence} while it waits for another machine.
 * Throws ServerError, or AbortError when the signal says so. */
export async function* streamChat(body, key, signal) {
  const headers = { "Content-Type": "application/json" };
  const options = { method: "POST", headers, body: JSON.stringify(body), signal };
  const response = await needsSuccess(await request("v1/chat/completions", key, options));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let lost = null;
  const events = eventReader((comment) => (lost = lossIn(comment) ?? lost));
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new ServerError(0, CUT_OFF);
      const complete = events(value);
      if (lost !== null) yield { lost };
      lost = null;
      for (const data of complete) {
        if (data === "[DONE]") return;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new ServerError(response.status, errorSentence(response.status, data));
        yield chunk;
      }
    }
  } catch (e) {
    throw e.name === "AbortError" || e instanceof ServerError ? e : new ServerError(0, CUT_OFF);
  } finally {
    reader.cancel().catch(() => {}); // what is left of a stream that broke is of no interest
  }
}

/* What the server says at a path, from JSON. */
export async function send(path, key, options) {
  return (await needsSuccess(await request(path, key, options))).json();
}

/* Of one model, since there may be several at that address, or "". */
function about(path, model) {
  return model ? `${path}?model=${encodeURIComponent(model)}` : path;
}

/* {state, why}: ok, loading, recovering, unhealthy, ending or unreachable. Without a model, or with one that the server does not
 * know: ok if there is one that is. */
export async function getHealth(model, signal) {
  try {
    const response = await request(about("health", model), "", { signal });
    if (response.status === 404 && model) return getHealth("", signal);
    if (response.headers.has(ENDING_HEADER)) return { state: "ending", why: "" };
    const { status, why } = await response.json();
    return response.ok ? { state: "ok", why: "" } : { state: status ?? "unreachable", why };
  } catch {
    return { state: "unreachable", why: "" };
  }
}

/* Their names. */
export async function getModels(key, signal) {
  const response = await needsSuccess(await request("v1/models", key, { signal }));
  return (await response.json()).data.map((m) => m.id);
}

export async function getMetrics(model, key, signal) {
  const response = await needsSuccess(await request(about("metrics", model), key, { signal }));
  return parseMetrics(await response.text());
}
