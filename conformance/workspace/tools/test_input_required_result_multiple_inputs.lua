-- Asks three questions at once: the person, the model and the client itself.

tool = {
    name = "test_input_required_result_multiple_inputs",
    description = "Asks for a name, a greeting and the client's roots at once",
}

function tool.execute(params, context)
    local answers = parallel({
        user = function()
            return context.elicit("What is your name?", {
                type = "object",
                properties = { name = { type = "string" } },
                required = { "name" },
            }, { key = "user_name" })
        end,
        greeting = function()
            return context.sample({
                messages = { { role = "user", content = { type = "text", text = "Generate a greeting" } } },
                maxTokens = 50,
            }, { key = "greeting" })
        end,
        roots = function()
            return context.roots({ key = "client_roots" })
        end,
    })
    return string.format("%s %s (%d roots)", answers.greeting.content.text, answers.user.name, #answers.roots)
end
