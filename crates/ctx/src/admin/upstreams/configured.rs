//! Finds the section of an upstream by name, and refuses untrusted ones.

use crate::admin::failure::with_hints;
use crate::config::{Config, api_section, upstream_section};
use crate::trust;
use ctx_core::{ErrorKind, Identifier, ToolError, nearest};

/// The name of a trusted server, as in its section's header.
pub(crate) fn usable_server<'a>(config: &'a Config, name: &str) -> Result<&'a str, ToolError> {
    refuse_untrusted(config, name)?;
    section_named(config, name)
}

/// The section of a trusted server or API.
pub(super) fn usable_section(config: &Config, name: &str) -> Result<String, ToolError> {
    refuse_untrusted(config, name)?;
    let written = config.settings.apis.keys();
    let is_it = |written: &&String| *written == name || Identifier::sanitize(written).as_str() == name;
    if let Some(api) = written.clone().find(is_it) {
        return Ok(api_section(api));
    }
    match server_named(config, name) {
        Some(server) => Ok(upstream_section(server)),
        None => {
            let near = nearest(name, written.map(String::as_str));
            Err(unknown_server(config, name, near.map(|near| format!("did you mean the API `{near}`?"))))
        }
    }
}

/// The name of a server as in its section's header. `name` may also be the identifier in its functions'
/// names.
pub(super) fn section_named<'a>(config: &'a Config, name: &str) -> Result<&'a str, ToolError> {
    server_named(config, name).ok_or_else(|| unknown_server(config, name, None))
}

fn server_named<'a>(config: &'a Config, name: &str) -> Option<&'a str> {
    let written: Vec<&str> = config.settings.mcp_servers.keys().map(String::as_str).collect();
    let names = Identifier::sanitize_all(written.iter().copied());
    let called = written.iter().zip(&names).find(|(_, identifier)| identifier.as_str() == name);
    let found = written.iter().find(|written| **written == name).or(called.map(|(written, _)| written));
    found.copied()
}

fn unknown_server(config: &Config, name: &str, more: Option<String>) -> ToolError {
    let hint = match nearest(name, config.settings.mcp_servers.keys().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`ctx upstream list` shows those that are there".to_owned(),
    };
    let error = ToolError::bad_request(format!("there is no server `{name}` in [mcp_servers]"));
    with_hints(error, [hint].into_iter().chain(more))
}

/// Fails for an untrusted server or API. Its section is missing from the settings, so a lookup would only
/// report an unknown name.
pub(super) fn refuse_untrusted(config: &Config, name: &str) -> Result<(), ToolError> {
    let sections = [upstream_section(name), api_section(name)];
    match config.untrusted.iter().find(|request| sections.contains(&request.section)) {
        Some(request) => {
            let message = format!("[{}] may not be used", request.section);
            Err(with_hints(ToolError::new(ErrorKind::Forbidden, message), [trust::refusal()]))
        }
        None => Ok(()),
    }
}
