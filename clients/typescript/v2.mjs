// The second major of the SDK: the handshake unless told otherwise, 2026-07-28 when told to look for it.

import { Client as Sdk, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

export const ERAS = ["2026-07-28", "2025-11-25"];

class Client {
  asked = [];
  logged = [];
  unasked = [];
  meta = {};

  constructor(era, canAsk) {
    const capabilities = canAsk ? { elicitation: {} } : {};
    const versionNegotiation = { mode: era >= "2026" ? "auto" : "legacy" };
    this.sdk = new Sdk({ name: "clients", version: "1" }, { capabilities, versionNegotiation });
    this.sdk.setNotificationHandler("notifications/message", ({ params }) => void this.logged.push(params));
    this.sdk.fallbackNotificationHandler = async ({ method }) => void this.unasked.push(method);
    if (!canAsk) return;
    this.sdk.setRequestHandler("elicitation/create", ({ params }) => {
      this.asked.push(params.message);
      return this.answer;
    });
  }

  get version() {
    return this.sdk.getNegotiatedProtocolVersion();
  }

  // The SDK itself walks over the pages.
  async every(what) {
    const list = `list${what[0].toUpperCase()}${what.slice(1)}`;
    return (await this.sdk[list]())[what];
  }

  call = (name, args, options) => this.sdk.callTool({ name, arguments: args, _meta: this.meta }, options);
  prompt = (name, args) => this.sdk.getPrompt({ name, arguments: args });
  read = (uri) => this.sdk.readResource({ uri });
  close = () => this.sdk.close();

  async logFrom(level) {
    // In 2026-07-28 every request says it, and the SDK leaves that to its user.
    if (this.version >= "2026") this.meta = { "io.modelcontextprotocol/logLevel": level };
    else await this.sdk.setLoggingLevel(level);
  }
}

export async function connect(server, era, canAsk) {
  const client = new Client(era, canAsk);
  const http = server.url && new StreamableHTTPClientTransport(new URL(server.url));
  const transport = http || new StdioClientTransport(server);
  await client.sdk.connect(transport);
  return client;
}
