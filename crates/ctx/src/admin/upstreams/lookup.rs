//! Finds the section of an upstream by name, and refuses untrusted ones.

use crate::admin::operation_error::with_hints;
use crate::config::{Config, api_section, upstream_section};
use crate::trust;
use ctx_core::{ErrorKind, Identifier, ToolError, nearest};

/// The name of a trusted server, as in its section's header.
pub(crate) fn find_trusted_server<'a>(config: &'a Config, name: &str) -> Result<&'a str, ToolError> {
    refuse_untrusted(config, name)?;
    find_server(config, name)
}

/// The section of a trusted server or API.
pub(super) fn find_trusted_section(config: &Config, name: &str) -> Result<String, ToolError> {
    refuse_untrusted(config, name)?;
    let configured = config.settings.apis.keys();
    let matches =
        |configured: &&String| *configured == name || Identifier::sanitize(configured).as_str() == name;
    if let Some(api) = configured.clone().find(matches) {
        return Ok(api_section(api));
    }
    match server_by_name(config, name) {
        Some(server) => Ok(upstream_section(server)),
        None => {
            let near = nearest(name, configured.map(String::as_str));
            Err(unknown_server(config, name, near.map(|near| format!("did you mean the API `{near}`?"))))
        }
    }
}

/// The name of a server as in its section's header. `name` may also be the identifier in its functions'
/// names.
pub(super) fn find_server<'a>(config: &'a Config, name: &str) -> Result<&'a str, ToolError> {
    server_by_name(config, name).ok_or_else(|| unknown_server(config, name, None))
}

fn server_by_name<'a>(config: &'a Config, name: &str) -> Option<&'a str> {
    let configured: Vec<&str> = config.settings.mcp_servers.keys().map(String::as_str).collect();
    let names = Identifier::sanitize_all(configured.iter().copied());
    let by_identifier = configured.iter().zip(&names).find(|(_, identifier)| identifier.as_str() == name);
    let server = configured
        .iter()
        .find(|configured| **configured == name)
        .or(by_identifier.map(|(configured, _)| configured));
    server.copied()
}

fn unknown_server(config: &Config, name: &str, further_hint: Option<String>) -> ToolError {
    let hint = match nearest(name, config.settings.mcp_servers.keys().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`ctx upstream list` lists the configured ones".to_owned(),
    };
    let error = ToolError::bad_request(format!("there is no server `{name}` in [mcp_servers]"));
    with_hints(error, [hint].into_iter().chain(further_hint))
}

/// Fails for an untrusted server or API. Its section is missing from the settings, so a lookup would only
/// report an unknown name.
pub(super) fn refuse_untrusted(config: &Config, name: &str) -> Result<(), ToolError> {
    let sections = [upstream_section(name), api_section(name)];
    match config.untrusted.iter().find(|request| sections.contains(&request.section)) {
        Some(request) => {
            let message = format!("[{}] is not trusted", request.section);
            Err(with_hints(ToolError::new(ErrorKind::Forbidden, message), [trust::TRUST_HINT.to_owned()]))
        }
        None => Ok(()),
    }
}
