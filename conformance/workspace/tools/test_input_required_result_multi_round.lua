-- Asks one question after the other.

tool = {
    name = "test_input_required_result_multi_round",
    description = "Asks for a name, then for a colour",
}

local function text(field)
    return { type = "object", properties = { [field] = { type = "string" } }, required = { field } }
end

function tool.execute(params, context)
    local name = context.elicit("Step 1: What is your name?", text("name"), { key = "step1" }).name
    local color = context.elicit("Step 2: What is your favorite color?", text("color"), { key = "step2" }).color
    return name .. " likes " .. color
end
