-- Logs a line, which only clients that asked for lines may get.

tool = {
    name = "test_logging_tool",
    description = "Logs one line",
    annotations = { readOnlyHint = true },
}

function tool.execute()
    log.info("A line for whoever asked for lines")
    return "One line was logged."
end
