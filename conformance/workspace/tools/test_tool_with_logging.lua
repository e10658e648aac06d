-- Lines of the log reach the client while the tool runs.

tool = {
    name = "test_tool_with_logging",
    description = "Logs three lines, 50 ms apart",
    annotations = { readOnlyHint = true },
}

function tool.execute()
    log.info("Tool execution started")
    sleep(0.05)
    log.info("Tool processing data")
    sleep(0.05)
    log.info("Tool execution completed")
    return "Three lines were logged."
end
