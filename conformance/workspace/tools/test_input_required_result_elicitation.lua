-- Asks one question. Its key is what clients name it by, also those that answer before they are asked.

tool = {
    name = "test_input_required_result_elicitation",
    description = "Asks for a name and greets",
}

function tool.execute(params, context)
    local given = context.elicit("What is your name?", {
        type = "object",
        properties = { name = { type = "string" } },
        required = { "name" },
    }, { key = "user_name" })
    return "Hello, " .. given.name .. "!"
end
