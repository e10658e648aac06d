-- The smallest answer: a string is one block of text.

tool = {
    name = "test_simple_text",
    description = "Returns a line of text",
    annotations = { readOnlyHint = true },
}

function tool.execute()
    return "This is a simple text response for testing."
end
