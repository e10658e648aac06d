-- A call that takes a while, for clients that lose their connection and come back for the answer.

tool = {
    name = "test_reconnection",
    description = "Answers after half a second",
    annotations = { readOnlyHint = true },
}

function tool.execute()
    sleep(0.5)
    return "The answer has arrived."
end
