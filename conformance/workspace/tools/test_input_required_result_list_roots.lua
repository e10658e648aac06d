-- Asks which folders the client works in.

tool = {
    name = "test_input_required_result_list_roots",
    description = "Lists the client's roots",
}

function tool.execute(params, context)
    local uris = {}
    for _, root in ipairs(context.roots({ key = "client_roots" })) do
        table.insert(uris, root.uri)
    end
    return "Roots: " .. table.concat(uris, ", ")
end
