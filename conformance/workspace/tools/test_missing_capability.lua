-- Cannot do without the client's model, and does not catch the error where there is none.

tool = {
    name = "test_missing_capability",
    description = "Needs a client with a model",
}

function tool.execute(params, context)
    local answer = context.sample({
        messages = { { role = "user", content = { type = "text", text = "Are you there?" } } },
        maxTokens = 10,
    })
    return answer.content.text
end
