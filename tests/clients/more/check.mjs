// openai-node against a server: models, chat, streams, tools, errors. By hand, since it needs a Node.js:
//
//   cd tests/clients/more && npm ci --ignore-scripts
//   node check.mjs http://127.0.0.1:8000/v1
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Tell me a story." }];
const ask = { model: "demo", messages, max_tokens: 24, temperature: 0 };
const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } }];

assert.equal((await client.models.list()).data[0].id, "demo");
assert.equal((await client.models.retrieve("demo")).object, "model");

const whole = await client.chat.completions.create(ask);
assert.ok(whole.choices[0].message.content && whole.usage.completion_tokens <= 24 && whole._request_id);

let text = "", usage;
for await (const event of await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } })) {
  text += event.choices[0]?.delta.content ?? "";
  usage = event.usage ?? usage;
}
assert.equal(text, whole.choices[0].message.content);
assert.equal(usage.completion_tokens, whole.usage.completion_tokens);

const final = await client.chat.completions.stream({ ...ask, n: 2 }).finalChatCompletion(); // the helper that joins deltas
assert.deepEqual(final.choices.map((c) => [c.index, c.message.role]), [[0, "assistant"], [1, "assistant"]]);
assert.equal(final.choices[0].message.content, text);
assert.ok((await client.chat.completions.create({ ...ask, tools, tool_choice: "auto" })).choices[0].message);

const words = await client.completions.create({ model: "demo", prompt: "Once upon a time", max_tokens: 8, logprobs: 2 });
assert.equal(words.choices[0].logprobs.tokens.length, words.usage.completion_tokens);

const answer = await client.responses.create({ model: "demo", input: "Tell me a story.", max_output_tokens: 24, temperature: 0 });
assert.equal(answer.output_text, text);
let said = "";
for await (const event of await client.responses.create({ model: "demo", input: "Tell me a story.", max_output_tokens: 24, temperature: 0, stream: true }))
  if (event.type === "response.output_text.delta") said += event.delta;
assert.equal(said, text);

const fails = (call, kind, check) => assert.rejects(call, (e) => e instanceof kind && e.requestID && check(e));
await fails(client.chat.completions.create({ ...ask, model: "x" }), OpenAI.NotFoundError, (e) => e.code === "model_not_found");
await fails(client.chat.completions.create({ ...ask, temperature: 9 }), OpenAI.BadRequestError, (e) => e.param === "temperature");
await fails(client.chat.completions.create({ ...ask, tools, tool_choice: "required" }), OpenAI.BadRequestError, (e) => e.code === "unsupported_parameter");
await fails(client.completions.create({ model: "demo", prompt: "word ".repeat(5000) }), OpenAI.BadRequestError, (e) => e.code === "context_length_exceeded");
await fails(client.embeddings.create({ model: "demo", input: "x" }), OpenAI.NotFoundError, (e) => e.code === "unknown_url");

const stopped = await client.chat.completions.create({ ...ask, max_tokens: 500, stream: true, ignore_eos: true });
for await (const event of stopped) break; // closes the connection
console.log("ok  openai-node");
