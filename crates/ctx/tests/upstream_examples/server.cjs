// Small MCP servers, made with the official SDK, to be upstreams of tests: one for each name that examples use.
//
//   node server.cjs MODULES KIND NAME     where KIND is stdio, http or sse
//
// At an address it prints the port that it listens on.
const { createRequire } = require('node:module')
const http = require('node:http')
const { randomUUID } = require('node:crypto')

const [modules, kind, name] = process.argv.slice(2)
const load = createRequire(`${modules}/`)
const { McpServer } = load('@modelcontextprotocol/sdk/server/mcp.js')
const { z } = load('zod')

const text = (value) => ({ content: [{ type: 'text', text: value }] })
const data = (value) => ({ ...text(JSON.stringify(value)), structuredContent: value })
const any = z.any()

// For each server its tools: what each takes, and what it answers.
const SERVERS = {
    calculator: {
        add: [{ a: z.number(), b: z.number() }, ({ a, b }) => text(String(a + b))],
        multiply: [{ a: z.number(), b: z.number() }, ({ a, b }) => text(String(a * b))],
        chart: [{}, () => ({
            content: [
                { type: 'resource_link', uri: 'file:///data.json', name: 'data' },
                { type: 'resource', resource: { uri: 'file:///chart.txt', text: 'a chart' } },
            ],
        })],
    },
    'data-server': {
        fetch_records: [
            { limit: z.number() },
            ({ limit }) => data({ records: Array.from({ length: limit }, (_, id) => ({ id })) }),
        ],
        // Text that is JSON, as most servers answer.
        get_users: [{}, () => text('{"users":[{"name":"Ada"},{"name":"Grace"}]}')],
    },
    analytics: {
        summarize: [{ records: z.array(any) }, ({ records }) => text(`${records.length} records`)],
    },
    'risky.server': {
        dangerous_operation: [{}, () => ({ ...text('it exploded'), isError: true })],
    },
    server: {
        tool1: [{ x: z.number() }, ({ x }) => text(`one ${x}`)],
        tool2: [{ y: z.number() }, ({ y }) => text(`two ${y}`)],
        tool3: [{ z: z.number() }, ({ z }) => text(`three ${z}`)],
        fetch_data: [{}, () => data({ rows: 3 })],
    },
    database: {
        query: [
            { sql: z.string(), limit: z.number().optional() },
            ({ sql, limit }) => data({ sql, limit, rows: [{ id: 1 }] }),
        ],
    },
}

function server() {
    const made = new McpServer({ name, version: '1.0.0' })
    for (const [tool, [inputSchema, answer]] of Object.entries(SERVERS[name])) {
        made.registerTool(tool, { description: `${tool} of ${name}.`, inputSchema }, async (given) => answer(given))
    }
    return made
}

async function body(request) {
    const parts = []
    for await (const part of request) parts.push(part)
    return parts.length === 0 ? undefined : JSON.parse(Buffer.concat(parts).toString())
}

function listen(handle) {
    const listening = http.createServer((request, response) => {
        handle(request, response).catch((error) => response.headersSent || response.writeHead(500).end(String(error)))
    })
    listening.listen(0, '127.0.0.1', () => console.log(listening.address().port))
}

const KINDS = {
    async stdio() {
        const { StdioServerTransport } = load('@modelcontextprotocol/sdk/server/stdio.js')
        await server().connect(new StdioServerTransport())
    },
    async http() {
        const { StreamableHTTPServerTransport } = load('@modelcontextprotocol/sdk/server/streamableHttp.js')
        const sessions = new Map()
        listen(async (request, response) => {
            const known = sessions.get(request.headers['mcp-session-id'])
            if (known) return known.handleRequest(request, response, await body(request))
            const transport = new StreamableHTTPServerTransport({
                sessionIdGenerator: randomUUID,
                onsessioninitialized: (id) => sessions.set(id, transport),
            })
            await server().connect(transport)
            return transport.handleRequest(request, response, await body(request))
        })
    },
    async sse() {
        const { SSEServerTransport } = load('@modelcontextprotocol/sdk/server/sse.js')
        const sessions = new Map()
        listen(async (request, response) => {
            if (request.method === 'GET') {
                const transport = new SSEServerTransport('/messages', response)
                sessions.set(transport.sessionId, transport)
                return server().connect(transport)
            }
            const id = new URL(request.url, 'http://localhost').searchParams.get('sessionId')
            return sessions.get(id).handlePostMessage(request, response, await body(request))
        })
    },
}

KINDS[kind]()
