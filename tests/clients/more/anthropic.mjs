// @anthropic-ai/sdk over Messages: chat, streams, structured output, tools.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { add, limit, model, Person, question, run, server, weather } from "./cases.mjs";

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

add(name, "tools", async function callTools() {
  const { parameters, ...rest } = weather;
  await client.messages.create({ ...ask, tools: [{ ...rest, input_schema: parameters }], tool_choice: { type: "any" } });
}, "tools in Messages");

await run("@anthropic-ai/sdk");
