-- An answer that is a sound.

tool = {
    name = "test_audio_content",
    description = "Returns a sound: four samples of silence",
    annotations = { readOnlyHint = true },
}

local SILENCE = "UklGRigAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQQAAACAgICA"

function tool.execute()
    return { content = { { type = "audio", data = SILENCE, mimeType = "audio/wav" } } }
end
