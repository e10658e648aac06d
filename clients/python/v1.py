"""The first major of the SDK, which knows revisions up to 2025-11-25."""

from contextlib import AsyncExitStack, asynccontextmanager

import anyio
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

ERAS = ("2025-11-25",)

LISTS = {
    "tools": ClientSession.list_tools,
    "prompts": ClientSession.list_prompts,
    "resources": ClientSession.list_resources,
    "resourceTemplates": ClientSession.list_resource_templates,
}


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Client:
    def __init__(self):
        self.asked, self.logged, self.unasked, self.answer = [], [], [], None

    async def on_question(self, context, params):
        self.asked.append(params.message)
        return types.ElicitResult(**self.answer)

    async def on_log(self, params):
        self.logged.append(plain(params))

    async def on_message(self, message):
        if isinstance(message, types.ServerNotification):
            self.unasked.append(message.root.method)

    async def every(self, what):
        found, cursor = [], None
        while True:
            params = types.PaginatedRequestParams(cursor=cursor)
            page = plain(await LISTS[what](self.session, params=params))
            found += page[what]
            cursor = page.get("nextCursor")
            if cursor is None:
                return found

    async def call(self, name, arguments, on_progress=None):
        async def progress(done, total, message):
            on_progress(done, total)

        callback = progress if on_progress else None
        return plain(await self.session.call_tool(name, arguments, progress_callback=callback))

    async def give_up(self, name, arguments):
        """Calls, and cancels once the tool is seen running."""
        # The SDK tells nobody the ids of its requests, and sends no cancellation by itself.
        request = self.session._request_id
        async with anyio.create_task_group() as group:
            running = anyio.Event()
            group.start_soon(self.call, name, arguments, lambda done, total: running.set())
            await running.wait()
            params = types.CancelledNotificationParams(requestId=request, reason="no longer wanted")
            notification = types.CancelledNotification(params=params)
            await self.session.send_notification(types.ClientNotification(notification))
            group.cancel_scope.cancel()

    async def prompt(self, name, arguments):
        return plain(await self.session.get_prompt(name, arguments))

    async def completions(self, prompt, argument, value):
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        result = await self.session.complete(reference, {"name": argument, "value": value})
        return result.completion.values

    async def read(self, uri):
        return plain(await self.session.read_resource(AnyUrl(uri)))

    async def log_from(self, level):
        await self.session.set_logging_level(level)

    async def refusal(self, request):
        """The code of the error that a request is answered with."""
        try:
            answer = await request
        except McpError as error:
            return error.error.code
        raise AssertionError(f"was answered: {answer}")


@asynccontextmanager
async def connect(server, era, can_ask):
    client = Client()
    async with AsyncExitStack() as stack:
        if isinstance(server, str):
            read, write, _ = await stack.enter_async_context(streamable_http_client(server))
        else:
            parameters = StdioServerParameters(command=server[0], args=server[1:])
            read, write = await stack.enter_async_context(stdio_client(parameters))
        client.session = await stack.enter_async_context(
            ClientSession(
                read,
                write,
                elicitation_callback=client.on_question if can_ask else None,
                logging_callback=client.on_log,
                message_handler=client.on_message,
            )
        )
        client.version = (await client.session.initialize()).protocolVersion
        yield client
