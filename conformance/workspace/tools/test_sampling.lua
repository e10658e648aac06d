-- Asks the client's model.

tool = {
    name = "test_sampling",
    description = "Has the client's model answer a prompt",
    parameters = {
        { name = "prompt", type = "string", required = true, description = "What to ask the model" },
    },
}

function tool.execute(params, context)
    local answer = context.sample({
        messages = { { role = "user", content = { type = "text", text = params.prompt } } },
        maxTokens = 100,
    })
    return "LLM response: " .. answer.content.text
end
