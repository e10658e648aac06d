-- Posts a message to a Slack channel by its incoming webhook.
--
--   [tools.script.post_slack]
--   path = "tools/post-slack.lua"
--   timeout = 10
--   rate_limit = "10/m"
--   allow_hosts = ["hooks.slack.com"]
--   webhook_url = "${SLACK_WEBHOOK_URL}"

tool = {
    name = "post_slack",
    version = "1.0.0",
    description = "Post a message to the team's Slack channel",
    parameters = {
        { name = "text", type = "string", required = true, description = "The message, in Slack's markup" },
        { name = "search", type = "string", description = "Add the best page about this to the message" },
    },
}

function tool.execute(params, context)
    local blocks = { { type = "section", text = { type = "mrkdwn", text = params.text } } }
    if params.search then
        local page = context.search(params.search, { limit = 1 })[1]
        if page then
            local line = string.format("*%s*: %s", page.title or page.source_id, page.snippet)
            table.insert(blocks, { type = "context", elements = { { type = "mrkdwn", text = line } } })
        end
    end
    local answer = http.post(context.config.webhook_url, { text = params.text, blocks = blocks })
    if not answer.ok then
        error("Slack answered " .. answer.status .. ": " .. answer.body)
    end
    return { posted = true, blocks = #blocks }
end
