-- A form whose fields are filled in already, one of each type.

tool = {
    name = "test_elicitation_sep1034_defaults",
    description = "Asks with a default for every field",
}

function tool.execute(params, context)
    local given = context.elicit("Please review and update the form fields", {
        type = "object",
        properties = {
            name = { type = "string", default = "John Doe" },
            age = { type = "integer", default = 30 },
            score = { type = "number", default = 95.5 },
            status = { type = "string", enum = { "active", "inactive", "pending" }, default = "active" },
            verified = { type = "boolean", default = true },
        },
    })
    return "Elicitation completed: content=" .. json.encode(given)
end
