tool = {
    name = "create_jira_ticket",
    version = "0.1.0",
    description = "Create a Jira ticket enriched with related context",
    parameters = {
        {
            name = "title",
            type = "string",
            required = true,
            description = "Ticket title / summary",
        },
        {
            name = "priority",
            type = "string",
            required = false,
            default = "Medium",
            enum = { "Low", "Medium", "High", "Critical" },
            description = "Ticket priority",
        },
    },
}

function tool.execute(params, context)
    -- Search the knowledge base for related context
    local results = context.search(params.title, { limit = 3 })

    -- Build enriched description
    local desc = "## Related Context\n\n"
    for _, r in ipairs(results) do
        desc = desc .. "- [" .. r.title .. "](" .. (r.source_url or "") .. ")\n"
    end

    -- Call external API
    local resp = http.post(context.config.jira_url .. "/rest/api/3/issue", json.encode({
        fields = {
            project = { key = context.config.jira_project },
            summary = params.title,
            description = desc,
            priority = { name = params.priority },
            issuetype = { name = "Task" },
        },
    }), {
        headers = {
            ["Authorization"] = "Basic " .. base64.encode("user:" .. context.config.jira_token),
            ["Content-Type"] = "application/json",
        },
    })

    local result = json.decode(resp.body)
    return {
        key = result.key,
        url = context.config.jira_url .. "/browse/" .. result.key,
        related_docs = #results,
    }
end
