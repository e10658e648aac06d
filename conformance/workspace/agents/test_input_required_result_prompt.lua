-- An agent that asks the person before it resolves.

agent = {
    name = "test_input_required_result_prompt",
    description = "Asks for the context to use",
}

function agent.resolve(args, config, context)
    local given = context.elicit("What context should the prompt use?", {
        type = "object",
        properties = { context = { type = "string" } },
        required = { "context" },
    }, { key = "user_context" })
    return { system = "", messages = { { role = "user", content = "Context: " .. given.context } } }
end
