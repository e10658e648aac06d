"""What programs made with the official Python SDK rely on, claim by claim.

    python suite.py v1|v2 URL PROGRAM CONFIG

URL is where the server answers over HTTP; `PROGRAM -c CONFIG serve mcp --stdio` starts it over pipes, and
`PROGRAM -c CONFIG runs` tells how calls ended. The two majors of the SDK differ in `v1.py` and `v2.py`,
which give and take plain JSON as it is on the wire.
"""

import importlib
import json
import os
import sys

import anyio

# Far more than anything here takes; a claim that waits longer has failed.
LIMIT_SECONDS = 60
# How long the slow tool would run if nobody stopped it.
SLOW_SECONDS = 120
# How many prompts there are besides those of the suite: more than one page of them.
MANY_PROMPTS = 450

# Error codes of JSON-RPC and, from 2026-07-28 on, of MCP.
INVALID_PARAMS = -32602
MISSING_CAPABILITY = -32021
# What an unknown resource was before it became invalid parameters.
RESOURCE_NOT_FOUND = -32002

CLAIMS = []


def claim(check):
    """The function's name is what it claims."""
    CLAIMS.append((check.__name__.replace("_", " "), check))
    return check


class Setting:
    """Which SDK talks to which server, how."""

    def __init__(self, sdk, transport, era, url, program, config):
        self.sdk, self.transport, self.era = sdk, transport, era
        self.url, self.command = url, [program, "--trust", "-c", config]
        # Found again among the runs of the workspace, and never the same twice.
        self.label = f"python {sdk.__name__} {transport} {era} {os.getpid()}"

    def connect(self, can_ask=True):
        server = self.url if self.transport == "http" else [*self.command, "serve", "mcp", "--stdio"]
        return self.sdk.connect(server, self.era, can_ask)

    async def how_it_ended(self, label):
        """Waits until the server has recorded the end of the slow call of this label."""
        while True:
            command = [*self.command, "runs", "--json", "--tool", "tools.test_slow", "--limit", "1000"]
            printed = (await anyio.run_process(command)).stdout
            for run in json.loads(printed)["runs"]:
                if run["arguments"].get("label") == label:
                    return run["outcome"]
            await anyio.sleep(0.2)


def text(result):
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


def same(found, expected):
    assert found == expected, f"{found!r}, not {expected!r}"


def within(part, whole):
    assert part in whole, f"{part!r} is not in {whole!r}"


@claim
async def both_sides_agree_on_the_version(client, setting):
    same(client.version, setting.era)


@claim
async def tools_are_listed_once_each(client, setting):
    names = [tool["name"] for tool in await client.every("tools")]
    same(sorted(set(names)), sorted(names))
    within("test_simple_text", names)


@claim
async def a_tool_is_called(client, setting):
    result = await client.call("test_simple_text", {})
    assert not result.get("isError"), result
    same(text(result), "This is a simple text response for testing.")


@claim
async def a_structured_result_fits_its_schema(client, setting):
    # The SDK holds it against the schema that the list told, and raises where it does not fit.
    tool = next(tool for tool in await client.every("tools") if tool["name"] == "sources")
    within("outputSchema", tool)
    within("structuredContent", await client.call("sources", {}))


@claim
async def a_tool_that_fails_says_why(client, setting):
    result = await client.call("test_error_handling", {})
    assert result["isError"], result
    within("intentionally returns an error", text(result))


@claim
async def an_unknown_tool_is_refused(client, setting):
    same(await client.refusal(client.call("no_such_tool", {})), INVALID_PARAMS)


@claim
async def calls_made_at_once_get_their_own_answers(client, setting):
    answers = {}

    async def call(label):
        answers[label] = text(await client.call("test_slow", {"label": label, "seconds": 0}))

    labels = [f"{setting.label} #{number}" for number in range(8)]
    async with anyio.create_task_group() as group:
        for label in labels:
            group.start_soon(call, label)
    for label in labels:
        within(label, answers[label])


@claim
async def progress_arrives_in_order(client, setting):
    steps = []
    await client.call("test_tool_with_progress", {}, lambda done, total: steps.append((done, total)))
    same(steps, [(0, 100), (50, 100), (100, 100)])


@claim
async def log_lines_arrive(client, setting):
    await client.log_from("info")
    client.logged.clear()
    await client.call("test_tool_with_logging", {})
    while len(client.logged) < 3:
        await anyio.sleep(0.05)
    same([line["level"] for line in client.logged], ["info"] * 3)
    lines = [json.dumps(line["data"]) for line in client.logged]
    for line, part in zip(lines, ["started", "processing", "completed"]):
        within(part, line)


@claim
async def a_running_call_is_cancelled(client, setting):
    label = f"{setting.label} cancelled"
    await client.give_up("test_slow", {"label": label, "seconds": SLOW_SECONDS})
    # While the connection is open: that it ends, ends the call as well.
    same((await setting.how_it_ended(label)).get("code"), "cancelled")


@claim
async def the_connection_lives_on_after_that(client, setting):
    same(text(await client.call("test_simple_text", {})), "This is a simple text response for testing.")


@claim
async def a_question_is_answered(client, setting):
    client.answer = {"action": "accept", "content": {"username": "greta", "email": "greta@example.com"}}
    result = await client.call("test_elicitation", {"message": "Who are you?"})
    assert not result.get("isError"), result
    within("greta@example.com", text(result))
    same(client.asked[-1], "Who are you?")


@claim
async def a_question_is_declined(client, setting):
    client.answer = {"action": "decline"}
    result = await client.call("test_elicitation", {"message": "Who are you?"})
    within("declin", text(result))


@claim
async def a_client_that_cannot_ask_is_told_so(client, setting):
    async with setting.connect(can_ask=False) as mute:
        call = mute.call("test_elicitation", {"message": "Who are you?"})
        if setting.era >= "2026":
            same(await mute.refusal(call), MISSING_CAPABILITY)
        else:
            within("does not support", text(await call))


@claim
async def prompts_are_listed_and_filled_in(client, setting):
    names = [prompt["name"] for prompt in await client.every("prompts")]
    within("test_simple_prompt", names)
    within("test_prompt_with_arguments", names)
    prompt = await client.prompt("test_simple_prompt", None)
    same(prompt["messages"][0]["content"]["text"], "This is a simple prompt for testing.")
    prompt = await client.prompt("test_prompt_with_arguments", {"arg1": "hello", "arg2": "world"})
    same(prompt["messages"][0]["content"]["text"], "Prompt with arguments: arg1='hello', arg2='world'")


@claim
async def every_page_of_a_list_is_read(client, setting):
    names = [prompt["name"] for prompt in await client.every("prompts")]
    same(sorted(set(names)), sorted(names))
    same(len([name for name in names if name.startswith("many_")]), MANY_PROMPTS)


@claim
async def an_argument_is_completed(client, setting):
    same(await client.completions("test_prompt_with_arguments", "arg1", "he"), ["hello"])


@claim
async def resources_are_listed_and_read(client, setting):
    within("test://static-text", [resource["uri"] for resource in await client.every("resources")])
    contents = (await client.read("test://static-text"))["contents"]
    same(contents[0]["text"], "This is the content of the static text resource.")


@claim
async def a_resource_is_made_from_a_template(client, setting):
    templates = await client.every("resourceTemplates")
    within("test://template/{id}/data", [template["uriTemplate"] for template in templates])
    contents = (await client.read("test://template/7/data"))["contents"]
    same(json.loads(contents[0]["text"])["id"], "7")


@claim
async def an_unknown_resource_is_refused(client, setting):
    code = await client.refusal(client.read("test://no/such/resource"))
    same(code, INVALID_PARAMS if setting.era >= "2026" else RESOURCE_NOT_FOUND)


@claim
async def nothing_is_said_to_have_changed(client, setting):
    same([method for method in client.unasked if method.endswith("changed")], [])


async def holds(setting):
    """Checks every claim over one connection; tells the first that fails."""
    shown = f"{setting.transport} {setting.era} a connection is made"
    try:
        with anyio.fail_after(LIMIT_SECONDS * len(CLAIMS)):
            async with setting.connect() as client:
                for name, check in CLAIMS:
                    shown = f"{setting.transport} {client.version} {name}"
                    with anyio.fail_after(LIMIT_SECONDS):
                        await check(client, setting)
                    print(f"ok {shown}", flush=True)
    except Exception as error:
        # What runs beside the check, runs in groups of tasks, and these wrap what went wrong.
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        print(f"FAILED {shown}: {str(error) or type(error).__name__}", flush=True)
        return False
    return True


async def main(sdk, url, program, config):
    sdk = importlib.import_module(sdk)
    for transport in ("stdio", "http"):
        for era in sdk.ERAS:
            if not await holds(Setting(sdk, transport, era, url, program, config)):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(anyio.run(main, *sys.argv[1:]))
