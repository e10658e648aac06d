// An MCP server on pipes with as many tools as its argument says, each of which answers at once.
import { createInterface } from "node:readline";

const schema = { type: "object", properties: { a: { type: "string", description: "Anything." } } };
const tools = Array.from({ length: Number(process.argv[2]) }, (_, number) => ({
  name: `f${number}`,
  description: `Does nothing, as number ${number} of many.`,
  inputSchema: schema,
}));
const answers = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name: "stub", version: "0" },
  }),
  "tools/list": () => ({ tools }),
  "tools/call": () => ({ content: [{ type: "text", text: "done" }] }),
  ping: () => ({}),
};
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const answer = answers[method];
  const error = { code: -32601, message: "not here" };
  const message = { jsonrpc: "2.0", id, ...(answer ? { result: answer(params ?? {}) } : { error }) };
  process.stdout.write(`${JSON.stringify(message)}\n`);
}
