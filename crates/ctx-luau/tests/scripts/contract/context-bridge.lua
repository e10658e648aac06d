tool = {
    name = "bridge",
    version = "0.1.0",
    description = "The pieces of scripts that the contract shows, one after the other",
    parameters = {
        { name = "priority", type = "string", enum = { "low", "medium", "high" } },
    },
}

local function authentication(context)
    local results = context.search("authentication flow", {
        mode = "hybrid",
        limit = 5,
        source = "filesystem",
    })

    for _, r in ipairs(results) do
        print(r.title, r.score, r.snippet)
    end

    local doc = context.get("a1b2c3d4-...")
    print(doc.title, doc.body)

    local sources = context.sources()
    for _, s in ipairs(sources) do
        print(s.name, s.configured, s.healthy)
    end
end

function tool.execute(params, context)
    authentication(context)

    -- Search the knowledge base
    local results = context.search("deployment runbook", {
        mode = "hybrid",   -- optional, default "keyword"
        limit = 5,         -- optional, default 12
        source = "git",    -- optional, filter by connector source
    })
    -- results = {{ id = "...", score = 0.92, title = "...", snippet = "..." }, ...}

    -- Get a full document
    local doc = context.get("abc-123-uuid")
    -- doc = { id = "...", title = "...", body = "...", chunks = {...} }

    -- List connectors
    local sources = context.sources()
    -- sources = {{ name = "filesystem", configured = true, healthy = true }, ...}

    -- Access tool config from ctx.toml
    local api_url = context.config.url
    local token = context.config.api_token

    -- Return result
    return { success = true, message = "Done" }
end
