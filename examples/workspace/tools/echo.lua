-- The smallest tool there is: says back what it was told.

tool = {
    name = "echo",
    version = "1.0.0",
    description = "Say a message back, as often as asked",
    annotations = { readOnlyHint = true },
    parameters = {
        { name = "message", type = "string", required = true, description = "What to say" },
        { name = "times", type = "integer", default = 1, minimum = 1, maximum = 10, description = "How often" },
    },
}

function tool.execute(params, context)
    log.info("saying it " .. params.times .. " time(s)")
    return { message = string.rep(params.message, params.times, " ") }
end
