// Vercel's AI SDK: its providers openai-compatible and openai, the latter over chat and Responses.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, Output, streamObject, streamText, tool } from "ai";
import { add, endObject, limit, model, Person, question, run, url, Weather } from "./cases.mjs";

const compatible = createOpenAICompatible({ name: "quire", baseURL: url, apiKey: "none", supportsStructuredOutputs: true, includeUsage: true });
const openai = createOpenAI({ baseURL: url, apiKey: "none" });
const common = { prompt: question, maxOutputTokens: limit, maxRetries: 0, temperature: 0 };
const tools = { weather: tool({ description: "The weather.", inputSchema: Weather }) };
const onError = ({ error }) => { throw error; };

for (const [name, use] of [["AI SDK, openai-compatible", compatible(model)], ["AI SDK, openai", openai.chat(model)]]) {
  const ask = { ...common, model: use };

  add(name, "chat", async function chat() {
    const reply = await generateText(ask);
    assert.ok(reply.text && reply.usage.outputTokens <= limit);
  });

  add(name, "stream", async function stream() {
    const reply = streamText({ ...ask, onError });
    let text = "";
    for await (const piece of reply.textStream) text += piece;
    assert.equal(text, (await generateText(ask)).text);
    assert.ok((await reply.usage).outputTokens > 0);
  });

  add(name, "errors", async function errors() {
    await assert.rejects(generateText({ ...ask, temperature: 9 }), (e) => e.statusCode === 400 && /temperature/.test(e.message));
  });

  add(name, "JSON schema", async function object() {
    Person.parse((await generateObject({ ...ask, schema: Person })).object);
    assert.ok(["tea", "coffee"].includes((await generateObject({ ...ask, output: "enum", enum: ["tea", "coffee"] })).object));
    Person.parse((await generateText({ ...ask, output: Output.object({ schema: Person }) })).output);
  });

  add(name, "JSON schema, stream", async function objectStream() {
    const reply = streamObject({ ...ask, schema: Person, onError });
    let pieces = 0;
    for await (const piece of reply.partialObjectStream) pieces += piece !== undefined;
    Person.parse(await reply.object);
    assert.ok(pieces > 1);
  });

  add(name, "tools", async function callTools() {
    for (const toolChoice of ["required", { type: "tool", toolName: "weather" }]) {
      const reply = await generateText({ ...ask, tools, toolChoice });
      assert.equal(reply.finishReason, "tool-calls");
      Weather.parse(reply.toolCalls[0].input);
    }
  });

  add(name, "tools, stream", async function toolsStream() {
    const reply = streamText({ ...ask, tools, toolChoice: "required", onError });
    let deltas = 0;
    for await (const part of reply.fullStream) deltas += part.type === "tool-input-delta";
    Weather.parse((await reply.toolCalls)[0].input);
    assert.ok(deltas > 0);
  });
}

add("AI SDK, openai-compatible", "JSON mode", async function jsonMode() {
  const reply = await generateObject({ ...common, model: compatible(model), output: "no-schema", providerOptions: { quire: { logit_bias: endObject } } });
  assert.deepEqual(reply.object, {});
});

add("AI SDK, Responses", "chat", async function responses() {
  assert.ok((await generateText({ ...common, model: openai.responses(model) })).text);
});

add("AI SDK, Responses", "JSON schema", async function responsesObject() {
  Person.parse((await generateObject({ ...common, model: openai.responses(model), schema: Person })).object);
});

add("AI SDK, Responses", "JSON schema, stream", async function responsesObjectStream() {
  const reply = streamObject({ ...common, model: openai.responses(model), schema: Person, onError });
  for await (const piece of reply.partialObjectStream); // nothing runs before somebody reads
  Person.parse(await reply.object);
});

add("AI SDK, Responses", "tools", async function responsesTools() {
  const reply = await generateText({ ...common, model: openai.responses(model), tools, toolChoice: "required" });
  assert.equal(reply.finishReason, "tool-calls");
  Weather.parse(reply.toolCalls[0].input);
});

add("AI SDK, Responses", "tools, stream", async function responsesToolsStream() {
  const reply = streamText({ ...common, model: openai.responses(model), tools, toolChoice: "required", onError });
  let deltas = 0;
  for await (const part of reply.fullStream) deltas += part.type === "tool-input-delta";
  Weather.parse((await reply.toolCalls)[0].input);
  assert.ok(deltas > 0);
});

await run("ai");
