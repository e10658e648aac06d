-- A message that carries a resource.

agent = {
    name = "test_prompt_with_embedded_resource",
    description = "A resource and what to do with it",
    arguments = {
        { name = "resourceUri", description = "URI of the resource to embed", required = true },
    },
}

function agent.resolve(args)
    local resource = {
        uri = args.resourceUri,
        mimeType = "text/plain",
        text = "Embedded resource content for testing.",
    }
    return {
        system = "",
        messages = {
            { role = "user", content = { type = "resource", resource = resource } },
            { role = "user", content = "Please process the embedded resource above." },
        },
    }
end
