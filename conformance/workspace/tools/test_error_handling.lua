-- An error that nobody catches: the client gets a result that says so.

tool = {
    name = "test_error_handling",
    description = "Always fails",
    annotations = { readOnlyHint = true },
}

function tool.execute()
    error("This tool intentionally returns an error for testing")
end
