-- Creates a Jira ticket and links the pages of the knowledge base that belong to it.
--
--   [tools.script.create_jira_ticket]
--   path = "tools/create-jira-ticket.lua"
--   url = "https://mycompany.atlassian.net"
--   email = "bot@mycompany.com"
--   api_token = "${JIRA_API_TOKEN}"

tool = {
    name = "create_jira_ticket",
    version = "1.0.0",
    description = "Create a Jira ticket, with links to related documents",
    parameters = {
        { name = "title", type = "string", required = true, description = "Ticket title" },
        { name = "body", type = "string", required = true, description = "What is to be done, in Markdown" },
        { name = "project", type = "string", default = "ENG", description = "Jira project key" },
        {
            name = "priority",
            type = "string",
            default = "Medium",
            enum = { "Lowest", "Low", "Medium", "High", "Highest" },
            description = "Priority",
        },
        { name = "enrich", type = "boolean", default = true, description = "Whether to link related documents" },
    },
}

local function paragraph(text)
    return { type = "paragraph", content = { { type = "text", text = text } } }
end

local function related(title, context)
    local lines = {}
    for _, hit in ipairs(context.search(title, { limit = 3 })) do
        table.insert(lines, string.format("%s (%s)", hit.title or hit.source_id, hit.source_url or hit.source))
    end
    return lines
end

function tool.execute(params, context)
    local config = context.config
    local content = { paragraph(params.body) }
    local links = params.enrich and related(params.title, context) or {}
    if #links > 0 then
        table.insert(content, paragraph("Related documents:"))
        for _, line in ipairs(links) do
            table.insert(content, paragraph(line))
        end
    end

    local answer = http.post(config.url .. "/rest/api/3/issue", {
        fields = {
            project = { key = params.project },
            summary = params.title,
            description = { type = "doc", version = 1, content = content },
            issuetype = { name = "Task" },
            priority = { name = params.priority },
        },
    }, {
        headers = { Authorization = "Basic " .. base64.encode(config.email .. ":" .. config.api_token) },
    })
    if not answer.ok then
        log.error("Jira answered " .. answer.status)
        return { success = false, error = "Jira answered " .. answer.status, details = answer.body }
    end
    local key = answer.json.key
    return {
        success = true,
        ticket_key = key,
        url = config.url .. "/browse/" .. key,
        related_documents = #links,
        message = "Created " .. key .. ": " .. params.title,
    }
end
