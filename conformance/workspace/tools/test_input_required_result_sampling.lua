-- Asks the client's model one question.

tool = {
    name = "test_input_required_result_sampling",
    description = "Asks the client's model for a capital",
}

function tool.execute(params, context)
    local answer = context.sample({
        messages = { { role = "user", content = { type = "text", text = "What is the capital of France?" } } },
        maxTokens = 100,
    }, { key = "capital_question" })
    return answer.content.text
end
