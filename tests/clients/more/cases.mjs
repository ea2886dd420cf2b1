// What the checks of Node.js clients share. See cases.py, which does the same for Python.
import fs from "node:fs";
import { z } from "zod";

export const server = process.argv[2];
export const url = server + "/v1";
export const model = "demo";
export const question = "Tell me a story.";
export const limit = 200; // tokens of a structured answer
export const endObject = { 92: 100 }; // a logit bias on "}": in JSON mode the demo model would not end an object before the limit

// Has no strings, numbers or lists without end, and no bounds either: some clients remove them.
export const Person = z.strictObject({
  name: z.enum(["Ann", "Bob"]),
  tall: z.boolean(),
  address: z.strictObject({ city: z.enum(["Paris", "Rome"]) }),
  drink: z.enum(["tea", "coffee"]).nullable(),
});
export const Weather = z.object({ city: z.string().max(12) });
export const weather = { name: "weather", description: "The weather.", parameters: z.toJSONSchema(Weather) };

const cases = [];
export const add = (client, feature, call, unsupported) => cases.push({ client, feature, call, unsupported });

// The server's own words, if it or what caused it is an answer of 400 or 404.
const rejected = (e) => e && ([400, 404].includes(e.status ?? e.statusCode) ? e.message : rejected(e.cause ?? e.lastError));

async function outcome({ call, unsupported }) {
  try {
    await call();
  } catch (e) {
    if (unsupported && rejected(e)) return ["unsupported", unsupported];
    console.error(e);
    return ["FAIL", `${e.name}: ${e.message}`.slice(0, 300)];
  }
  return unsupported ? ["FAIL", `passes, but is declared unsupported: ${unsupported}`] : ["pass", ""];
}

// Runs this file's cases and prints a line of JSON for each.
export async function run(name) {
  const { version } = JSON.parse(fs.readFileSync(new URL(`./node_modules/${name}/package.json`, import.meta.url)));
  const only = process.argv[3] ?? "";
  for (const one of cases) {
    if (!`${one.client} ${one.feature}`.includes(only)) continue;
    const [result, why] = await outcome(one);
    console.log(JSON.stringify({ client: one.client, version, feature: one.feature, case: one.call.name, result, why }));
  }
}
