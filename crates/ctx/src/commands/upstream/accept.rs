//! `ctx upstream accept`: accepts the last seen tool definitions of an MCP server.

use super::changes;
use crate::admin::{self, AcceptUpstream, AcceptUpstreamRequest, Admin};
use crate::cli::GlobalOptions;
use crate::error::CommandResult;
use std::sync::Arc;

/// Accepts the definitions that were seen last, without asking the server again: those are the ones the user has
/// reviewed.
pub(super) async fn run(name: String, global: &GlobalOptions) -> CommandResult {
    let output = global.output();
    let config = global.load()?;
    config.warnings.iter().for_each(|warning| output.warn(warning));
    // The workspace is not opened, since no store is needed.
    let catalog = Admin::of_config(&Arc::new(config)).into_catalog();
    let request = AcceptUpstreamRequest { name: name.clone() };
    let answer = admin::call::<AcceptUpstream>(catalog, request).await?;
    output.print_result(&answer, || match answer.accepted.is_empty() {
        true => format!("the tools of {name} have not changed since they were accepted"),
        false => format!("accepted the tools of {name}:\n{}", changes::difference_text(&answer.accepted)),
    })
}
