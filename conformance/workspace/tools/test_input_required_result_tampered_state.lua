-- Asks for a confirmation; an answer to a call that the client made up must not arrive here.

tool = {
    name = "test_input_required_result_tampered_state",
    description = "Asks for a confirmation",
}

function tool.execute(params, context)
    local given = context.elicit("Please confirm", {
        type = "object",
        properties = { ok = { type = "boolean" } },
        required = { "ok" },
    }, { key = "confirm" })
    return if given.ok then "confirmed" else "not confirmed"
end
