-- Rewritten by test_trigger_tool_change, so that the list of tools changes.

tool = {
    name = "test_changing_tool",
    description = "Changed 0 times",
    annotations = { readOnlyHint = true },
}

function tool.execute()
    return tool.description
end
