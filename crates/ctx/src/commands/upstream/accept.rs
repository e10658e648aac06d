//! `ctx upstream accept`

use super::{changes, refuse_untrusted, section_named};
use crate::cli::Global;
use crate::config::upstream_section;
use crate::definitions::UpstreamMemory;
use crate::error::{CommandError, CommandResult};
use ctx_mcp::ServerKey;
use serde_json::json;

/// Takes the definitions that were seen last for accepted: those are what the user could look at.
pub(super) fn run(name: &str, global: &Global) -> CommandResult {
    let output = global.output();
    let config = global.load()?;
    config.warnings.iter().for_each(|warning| output.warn(warning));
    refuse_untrusted(&config, name)?;
    let section = upstream_section(section_named(&config, name)?);
    let (settings, _) = config.upstreams(&|configured| configured == section);
    let Some(server) = settings.first() else { return Ok(()) };
    let memory = UpstreamMemory::of(&config);
    let key = ServerKey::of(server);
    let Some(known) = memory.known(&key)? else {
        return Err(CommandError::new(format!("nothing is known of the tools of {name} yet"))
            .hint("`ctx upstream list` connects to it; what is seen first is accepted"));
    };
    let difference = known.difference(&server.tools);
    memory.accept(&key, &known.seen)?;
    let answer = json!({ "name": server.name.as_str(), "accepted": difference });
    output.answer(&answer, || match difference.is_empty() {
        true => format!("the tools of {name} are those that were accepted"),
        false => format!("accepted the tools of {name}:\n{}", changes::shown(&difference)),
    })
}
