//! The commands of the documentation that need special treatment, and those that cannot run here.

/// How a command is treated. Commands that are not in the table are run as they are written, and must succeed.
pub(crate) enum Treatment {
    /// Runs this first: the page describes it in words.
    After(&'static str),
    /// Replaces a placeholder with a value.
    With(&'static str, &'static str),
    /// The page shows an error.
    Fails,
    /// Another test runs it, or checks what the page says about it.
    TestedBy(&'static str),
    /// It cannot run in a test, for this reason.
    CannotRun(&'static str),
}

use Treatment::{After, CannotRun, Fails, TestedBy, With};

/// Runs at the start of every page, unless the table says otherwise.
pub(crate) const BEGIN: &str = "cd ~/handbook && ctx trust -q && ctx sync -q";

/// Page, prefix of the command, treatment.
pub(crate) const TREATMENTS: &[(&str, &str, Treatment)] = &[
    ("README.md", "cargo run --release -- up", After("cd ~/src")),
    ("README.md", "ctx connect claude", After("cd examples/workspace")),
    (
        "README.md",
        "ctx run petstore=https",
        CannotRun("needs the internet; apis.md is followed with a local service"),
    ),
    ("README.md", "cargo xtask ci", CannotRun("runs this test")),
    ("README.md", "cargo xtask test", CannotRun("runs the tests of the libraries")),
    ("docs/guide/agents.md", "ctx agent init", After("cd ~/notes && ctx init -q && ctx sync -q")),
    ("docs/guide/agents.md", "ctx agent test", After("cp $BLOCKS/lua-0 agents/incident-responder.lua")),
    ("docs/guide/agents.md", "curl -s http://127.0.0.1:7331/agents/list", After("ctx serve mcp")),
    ("docs/guide/apis.md", "ctx run petstore=https", TestedBy("apis_are_called_as_the_guide_says")),
    ("docs/guide/apis.md", "ctx upstream list", TestedBy("apis_are_called_as_the_guide_says")),
    ("docs/guide/apis.md", "ctx upstream test", TestedBy("apis_are_called_as_the_guide_says")),
    ("docs/guide/apis.md", "ctx docs petstore", TestedBy("apis_are_called_as_the_guide_says")),
    ("docs/guide/apis.md", "ctx exec", TestedBy("apis_are_called_as_the_guide_says")),
    ("docs/guide/apis.md", "ctx doctor", TestedBy("apis_are_called_as_the_guide_says")),
    (
        "docs/guide/apis.md",
        "ctx generate",
        TestedBy("credentials_of_apis_are_told_and_types_are_generated_as_the_guide_says"),
    ),
    ("docs/guide/connect.md", "claude mcp add", TestedBy("the_guide_shows_what_is_printed")),
    ("docs/guide/connect.md", "codex mcp add", TestedBy("the_guide_shows_what_is_printed")),
    ("docs/guide/connect.md", "ctx runs  ", After("ctx docs tools.echo")),
    ("docs/guide/connect.md", "ctx runs 0", With("01a1e116", "$(ctx runs | cut -c 1-8 | head -n 1)")),
    ("docs/guide/execute.md", "curl", After("ctx serve mcp")),
    (
        "docs/guide/getting-started.md",
        "cargo install",
        CannotRun("builds the release binary, which takes minutes"),
    ),
    ("docs/guide/getting-started.md", "ctx --version", After("cd ~")),
    (
        "docs/guide/getting-started.md",
        "ctx get",
        With(
            "ID",
            "$(ctx search caching --json | sed -n 's/.*\"id\": \"\\([^\"]*\\)\".*/\\1/p' | head -n 1)",
        ),
    ),
    ("docs/guide/one-script.md", "ctx trust", After("cp $BLOCKS/toml-0 ctx.toml")),
    ("docs/guide/one-script.md", "ctx exec tasks.luau", After("cp $BLOCKS/lua-1 tasks.luau")),
    ("docs/guide/one-script.md", "echo 'return sdk.files.read_text_fiel", Fails),
    ("docs/guide/operation.md", "curl", TestedBy("clients_learn_where_tokens_come_from")),
    ("docs/guide/script-connectors.md", "ctx connector init", After("cd ~/notes && ctx init -q")),
    ("docs/guide/scripts-and-trust.md", "ctx up DIR", With("DIR", "~/handbook")),
    (
        "docs/guide/operation.md",
        "ctx run petstore.yaml --port",
        TestedBy("a_typed_port_and_address_take_the_place_of_the_setting"),
    ),
    ("docs/guide/operation.md", "ctx serve mcp --bind", With("192.168.1.5", "127.0.0.1")),
    (
        "docs/guide/search.md",
        "ctx get 1bfff386",
        With(
            "1bfff386",
            "$(ctx search backup --json | sed -n 's/.*\"id\": \"\\([^\"]*\\)\".*/\\1/p' | head -n 1 | cut -c 1-8)",
        ),
    ),
    ("docs/guide/search.md", "curl", After("ctx serve mcp")),
    (
        "docs/guide/sources.md",
        "ctx sync  ",
        After("cd ~/notes && printf '[connectors.filesystem.notes]\\nroot = \".\"\\n' > ctx.toml"),
    ),
    ("docs/guide/tools.md", "ctx tool init", After("cd ~/notes && ctx init -q && ctx sync -q")),
    ("docs/guide/tools.md", "ctx tool test", After("cp $BLOCKS/lua-0 tools/hello.lua")),
    ("docs/guide/tools.md", "curl", After("ctx up")),
    (
        "docs/guide/upstreams.md",
        "ctx upstream login",
        TestedBy("a_login_is_requested_made_and_used_by_a_running_server"),
    ),
    (
        "docs/guide/upstreams.md",
        "ctx upstream import ~/.cursor/mcp.json --dry-run",
        After(
            "cd ~/notes && ctx init -q && mkdir ~/.cursor ~/.codex && \
             echo '{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}' > ~/.cursor/mcp.json && \
             printf '[mcp_servers.b]\\ncommand = \"x\"\\n' > ~/.codex/config.toml",
        ),
    ),
];

/// Output blocks after a shell block that do not show its output: page, prefix of the block.
pub(crate) const NOT_PRINTED: &[(&str, &str)] = &[];
