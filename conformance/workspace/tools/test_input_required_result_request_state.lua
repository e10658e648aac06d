-- Goes on where it was when the answer comes: what it knew before is still there.

tool = {
    name = "test_input_required_result_request_state",
    description = "Asks for a confirmation and remembers what it knew before",
}

function tool.execute(params, context)
    local state = "state-ok"
    local given = context.elicit("Please confirm", {
        type = "object",
        properties = { ok = { type = "boolean" } },
        required = { "ok" },
    }, { key = "confirm" })
    return if given.ok then state else "not confirmed"
end
