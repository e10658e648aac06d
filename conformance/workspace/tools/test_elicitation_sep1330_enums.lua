-- A form with every way of choosing: one or several, with titles or without.

tool = {
    name = "test_elicitation_sep1330_enums",
    description = "Asks for choices of every kind",
}

local function titled(word)
    return {
        { const = "value1", title = "First " .. word },
        { const = "value2", title = "Second " .. word },
        { const = "value3", title = "Third " .. word },
    }
end

function tool.execute(params, context)
    local options = { "option1", "option2", "option3" }
    local given = context.elicit("Please choose", {
        type = "object",
        properties = {
            untitledSingle = { type = "string", enum = options },
            titledSingle = { type = "string", oneOf = titled("Option") },
            legacyEnum = {
                type = "string",
                enum = { "opt1", "opt2", "opt3" },
                enumNames = { "Option One", "Option Two", "Option Three" },
            },
            untitledMulti = { type = "array", items = { type = "string", enum = options } },
            titledMulti = { type = "array", items = { anyOf = titled("Choice") } },
        },
    })
    return "Elicitation completed: content=" .. json.encode(given)
end
