//! `ctx run`

use super::serve::{self, ConfigLoader};
use crate::cli::Global;
use crate::config::{Typed, TypedApi, TypedAuth, TypedBind, TypedServer};
use crate::error::{CommandError, CommandResult};
use std::sync::Arc;

/// Serve APIs and MCP servers as one, without a workspace.
///
/// A client connects to this one server, and reaches all of them through a handful of small tools and one script.
/// Nothing is written into the working directory, and no `ctx.toml` is looked for; one that is named with
/// `--config` is used, and so is the user's own.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// An API's OpenAPI description: a path or an address, called after its file (`petstore.yaml` is `petstore`)
    /// or by a name of its own, like `pets=https://example.com/openapi.json`. May be given several times.
    #[arg(value_name = "SPEC")]
    specs: Vec<TypedApi>,
    /// A variable that holds what lets us in at an API, like `petstore:PETSTORE_TOKEN`; where the API has several
    /// schemes, one for each, like `petstore.api_key:PETSTORE_KEY`. May be given several times.
    #[arg(long, value_name = "NAME[.SCHEME]:VARIABLE")]
    auth: Vec<TypedAuth>,
    /// A server: a command line like `files='npx -y server-filesystem .'`, or an address like
    /// `remote=https://example.com/mcp`. May be given several times.
    #[arg(long, value_name = "NAME=COMMAND|URL")]
    mcp: Vec<TypedServer>,
    /// Serve HTTP and MCP (at `/mcp`) at an address, and not MCP on stdin and stdout; at `server.bind` when
    /// none is given. `--port` and `--bind` do the same.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true)]
    #[arg(conflicts_with_all = ["port", "bind"])]
    #[expect(clippy::option_option, reason = "absent, alone, and with an address are three things")]
    http: Option<Option<String>>,
    #[command(flatten)]
    listen: TypedBind,
}

impl Run {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        let at_address = self.http.is_some() || self.listen.is_given();
        let address = self.http.flatten();
        let typed = Typed {
            servers: self.mcp,
            apis: self.specs,
            auth: self.auth,
            is_http: address.is_some(),
            bind: if address.is_some() { TypedBind::to(address) } else { self.listen },
            store: None,
        };
        let load: ConfigLoader = Arc::new(move |global| global.load_without_workspace(&typed));
        let config = load(global)?;
        let settings = &config.settings;
        let has_scripts = !settings.tools.is_empty() || !settings.agents.is_empty();
        let has_functions = !settings.mcp_servers.is_empty() || !settings.apis.is_empty() || has_scripts;
        if settings.connectors.is_empty() && !has_functions {
            return Err(CommandError::usage("there is nothing to serve").hint(
                "name an API by its OpenAPI description: ctx run petstore.yaml, or a server: \
                 ctx run --mcp files='npx -y @modelcontextprotocol/server-filesystem .'",
            ));
        }
        serve::config(load, at_address, global).await
    }
}
