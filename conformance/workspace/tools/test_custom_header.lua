-- An argument that clients repeat in a header of the request: Mcp-Param-Region.

tool = {
    name = "test_custom_header",
    description = "Says which region it was called for",
    annotations = { readOnlyHint = true },
    schema = {
        type = "object",
        properties = {
            region = { type = "string", description = "Where to look", ["x-mcp-header"] = "Region" },
        },
        required = { "region" },
    },
}

function tool.execute(params)
    return "Region: " .. params.region
end
