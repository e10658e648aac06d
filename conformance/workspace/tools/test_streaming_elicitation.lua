-- Tells progress and then asks: what it asks must not be a request inside of the answer.

tool = {
    name = "test_streaming_elicitation",
    description = "Reports progress, then asks for a name",
}

function tool.execute(params, context)
    context.progress(1, 2, "about to ask")
    local given = context.elicit("What is your name?", {
        type = "object",
        properties = { name = { type = "string" } },
        required = { "name" },
    })
    return "Hello, " .. given.name .. "!"
end
