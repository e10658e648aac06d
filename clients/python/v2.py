"""The second major of the SDK: 2026-07-28 where the server knows it, the handshake before that when told to."""

import warnings
from contextlib import asynccontextmanager

import anyio
import mcp
from mcp import MCPDeprecationWarning, MCPError, StdioServerParameters, types

ERAS = ("2026-07-28", "2025-11-25")

LISTS = {
    "tools": mcp.Client.list_tools,
    "prompts": mcp.Client.list_prompts,
    "resources": mcp.Client.list_resources,
    "resourceTemplates": mcp.Client.list_resource_templates,
}

# Log levels are set with a request in the older revisions only.
warnings.simplefilter("ignore", MCPDeprecationWarning)


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
        if not isinstance(message, Exception):
            self.unasked.append(message.method)

    async def every(self, what):
        found, cursor = [], None
        while True:
            page = plain(await LISTS[what](self.client, cursor=cursor))
            found += page[what]
            cursor = page.get("nextCursor")
            if cursor is None:
                return found

    async def call(self, name, arguments, on_progress=None):
        async def progress(done, total, message):
            on_progress(done, total)

        callback = progress if on_progress else None
        return plain(await self.client.call_tool(name, arguments, progress_callback=callback))

    async def give_up(self, name, arguments):
        """Calls, and cancels once the tool is seen running."""
        async with anyio.create_task_group() as group:
            running = anyio.Event()
            group.start_soon(self.call, name, arguments, lambda done, total: running.set())
            await running.wait()
            # The SDK tells the server, in the way of the transport and the revision.
            group.cancel_scope.cancel()

    async def prompt(self, name, arguments):
        return plain(await self.client.get_prompt(name, arguments))

    async def completions(self, prompt, argument, value):
        reference = types.PromptReference(name=prompt)
        result = await self.client.complete(reference, {"name": argument, "value": value})
        return result.completion.values

    async def read(self, uri):
        return plain(await self.client.read_resource(uri))

    async def log_from(self, level):
        # In 2026-07-28 every request says it, as the client was told when it was made.
        if self.version < "2026":
            await self.client.set_logging_level(level)

    async def refusal(self, request):
        """The code of the error that a request is answered with."""
        try:
            answer = await request
        except MCPError as error:
            return error.code
        raise AssertionError(f"was answered: {answer}")


@asynccontextmanager
async def connect(server, era, can_ask):
    client = Client()
    if not isinstance(server, str):
        server = StdioServerParameters(command=server[0], args=server[1:])
    async with mcp.Client(
        server,
        mode="auto" if era >= "2026" else "legacy",
        elicitation_callback=client.on_question if can_ask else None,
        logging_callback=client.on_log,
        message_handler=client.on_message,
        log_level="info",
    ) as client.client:
        client.version = client.client.protocol_version
        yield client
