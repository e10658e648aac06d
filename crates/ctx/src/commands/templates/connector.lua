--[[
  A connector: reads documents from another system.

  Its section in ctx.toml; keys that Context Harness does not define are passed as `config`:

    [connectors.script.@NAME@]
    path = "@PATH@"
    # every = "15m"

  Try it, without writing anything:

    ctx connector test @PATH@
]]

connector = {
    name = "@NAME@",
    version = "0.1.0",
    description = "Brings in an example",
}

function connector.scan(config, cursor)
    local items = {}
    -- local response = http.get(config.url, { headers = { Authorization = "Bearer " .. config.api_token } })
    -- for _, page in ipairs(response.json.pages) do … end
    table.insert(items, {
        source_id = "example-1",
        title = "An example",
        body = "What is written here can be searched for.",
        -- Also: source_url, author, created_at, updated_at, content_type, metadata, tags.
    })
    -- Documents that are no longer returned are deleted.
    -- Return `items, cursor` to send only changes since the last sync.
    return items
end
