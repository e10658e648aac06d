-- Rewritten by test_trigger_prompt_change, so that the list of prompts changes.

agent = {
    name = "test_changing_prompt",
    description = "Changed 0 times",
}

function agent.resolve()
    return agent.description
end
