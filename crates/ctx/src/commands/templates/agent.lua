--[[
  An agent: a prompt with instructions and tools, built each time a client requests it.

  Its section in ctx.toml; keys that Context Harness does not define are passed as `config`:

    [agents.script.@NAME@]
    path = "@PATH@"

  Try it:

    ctx agent test @PATH@ --arg topic=deployments
]]

agent = {
    name = "@NAME@",
    version = "0.1.0",
    description = "Answers questions about a topic from what is known",
    tools = { "search", "get" },
    arguments = {
        { name = "topic", description = "What it is about", required = true },
    },
}

function agent.resolve(args, config, context)
    local lines = { "You answer questions about " .. args.topic .. ". Look things up before you answer.", "" }
    for _, hit in ipairs(context.search(args.topic, { limit = 5 })) do
        table.insert(lines, "- " .. hit.title .. " (" .. hit.id .. ")")
    end
    return {
        system = table.concat(lines, "\n"),
        messages = { { role = "user", content = "What should I know about " .. args.topic .. "?" } },
    }
end
