-- An answer of several blocks, each of another type.

tool = {
    name = "test_multiple_content_types",
    description = "Returns text, an image and a resource",
    annotations = { readOnlyHint = true },
}

local RED_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"

function tool.execute()
    local resource = {
        uri = "test://mixed-content-resource",
        mimeType = "application/json",
        text = json.encode({ test = "data", value = 123 }),
    }
    return {
        content = {
            { type = "text", text = "Multiple content types test:" },
            { type = "image", data = RED_PIXEL, mimeType = "image/png" },
            { type = "resource", resource = resource },
        },
    }
end
