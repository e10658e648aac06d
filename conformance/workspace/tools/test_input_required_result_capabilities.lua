-- Asks whatever the client can answer: an error of a question that it cannot is caught.

tool = {
    name = "test_input_required_result_capabilities",
    description = "Asks the person and the model, as far as the client has them",
}

function tool.execute(params, context)
    local answered = 0
    local function try(ask)
        return function()
            if pcall(ask) then
                answered += 1
            end
        end
    end
    parallel({
        try(function()
            context.elicit("What is your name?", {
                type = "object",
                properties = { name = { type = "string" } },
                required = { "name" },
            }, { key = "user_name" })
        end),
        try(function()
            context.sample({
                messages = { { role = "user", content = { type = "text", text = "Generate a greeting" } } },
                maxTokens = 50,
            }, { key = "greeting" })
        end),
    })
    return answered .. " of 2 questions were answered"
end
