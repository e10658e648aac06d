//! `ctx run`: turns its arguments into a configuration without a workspace, and serves it.

use super::serve::{self, ConfigLoader};
use crate::cli::{GlobalOptions, examples};
use crate::config::{ApiArgument, AuthArgument, BindOptions, CliOverrides, ServerArgument};
use crate::error::{CommandError, CommandResult};
use std::sync::Arc;

/// Serve APIs and MCP servers as one MCP server, without a workspace.
///
/// A client connects to this server only, and calls the functions of all APIs and servers from scripts (`execute`).
/// Nothing is written to the working directory. A `ctx.toml` is used only if it is named with `--config`; your
/// user-level configuration always applies.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Serve an API on stdin and stdout", "ctx run petstore=https://petstore3.swagger.io/api/v3/openapi.json"),
    ("Serve an MCP server over HTTP", "ctx run --mcp files='npx -y @modelcontextprotocol/server-filesystem .' --http"),
    ("Serve an API with a token from the environment", "ctx run pets=https://example.com/openapi.json --auth pets:PETS_TOKEN"),
]))]
pub(crate) struct Run {
    /// Path or URL of an API's OpenAPI description. The API is named after the file (`petstore.yaml` is `petstore`), or
    /// by a name before it, as in `pets=https://example.com/openapi.json`. Can be repeated.
    #[arg(value_name = "SPEC")]
    specs: Vec<ApiArgument>,
    /// Environment variable with the credentials of an API, as in `petstore:PETSTORE_TOKEN`. For an API with several
    /// security schemes, one per scheme, as in `petstore.api_key:PETSTORE_KEY`. Can be repeated.
    #[arg(long, value_name = "NAME[.SCHEME]:VARIABLE")]
    auth: Vec<AuthArgument>,
    /// An MCP server: a command line, as in `files='npx -y server-filesystem .'`, or a URL, as in
    /// `remote=https://example.com/mcp`. Can be repeated.
    #[arg(long, value_name = "NAME=COMMAND|URL")]
    mcp: Vec<ServerArgument>,
    /// Serve HTTP and MCP (at `/mcp`) at this address instead of MCP on stdin and stdout. Without an address, at
    /// `server.bind`. `--port` and `--bind` serve HTTP as well.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true)]
    #[arg(conflicts_with_all = ["port", "bind"])]
    #[expect(clippy::option_option, reason = "absent, alone, and with an address are three things")]
    http: Option<Option<String>>,
    #[command(flatten)]
    listen: BindOptions,
}

impl Run {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        let over_http = self.http.is_some() || self.listen.is_set();
        let address = self.http.flatten();
        let overrides = CliOverrides {
            servers: self.mcp,
            apis: self.specs,
            auth: self.auth,
            is_http: address.is_some(),
            bind: if address.is_some() { BindOptions::at(address) } else { self.listen },
            store: None,
        };
        let load: ConfigLoader = Arc::new(move |global| global.load_without_workspace(&overrides));
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
        serve::serve_config(load, over_http, global).await
    }
}
