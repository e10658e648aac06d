-- Asks the person at the other end.

tool = {
    name = "test_elicitation",
    description = "Asks for a name and an address",
    parameters = {
        { name = "message", type = "string", required = true, description = "What to ask" },
    },
}

function tool.execute(params, context)
    local given = context.elicit(params.message, {
        type = "object",
        properties = {
            username = { type = "string", description = "User's response" },
            email = { type = "string", description = "User's email address" },
        },
        required = { "username", "email" },
    })
    return "User response: " .. json.encode(given)
end
