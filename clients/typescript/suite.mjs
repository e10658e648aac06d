// What programs made with the official TypeScript SDK rely on, claim by claim.
//
//     node suite.mjs v1|v2 URL PROGRAM CONFIG
//
// URL is where the server answers over HTTP; `PROGRAM -c CONFIG serve mcp --stdio` starts it over pipes, and
// `PROGRAM -c CONFIG runs` tells how calls ended. The two majors of the SDK differ in `v1.mjs` and `v2.mjs`.

import { execFile } from "node:child_process";
import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

// Far more than anything here takes; a claim that waits longer has failed.
const LIMIT_MS = 60_000;
// How long the slow tool would run if nobody stopped it.
const SLOW_SECONDS = 120;
// How many prompts there are besides those of the suite: more than one page of them.
const MANY_PROMPTS = 450;

// Error codes of JSON-RPC and, from 2026-07-28 on, of MCP.
const INVALID_PARAMS = -32602;
const MISSING_CAPABILITY = -32021;
// What an unknown resource was before it became invalid parameters.
const RESOURCE_NOT_FOUND = -32002;

const [major, url, program, config] = process.argv.slice(2);
const sdk = await import(`./${major}.mjs`);

const text = (result) => result.content.filter((block) => block.type === "text").map((block) => block.text).join("\n");
const within = (part, whole) => ok(whole.includes(part), `${JSON.stringify(part)} is not in ${JSON.stringify(whole)}`);
const names = (list) => list.map((entry) => entry.name);

function connect(setting, canAsk = true) {
  const stdio = { command: program, args: ["--trust", "-c", config, "serve", "mcp", "--stdio"] };
  const server = setting.transport === "http" ? { url } : stdio;
  return sdk.connect(server, setting.era, canAsk);
}

// Waits until the server has recorded the end of the slow call of this label.
async function howItEnded(label) {
  for (;;) {
    const filter = ["--json", "--tool", "tools.test_slow", "--limit", "1000"];
    const { stdout } = await promisify(execFile)(program, ["-c", config, "runs", ...filter]);
    const run = JSON.parse(stdout).runs.find((run) => run.arguments.label === label);
    if (run) return run.outcome;
    await sleep(200);
  }
}

const CLAIMS = {
  async "both sides agree on the version"(client, setting) {
    equal(client.version, setting.era);
  },

  async "tools are listed once each"(client) {
    const found = names(await client.every("tools"));
    equal(new Set(found).size, found.length);
    within("test_simple_text", found);
  },

  async "a tool is called"(client) {
    const result = await client.call("test_simple_text", {});
    ok(!result.isError);
    equal(text(result), "This is a simple text response for testing.");
  },

  async "a structured result fits its schema"(client) {
    // The SDK holds it against the schema that the list told, and throws where it does not fit.
    const tool = (await client.every("tools")).find((tool) => tool.name === "sources");
    ok(tool.outputSchema);
    ok((await client.call("sources", {})).structuredContent);
  },

  async "a tool that fails says why"(client) {
    const result = await client.call("test_error_handling", {});
    ok(result.isError);
    within("intentionally returns an error", text(result));
  },

  async "an unknown tool is refused"(client) {
    await rejects(client.call("no_such_tool", {}), { code: INVALID_PARAMS });
  },

  async "calls made at once get their own answers"(client, setting) {
    const labels = Array.from({ length: 8 }, (_, number) => `${setting.label} #${number}`);
    const answers = await Promise.all(labels.map((label) => client.call("test_slow", { label, seconds: 0 })));
    labels.forEach((label, index) => within(label, text(answers[index])));
  },

  async "progress arrives in order"(client) {
    const steps = [];
    const onprogress = ({ progress, total }) => steps.push([progress, total]);
    await client.call("test_tool_with_progress", {}, { onprogress });
    deepEqual(steps, [[0, 100], [50, 100], [100, 100]]);
  },

  async "log lines arrive"(client) {
    await client.logFrom("info");
    client.logged.length = 0;
    await client.call("test_tool_with_logging", {});
    while (client.logged.length < 3) await sleep(50);
    deepEqual(client.logged.map((line) => line.level), ["info", "info", "info"]);
    const lines = client.logged.map((line) => JSON.stringify(line.data));
    ["started", "processing", "completed"].forEach((part, index) => within(part, lines[index]));
  },

  async "a running call is cancelled"(client, setting) {
    const label = `${setting.label} cancelled`;
    const giveUp = new AbortController();
    const onprogress = () => giveUp.abort("no longer wanted");
    const options = { signal: giveUp.signal, onprogress, timeout: 2 * LIMIT_MS };
    await rejects(client.call("test_slow", { label, seconds: SLOW_SECONDS }, options), /no longer wanted/);
    // While the connection is open: that it ends, ends the call as well.
    equal((await howItEnded(label)).code, "cancelled");
  },

  async "the connection lives on after that"(client) {
    equal(text(await client.call("test_simple_text", {})), "This is a simple text response for testing.");
  },

  async "a question is answered"(client) {
    client.answer = { action: "accept", content: { username: "greta", email: "greta@example.com" } };
    const result = await client.call("test_elicitation", { message: "Who are you?" });
    ok(!result.isError, text(result));
    within("greta@example.com", text(result));
    equal(client.asked.at(-1), "Who are you?");
  },

  async "a question is declined"(client) {
    client.answer = { action: "decline" };
    within("declin", text(await client.call("test_elicitation", { message: "Who are you?" })));
  },

  async "a client that cannot ask is told so"(client, setting) {
    const mute = await connect(setting, false);
    const call = mute.call("test_elicitation", { message: "Who are you?" });
    if (setting.era >= "2026") await rejects(call, { code: MISSING_CAPABILITY });
    else within("does not support", text(await call));
    await mute.close();
  },

  async "prompts are listed and filled in"(client) {
    const found = names(await client.every("prompts"));
    within("test_simple_prompt", found);
    within("test_prompt_with_arguments", found);
    const simple = await client.prompt("test_simple_prompt");
    equal(simple.messages[0].content.text, "This is a simple prompt for testing.");
    const filled = await client.prompt("test_prompt_with_arguments", { arg1: "hello", arg2: "world" });
    equal(filled.messages[0].content.text, "Prompt with arguments: arg1='hello', arg2='world'");
  },

  async "every page of a list is read"(client) {
    const found = names(await client.every("prompts"));
    equal(new Set(found).size, found.length);
    equal(found.filter((name) => name.startsWith("many_")).length, MANY_PROMPTS);
  },

  async "an argument is completed"(client) {
    const ref = { type: "ref/prompt", name: "test_prompt_with_arguments" };
    const { completion } = await client.sdk.complete({ ref, argument: { name: "arg1", value: "he" } });
    deepEqual(completion.values, ["hello"]);
  },

  async "resources are listed and read"(client) {
    within("test://static-text", (await client.every("resources")).map((resource) => resource.uri));
    const { contents } = await client.read("test://static-text");
    equal(contents[0].text, "This is the content of the static text resource.");
  },

  async "a resource is made from a template"(client) {
    const templates = await client.every("resourceTemplates");
    within("test://template/{id}/data", templates.map((template) => template.uriTemplate));
    const { contents } = await client.read("test://template/7/data");
    equal(JSON.parse(contents[0].text).id, "7");
  },

  async "an unknown resource is refused"(client, setting) {
    // The second major of the SDK tells the older code as the newer one.
    const older = setting.era < "2026" && major === "v1";
    const code = older ? RESOURCE_NOT_FOUND : INVALID_PARAMS;
    await rejects(client.read("test://no/such/resource"), { code });
  },

  async "nothing is said to have changed"(client) {
    deepEqual(client.unasked.filter((method) => method.endsWith("changed")), []);
  },
};

async function bounded(promise) {
  const over = new AbortController();
  const limit = sleep(LIMIT_MS, undefined, { signal: over.signal }).then(() => {
    throw new Error(`took more than ${LIMIT_MS / 1000} s`);
  });
  try {
    return await Promise.race([promise, limit]);
  } finally {
    over.abort();
    limit.catch(() => {});
  }
}

for (const transport of ["stdio", "http"]) {
  for (const era of sdk.ERAS) {
    // Found again among the runs of the workspace, and never the same twice.
    const label = `typescript ${major} ${transport} ${era} ${process.pid}`;
    const setting = { transport, era, label };
    let shown = `${transport} ${era} a connection is made`;
    try {
      const client = await bounded(connect(setting));
      for (const [claim, check] of Object.entries(CLAIMS)) {
        shown = `${transport} ${client.version} ${claim}`;
        await bounded(check(client, setting));
        console.log(`ok ${shown}`);
      }
      await bounded(client.close());
    } catch (error) {
      console.log(`FAILED ${shown}: ${error.message.replaceAll(/\s+/g, " ")}`);
      process.exit(1);
    }
  }
}
