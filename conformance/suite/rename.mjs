// Between the conformance suite and a gateway: the suite asks for fixed names, `test_simple_text`, while what a
// gateway has of a server goes by that server's name, `up__test_simple_text`. Renames both ways and does nothing
// else; of the gateway's own tools, prompts and resources nothing is seen through it.
//
//     node rename.mjs <host:port of the gateway>

import http from "node:http";

const SERVER = "up";
const TOOL = `${SERVER}__`;
const PROMPT = `${SERVER}/`;
const URI = `mcp://${SERVER}/`;
const [host, port] = process.argv[2].split(":");

// Which prefix a request's `name` gets; `uri` always gets the same.
const NAMED = { "tools/call": TOOL, "prompts/get": PROMPT };

const add = (prefix) => (text) => (typeof text === "string" ? prefix + text : text);
const without = (prefix, text) => (text.startsWith(prefix) ? text.slice(prefix.length) : text);

/** A request as the gateway wants it. */
function inward(message) {
  const params = message?.params;
  if (!params) return message;
  if (NAMED[message.method] && "name" in params) params.name = add(NAMED[message.method])(params.name);
  if (/^resources\//.test(message.method) && "uri" in params) params.uri = add(URI)(params.uri);
  if (params.ref?.type === "ref/prompt") params.ref.name = add(PROMPT)(params.ref.name);
  if (params.ref?.type === "ref/resource") params.ref.uri = add(URI)(params.ref.uri);
  const followed = params.notifications?.resourceSubscriptions;
  if (Array.isArray(followed)) params.notifications.resourceSubscriptions = followed.map(add(URI));
  return message;
}

/** Every URI of the server's as the server calls it. */
function renamed(value) {
  if (typeof value === "string") return without(URI, value);
  if (Array.isArray(value)) return value.map(renamed);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, renamed(entry)]));
}

/** An answer as the suite wants it. */
function outward(message) {
  const result = message?.result;
  const only = (list, key, prefix) => {
    if (!Array.isArray(result?.[list])) return;
    const own = result[list].filter((entry) => entry[key]?.startsWith(prefix));
    result[list] = own.map((entry) => ({ ...entry, [key]: without(prefix, entry[key]) }));
  };
  only("tools", "name", TOOL);
  only("prompts", "name", PROMPT);
  only("resources", "uri", URI);
  only("resourceTemplates", "uriTemplate", URI);
  return renamed(message);
}

const text = (change, json) => {
  try {
    return JSON.stringify(change(JSON.parse(json)));
  } catch {
    return json; // Not ours to judge: the suite sends what is no JSON, too.
  }
};

/** The lines of a stream of events, each with its data renamed. */
function* lines(chunk, state) {
  state.rest += chunk;
  let end;
  while ((end = state.rest.indexOf("\n")) >= 0) {
    const line = state.rest.slice(0, end + 1);
    state.rest = state.rest.slice(end + 1);
    const data = /^data:(.*)$/s.exec(line.trimEnd());
    yield data && data[1].trim() ? `data: ${text(outward, data[1])}\n` : line;
  }
}

const proxy = http.createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const received = Buffer.concat(chunks).toString();
    const body = received && text(inward, received);
    const headers = { ...request.headers };
    for (const name of ["host", "origin"]) {
      // What was meant for us is meant for the gateway; what was not, the gateway is to refuse.
      if (headers[name]) headers[name] = headers[name].replace(`:${proxy.address().port}`, `:${port}`);
    }
    const method = headers["mcp-method"]?.trim();
    const prefix = NAMED[method] ?? (/^resources\//.test(method ?? "") ? URI : undefined);
    if (prefix && headers["mcp-name"]) headers["mcp-name"] = renameHeader(prefix, headers["mcp-name"]);
    if (body) headers["content-length"] = Buffer.byteLength(body);
    const options = { host, port, method: request.method, path: request.url, headers, agent: false };
    const forwarded = http.request(options, (answer) => {
      const { "content-length": _, "transfer-encoding": __, ...kept } = answer.headers;
      response.writeHead(answer.statusCode, kept);
      response.flushHeaders();
      answer.setEncoding("utf8");
      if (/event-stream/.test(answer.headers["content-type"] ?? "")) {
        const state = { rest: "" };
        answer.on("data", (chunk) => response.write([...lines(chunk, state)].join("")));
        answer.on("end", () => response.end(state.rest));
      } else {
        let whole = "";
        answer.on("data", (chunk) => (whole += chunk));
        answer.on("end", () => response.end(whole && text(outward, whole)));
      }
      answer.on("error", () => response.destroy());
    });
    forwarded.on("error", () => response.destroy());
    response.on("close", () => forwarded.destroy());
    forwarded.end(body);
  });
});

/** A name in a header, which may be written in base64. */
function renameHeader(prefix, name) {
  const encoded = /^=\?base64\?(.*)\?=$/.exec(name);
  if (!encoded) return prefix + name;
  const plain = prefix + Buffer.from(encoded[1], "base64").toString();
  return `=?base64?${Buffer.from(plain).toString("base64")}?=`;
}

/** Whether the gateway has reached its server. */
async function isReady() {
  const answer = await fetch(`http://${host}:${port}/tools/list`);
  return (await answer.text()).includes(TOOL);
}

process.on("SIGTERM", () => process.exit(0));
while (!(await isReady())) await new Promise((done) => setTimeout(done, 50));
proxy.requestTimeout = 0;
proxy.listen(0, "127.0.0.1", () => console.error(`serving http://127.0.0.1:${proxy.address().port}`));
