-- The smallest agent: its instructions are a string.

agent = {
    name = "test_simple_prompt",
    description = "A line of text",
}

function agent.resolve()
    return "This is a simple prompt for testing."
end
