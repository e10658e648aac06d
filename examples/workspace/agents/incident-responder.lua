-- An agent that begins with what the handbook says about the service in trouble.
--
--   [agents.script.incident-responder]
--   path = "agents/incident-responder.lua"

agent = {
    name = "incident-responder",
    description = "Helps the person on call through an incident, by the handbook",
    tools = { "search", "get" },
    arguments = {
        { name = "service", description = "The service in trouble", required = true },
        { name = "severity", description = "How bad it is, where that is known already", choices = { "SEV1", "SEV2", "SEV3", "SEV4" } },
    },
}

function agent.resolve(args, config, context)
    local severity = args.severity or "not decided yet"
    local pages = {}
    for _, hit in ipairs(context.search(args.service .. " is down", { limit = 4 })) do
        table.insert(pages, string.format("- %s (document %s): %s", hit.title or hit.source_id, hit.id, hit.snippet))
    end
    local lines = {
        "You help the engineer on call. Be brief, name the next step first, and say which page it is from.",
        "Look things up with `search` and read whole pages with `get`; never guess a command.",
        "",
        "Pages that may matter:",
        #pages > 0 and table.concat(pages, "\n") or "- none was found; search before you advise",
    }
    return {
        system = table.concat(lines, "\n"),
        messages = {
            { role = "user", content = args.service .. " has an incident, severity " .. severity .. ". What do I do first?" },
        },
    }
end
