// @anthropic-ai/sdk over Messages: chat, streams, structured output, tools, thinking.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { add, limit, model, Person, question, run, server, Weather, weather } from "./cases.mjs";

const name = "anthropic-node";
const client = new Anthropic({ baseURL: server, apiKey: "none", maxRetries: 0 });
const ask = { model, max_tokens: limit, messages: [{ role: "user", content: question }] };
const format = () => ({ output_config: { format: zodOutputFormat(Person) } });

add(name, "chat", async function chat() {
  assert.ok((await client.messages.create(ask)).content[0].text);
});

add(name, "stream", async function stream() {
  const final = await client.messages.stream({ ...ask, temperature: 0 }).finalMessage();
  assert.equal(final.content[0].text, (await client.messages.create({ ...ask, temperature: 0 })).content[0].text);
});

add(name, "errors", async function errors() {
  await assert.rejects(client.messages.create({ ...ask, model: "x" }), Anthropic.NotFoundError);
  await assert.rejects(client.messages.create({ ...ask, temperature: 9 }), Anthropic.BadRequestError);
});

add(name, "JSON schema", async function parse() {
  Person.parse((await client.messages.parse({ ...ask, ...format() })).parsed_output);
});

add(name, "JSON schema, stream", async function parseStream() {
  Person.parse((await client.messages.stream({ ...ask, ...format() }).finalMessage()).parsed_output);
});

const { parameters, ...rest } = weather;
const tool = { ...rest, input_schema: parameters };
const force = { tools: [tool], tool_choice: { type: "any" }, temperature: 0 };
const check = (call) => {
  assert.deepEqual([call.type, call.name], ["tool_use", "weather"]);
  Weather.parse(call.input);
};

add(name, "tools", async function callTools() {
  const reply = await client.messages.create({ ...ask, ...force });
  assert.equal(reply.stop_reason, "tool_use");
  const call = reply.content[0];
  check(call);
  check((await client.messages.create({ ...ask, ...force, tool_choice: { type: "tool", name: "weather" } })).content[0]);
  const result = { type: "tool_result", tool_use_id: call.id, content: "sunny" };
  const messages = [...ask.messages, { role: "assistant", content: reply.content }, { role: "user", content: [result] }];
  assert.ok((await client.messages.create({ ...ask, max_tokens: 16, messages, tools: [tool] })).content);
});

add(name, "tools, strict", async function strictTools() {
  check((await client.messages.create({ ...ask, ...force, tools: [{ ...tool, strict: true }] })).content[0]);
});

add(name, "tools, stream", async function toolsStream() {
  let deltas = 0;
  const stream = client.messages.stream({ ...ask, ...force }).on("inputJson", () => deltas++);
  const final = await stream.finalMessage();
  check(final.content[0]);
  assert.ok(deltas > 1 && final.stop_reason === "tool_use");
});

// The template opens the thinking. The demo model does not end it.
const think = { ...ask, max_tokens: 1100, thinking: { type: "enabled", budget_tokens: 1024 }, temperature: 0 };

add(name, "thinking", async function thinking() {
  const block = (await client.messages.create(think)).content[0];
  assert.ok(block.type === "thinking" && block.thinking && block.signature);
});

add(name, "thinking, stream", async function thinkingStream() {
  let text = "";
  const final = await client.messages.stream(think).on("thinking", (piece) => (text += piece)).finalMessage();
  assert.equal(text, final.content[0].thinking);
  assert.ok(text && final.content[0].signature);
});

await run("@anthropic-ai/sdk");
