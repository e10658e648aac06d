//! `ctx upstream accept`

use super::changes;
use crate::admin::{self, AcceptUpstream, AcceptUpstreamRequest, Admin};
use crate::cli::Global;
use crate::error::CommandResult;
use std::sync::Arc;

/// Takes the definitions that were seen last for accepted: those are what the user could look at.
pub(super) async fn run(name: String, global: &Global) -> CommandResult {
    let output = global.output();
    let config = global.load()?;
    config.warnings.iter().for_each(|warning| output.warn(warning));
    // Without a workspace: no store is needed.
    let catalog = Admin::of_config(&Arc::new(config)).into_catalog();
    let request = AcceptUpstreamRequest { name: name.clone() };
    let answer = admin::call::<AcceptUpstream>(catalog, request).await?;
    output.answer(&answer, || match answer.accepted.is_empty() {
        true => format!("the tools of {name} are those that were accepted"),
        false => format!("accepted the tools of {name}:\n{}", changes::shown(&answer.accepted)),
    })
}
