-- An answer that carries a resource with it.

tool = {
    name = "test_embedded_resource",
    description = "Returns a resource",
    annotations = { readOnlyHint = true },
}

function tool.execute()
    local resource = {
        uri = "test://embedded-resource",
        mimeType = "text/plain",
        text = "This is an embedded resource content.",
    }
    return { content = { { type = "resource", resource = resource } } }
end
