-- Runs as long as it is told to, and says so all the time; whoever does not want to wait can cancel it.

tool = {
    name = "test_slow",
    description = "Reports progress for some seconds, then says its label back",
    annotations = { readOnlyHint = true },
    parameters = {
        { name = "label", type = "string", required = true, description = "What to say, and to find the run by" },
        { name = "seconds", type = "number", default = 0, minimum = 0, description = "How long to take" },
    },
}

local STEP_SECONDS = 0.1

function tool.execute(params, context)
    for step = 1, params.seconds / STEP_SECONDS do
        context.progress(step * STEP_SECONDS, params.seconds)
        sleep(STEP_SECONDS)
    end
    return params.label
end
