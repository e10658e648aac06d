-- A message that is an image.

agent = {
    name = "test_prompt_with_image",
    description = "An image and what to do with it",
}

local RED_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"

function agent.resolve()
    return {
        system = "",
        messages = {
            { role = "user", content = { type = "image", data = RED_PIXEL, mimeType = "image/png" } },
            { role = "user", content = "Please analyze the image above." },
        },
    }
end
