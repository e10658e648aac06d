--[[
  A tool that agents can call.

  Its section in ctx.toml; keys that Context Harness does not define are in `context.config`:

    [tools.script.@NAME@]
    path = "@PATH@"

  Try it:

    ctx tool test @PATH@ --param query="how to deploy"
]]

tool = {
    name = "@NAME@",
    version = "0.1.0",
    -- Models choose tools by this description.
    description = "List the titles of documents about something",
    parameters = {
        { name = "query", type = "string", required = true, description = "What to look for" },
        { name = "limit", type = "integer", default = 3, minimum = 1, description = "How many at most" },
    },
}

function tool.execute(params, context)
    local titles = {}
    for _, hit in ipairs(context.search(params.query, { limit = params.limit })) do
        table.insert(titles, hit.title)
    end
    -- The returned value is the result. `http.post(url, body)` sends an HTTP request, `error("…")` fails the call.
    return { count = #titles, titles = json.array(titles) }
end
