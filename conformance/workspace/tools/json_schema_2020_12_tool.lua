-- Arguments described by a whole JSON Schema, which clients get as it is.

tool = {
    name = "json_schema_2020_12_tool",
    description = "Tool with JSON Schema 2020-12 features",
    annotations = { readOnlyHint = true },
    schema = {
        ["$schema"] = "https://json-schema.org/draft/2020-12/schema",
        type = "object",
        ["$defs"] = {
            address = {
                ["$anchor"] = "addressDef",
                type = "object",
                properties = { street = { type = "string" }, city = { type = "string" } },
            },
        },
        properties = {
            name = { type = "string" },
            address = { ["$ref"] = "#/$defs/address" },
            contactMethod = { type = "string", enum = { "phone", "email" } },
            phone = { type = "string" },
            email = { type = "string" },
        },
        allOf = { { anyOf = { { required = { "phone" } }, { required = { "email" } } } } },
        ["if"] = { properties = { contactMethod = { const = "phone" } }, required = { "contactMethod" } },
        ["then"] = { required = { "phone" } },
        ["else"] = { required = { "email" } },
        additionalProperties = false,
    },
}

function tool.execute(params)
    return "Reached by " .. (params.phone or params.email)
end
