-- An agent that is told something; clients can complete what its first argument begins with.

agent = {
    name = "test_prompt_with_arguments",
    description = "Repeats its arguments",
    arguments = {
        { name = "arg1", description = "First test argument", required = true, choices = { "testValue1", "hello" } },
        { name = "arg2", description = "Second test argument", required = true },
    },
}

function agent.resolve(args)
    local text = string.format("Prompt with arguments: arg1='%s', arg2='%s'", args.arg1, args.arg2)
    return { system = "", messages = { { role = "user", content = text } } }
end
