-- Progress reaches the client while the tool runs.

tool = {
    name = "test_tool_with_progress",
    description = "Reports progress three times, 50 ms apart",
    annotations = { readOnlyHint = true },
}

function tool.execute(params, context)
    context.progress(0, 100)
    sleep(0.05)
    context.progress(50, 100)
    sleep(0.05)
    context.progress(100, 100)
    -- The TypeScript SDK drops progress that arrives in one read with the answer.
    sleep(0.05)
    return "Progress was reported."
end
