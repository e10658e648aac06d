// The first major of the SDK, which knows revisions up to 2025-11-25.

import { Client as Sdk } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, LoggingMessageNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

export const ERAS = ["2025-11-25"];

class Client {
  asked = [];
  logged = [];
  unasked = [];

  constructor(canAsk) {
    this.sdk = new Sdk({ name: "clients", version: "1" }, { capabilities: canAsk ? { elicitation: {} } : {} });
    this.sdk.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => void this.logged.push(params));
    this.sdk.fallbackNotificationHandler = async ({ method }) => void this.unasked.push(method);
    if (!canAsk) return;
    this.sdk.setRequestHandler(ElicitRequestSchema, ({ params }) => {
      this.asked.push(params.message);
      return this.answer;
    });
  }

  async every(what) {
    const list = `list${what[0].toUpperCase()}${what.slice(1)}`;
    const found = [];
    let cursor;
    do {
      const page = await this.sdk[list]({ cursor });
      found.push(...page[what]);
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    return found;
  }

  call = (name, args, options) => this.sdk.callTool({ name, arguments: args }, undefined, options);
  prompt = (name, args) => this.sdk.getPrompt({ name, arguments: args });
  read = (uri) => this.sdk.readResource({ uri });
  logFrom = (level) => this.sdk.setLoggingLevel(level);
  close = () => this.sdk.close();
}

export async function connect(server, era, canAsk) {
  const client = new Client(canAsk);
  const http = server.url && new StreamableHTTPClientTransport(new URL(server.url));
  const transport = http || new StdioClientTransport(server);
  // The SDK tells the version that was agreed on to its transport only, and only where it is a header.
  transport.setProtocolVersion = (version) => {
    client.version = version;
    if (http) StreamableHTTPClientTransport.prototype.setProtocolVersion.call(http, version);
  };
  await client.sdk.connect(transport);
  return client;
}
