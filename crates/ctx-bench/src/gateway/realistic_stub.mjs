// An MCP server on pipes with as many tools as its argument says, whose descriptions and schemas have the size of real
// ones: 2 KB each.
import { createInterface } from "node:readline";

const nouns =
  "issue repository invoice customer calendar event message channel document page ticket workflow deployment secret user team comment label milestone release".split(
    " ",
  );
const verbs = "create list get update delete search archive restore merge assign".split(" ");
const text = (description, more) => ({ type: "string", description, ...more });
const tool = (number) => {
  const noun = nouns[number % nouns.length];
  const verb = verbs[Math.floor(number / nouns.length) % verbs.length];
  return {
    name: `f${number}`,
    title: `${verb} ${noun}`,
    description:
      `${verb}s a ${noun} in the workspace number ${number}.\n\nReturns the ${noun} with all its fields. Requires the ` +
      `permission ${noun}:${verb}. The result is paginated when there are more than 100 items.`,
    inputSchema: {
      type: "object",
      additionalProperties: false,
      required: ["id", "title"],
      properties: {
        id: text(`The identifier of the ${noun}, as returned by list_${noun}.`),
        title: text("A short title shown in lists.", { maxLength: 256 }),
        body: text("The text in Markdown."),
        labels: { type: "array", items: { type: "string" }, description: "Labels; replaces the existing ones." },
        assignee: {
          type: "object",
          description: "Who is responsible.",
          properties: { login: text("Name."), email: text("Address.", { format: "email" }), notify: { type: "boolean" } },
        },
        state: text("The state to set.", { enum: ["open", "closed", "merged", "draft"] }),
        page: { type: "integer", minimum: 1, default: 1, description: "The page of the result." },
        per_page: { type: "integer", minimum: 1, maximum: 100, default: 30 },
        since: text("Only items updated after this time.", { format: "date-time" }),
      },
    },
    outputSchema: {
      type: "object",
      properties: {
        id: { type: "string" },
        url: { type: "string", format: "uri" },
        created_at: { type: "string", format: "date-time" },
        items: { type: "array", items: { type: "object", properties: { id: { type: "string" } } } },
      },
    },
  };
};
const tools = Array.from({ length: Number(process.argv[2]) }, (_, number) => tool(number));
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
