// openai-node: models, chat, completions, Responses, structured output, tools, errors.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { add, endObject, limit, model, Person, question, run, url, Weather, weather } from "./cases.mjs";

const name = "openai-node", responsesName = "openai-node, Responses";
const client = new OpenAI({ baseURL: url, apiKey: "none", maxRetries: 0 });
const ask = { model, messages: [{ role: "user", content: question }], max_tokens: limit, temperature: 0 };
const respond = { model, input: question, max_output_tokens: limit, temperature: 0 };
const tools = [{ type: "function", function: weather }];
const responseTools = [{ type: "function", ...weather }];
const personFormat = () => zodResponseFormat(Person, "person");

add(name, "chat", async function chat() {
  assert.equal((await client.models.list()).data[0].id, model);
  assert.equal((await client.models.retrieve(model)).object, "model");
  const whole = await client.chat.completions.create({ ...ask, max_tokens: 24 });
  assert.ok(whole.choices[0].message.content && whole.usage.completion_tokens <= 24 && whole._request_id);
  const words = await client.completions.create({ model, prompt: "Once upon a time", max_tokens: 8, logprobs: 2 });
  assert.equal(words.choices[0].logprobs.tokens.length, words.usage.completion_tokens);
});

add(name, "stream", async function stream() {
  const whole = await client.chat.completions.create(ask);
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
  const stopped = await client.chat.completions.create({ ...ask, max_tokens: 500, stream: true, ignore_eos: true });
  for await (const event of stopped) break; // closes the connection
});

add(name, "errors", async function errors() {
  const fails = (call, kind, check) => assert.rejects(call, (e) => e instanceof kind && e.requestID && check(e));
  await fails(client.chat.completions.create({ ...ask, model: "x" }), OpenAI.NotFoundError, (e) => e.code === "model_not_found");
  await fails(client.chat.completions.create({ ...ask, temperature: 9 }), OpenAI.BadRequestError, (e) => e.param === "temperature");
  await fails(client.chat.completions.create({ ...ask, tool_choice: "required" }), OpenAI.BadRequestError, (e) => e.param === "tool_choice");
  await fails(client.completions.create({ model, prompt: "word ".repeat(5000) }), OpenAI.BadRequestError, (e) => e.code === "context_length_exceeded");
  await fails(client.embeddings.create({ model, input: "x" }), OpenAI.BadRequestError, (e) => e.param === "model");
});

add(name, "JSON schema", async function parse() {
  const reply = await client.chat.completions.parse({ ...ask, response_format: personFormat() });
  Person.parse(reply.choices[0].message.parsed);
});

add(name, "JSON schema, stream", async function parseStream() {
  const reply = await client.chat.completions.stream({ ...ask, response_format: personFormat() }).finalChatCompletion();
  Person.parse(reply.choices[0].message.parsed);
});

add(name, "JSON mode", async function jsonMode() {
  const reply = await client.chat.completions.create({ ...ask, response_format: { type: "json_object" }, logit_bias: endObject });
  assert.equal(typeof JSON.parse(reply.choices[0].message.content), "object");
});

add(name, "tools", async function callTools() {
  for (const tool_choice of ["required", { type: "function", function: { name: "weather" } }]) {
    const reply = await client.chat.completions.create({ ...ask, tools, tool_choice });
    assert.equal(reply.choices[0].finish_reason, "tool_calls");
    Weather.parse(JSON.parse(reply.choices[0].message.tool_calls[0].function.arguments));
  }
  assert.ok((await client.chat.completions.create({ ...ask, tools, tool_choice: "auto" })).choices[0].message);
});

add(name, "tools, strict", async function strictTools() {
  const reply = await client.chat.completions.parse({ ...ask, tools: [{ type: "function", function: { ...weather, strict: true } }], tool_choice: "required" });
  Weather.parse(reply.choices[0].message.tool_calls[0].function.parsed_arguments);
});

add(name, "tools, stream", async function toolsStream() {
  const final = await client.chat.completions.stream({ ...ask, tools, tool_choice: "required" }).finalChatCompletion();
  Weather.parse(JSON.parse(final.choices[0].message.tool_calls[0].function.arguments));
});

add(responsesName, "chat", async function responses() {
  const answer = await client.responses.create(respond);
  assert.equal(answer.output_text, (await client.chat.completions.create(ask)).choices[0].message.content);
});

add(responsesName, "stream", async function responsesStream() {
  let said = "";
  for await (const event of await client.responses.create({ ...respond, stream: true })) if (event.type === "response.output_text.delta") said += event.delta;
  assert.equal(said, (await client.responses.create(respond)).output_text);
});

add(responsesName, "JSON schema", async function responsesParse() {
  Person.parse((await client.responses.parse({ ...respond, text: { format: zodTextFormat(Person, "person") } })).output_parsed);
});

add(responsesName, "tools", async function responsesTools() {
  const reply = await client.responses.create({ ...respond, tools: responseTools, tool_choice: "required" });
  const calls = reply.output.filter((item) => item.type === "function_call");
  Weather.parse(JSON.parse(calls[0].arguments));
  const results = calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: "done" }));
  assert.ok(await client.responses.create({ ...respond, input: results, previous_response_id: reply.id }));
});

add(responsesName, "tools, stream", async function responsesToolsStream() {
  const reply = await client.responses.stream({ ...respond, tools: responseTools, tool_choice: "required" }).finalResponse();
  Weather.parse(JSON.parse(reply.output[0].arguments));
});

await run("openai");
