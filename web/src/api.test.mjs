// What the server's bytes mean. node --test src/
import assert from "node:assert/strict";
import { test } from "node:test";
import { bearer, chatRequest, errorSentence, eventReader, lossIn, parseMetrics } from "./api.js";

test("events are the same however the stream is cut", () => {
  const stream = ': still at work\n\ndata: {"a": 1}\r\n\r\nevent: x\ndata: b\ndata: c\n\ndata:[DONE]\n\n';
  for (let size = 1; size <= stream.length; size++) {
    const read = eventReader();
    const events = [];
    for (let at = 0; at < stream.length; at += size) events.push(...read(stream.slice(at, at + size)));
    assert.deepEqual(events, ['{"a": 1}', "b\nc", "[DONE]"], `pieces of ${size}`);
  }
});

test("comments say that an answer waits because a machine was lost", () => {
  const comments = [];
  const read = eventReader((comment) => comments.push(comment));
  for (const piece of [': lockstep {"lost": "ra', 'ck"}\n\n: keep\ndata: 1\n\n']) read(piece);
  assert.deepEqual(comments, ['lockstep {"lost": "rack"}', "keep"]);
  assert.equal(lossIn('lockstep {"lost": "rack", "next": "shelf"}'), "rack is lost; shelf takes over, your answer goes on.");
  assert.equal(lossIn('lockstep {"lost": "rack", "next": null}'), "rack is lost; another machine takes over, your answer goes on.");
  assert.equal(lossIn('lockstep {"sentence": "wait"}'), "wait");
  assert.equal(
    lossIn('lockstep {"lost": "10.0.0.7", "next": null, "sentence": "10.0.0.7 is lost; the model is loaded again, and the answer goes on"}'),
    "10.0.0.7 is lost; the model is loaded again, your answer goes on.",
  );
  assert.equal(
    lossIn('lockstep {"lost": "rack", "next": "rack", "sentence": "rack begins again, and the answer goes on"}'),
    "rack begins again, your answer goes on.",
  );
  assert.equal(lossIn("lockstep is busy"), "is busy");
  assert.equal(lossIn("keep"), null);
});

test("metrics are read with their labels", () => {
  const metrics = parseMetrics('# HELP a b\na 1.5\nr{rank="0"} 2\nr{rank="1",x="\\"}"} 3\nh_bucket{le="+Inf"} 4\nbroken\n');
  assert.deepEqual(metrics.get("a"), [{ labels: {}, value: 1.5 }]);
  assert.deepEqual(metrics.get("r").map((s) => [s.labels.rank, s.value]), [["0", 2], ["1", 3]]);
  assert.equal(metrics.get("h_bucket")[0].value, 4);
  assert.equal(metrics.has("broken"), false);
});

test("an error is its sentence, or one about its status", () => {
  assert.equal(errorSentence(500, '{"error": {"message": "no"}}'), "no");
  assert.equal(errorSentence(500, '{"error": "no"}'), "no");
  assert.match(errorSentence(502, "<html>"), /status 502/);
});

test("empty settings are left to the server", () => {
  const messages = [{ role: "user", content: "hi" }];
  const plain = chatRequest(messages, { system: " ", temperature: "", seed: "7" });
  assert.deepEqual([plain.messages, plain.seed, "temperature" in plain], [messages, 7, false]);
  assert.equal(chatRequest(messages, { system: "Be brief." }).messages[0].role, "system");
  assert.equal("model" in plain, false);
  assert.equal(chatRequest(messages, {}, "m").model, "m");
  assert.equal("continue_final_message" in plain, false);
  assert.equal(chatRequest(messages, {}, "", true).continue_final_message, true);
});

test("a key of any letters can be sent, as UTF-8", () => {
  assert.equal(bearer("sesame"), "Bearer sesame");
  for (const key of ["\u043f\u0430\u0440\u043e\u043b\u044c", "\u201csesame\u201d", "\u{1f511}"]) {
    const sent = new Headers({ Authorization: bearer(key) }).get("Authorization");
    assert.equal(Buffer.from(sent, "latin1").toString("utf8"), `Bearer ${key}`);
  }
});
