-- Reads the issues of a GitHub repository, pull requests left out. After the first sync it asks only
-- for what changed since.
--
--   [connectors.script.issues]
--   path = "connectors/github-issues.lua"
--   repository = "owner/name"
--   token = "${GITHUB_TOKEN:-}"
--   every = "15m"

connector = {
    name = "issues",
    version = "1.0.0",
    description = "GitHub issues",
}

local PER_PAGE = 100
local PAGES_MAX = 50

local function ask(config, path, params)
    local headers = { Accept = "application/vnd.github+json", ["User-Agent"] = "context-harness" }
    if config.token and config.token ~= "" then
        headers.Authorization = "Bearer " .. config.token
    end
    local base = config.api_url or "https://api.github.com"
    local answer = http.get(base .. path, { headers = headers, params = params })
    if not answer.ok then
        error("GitHub answered " .. answer.status .. " for " .. path)
    end
    return answer.json
end

function connector.scan(config, cursor)
    local newest = cursor
    for page = 1, PAGES_MAX do
        local issues = ask(config, "/repos/" .. config.repository .. "/issues", {
            state = "all",
            sort = "updated",
            direction = "asc",
            since = cursor,
            per_page = PER_PAGE,
            page = page,
        })
        for _, issue in ipairs(issues) do
            newest = issue.updated_at
            if not issue.pull_request then
                local labels = { issue.state }
                for _, label in ipairs(issue.labels or {}) do
                    table.insert(labels, label.name)
                end
                emit({
                    source_id = tostring(issue.number),
                    title = "#" .. issue.number .. " " .. issue.title,
                    body = issue.body or "",
                    author = issue.user and issue.user.login,
                    source_url = issue.html_url,
                    content_type = "text/markdown",
                    created_at = issue.created_at,
                    updated_at = issue.updated_at,
                    tags = labels,
                })
            end
        end
        if #issues < PER_PAGE then
            break
        end
    end
    return {}, newest
end
