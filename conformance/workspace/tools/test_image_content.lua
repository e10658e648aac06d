-- An answer that is an image.

tool = {
    name = "test_image_content",
    description = "Returns an image: one red pixel",
    annotations = { readOnlyHint = true },
}

local RED_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"

function tool.execute()
    return { content = { { type = "image", data = RED_PIXEL, mimeType = "image/png" } } }
end
