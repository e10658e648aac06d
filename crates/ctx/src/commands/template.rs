//! Creates scripts from templates: a file that runs without changes, and its section in the configuration.

use crate::cli::GlobalOptions;
use crate::config::{CliOverrides, Config};
use crate::error::{CommandError, CommandResult};
use crate::scripts::RESERVED_NAMES;
use crate::trust;
use ctx_core::Identifier;
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Maximum length of a script's name.
const NAME_LENGTH_MAX: usize = 60;

/// The template of one kind of script.
pub(super) struct Template {
    /// The group of its section in ctx.toml, which is also the folder of its file.
    group: &'static str,
    text: &'static str,
    /// The command that tests the new script.
    test_command: &'static str,
}

pub(super) const TOOL: Template = Template {
    group: "tools",
    text: include_str!("templates/tool.lua"),
    test_command: "ctx tool test @PATH@ --param query=WORDS",
};
pub(super) const CONNECTOR: Template = Template {
    group: "connectors",
    text: include_str!("templates/connector.lua"),
    test_command: "ctx connector test @PATH@",
};
pub(super) const AGENT: Template = Template {
    group: "agents",
    text: include_str!("templates/agent.lua"),
    test_command: "ctx agent test @PATH@ --arg topic=WORDS",
};

/// Writes a script, and its section if the workspace has a configuration file.
pub(super) fn write(template: &Template, name: &str, global: &GlobalOptions) -> CommandResult {
    let key = checked_name(template, name)?;
    let located = global.locate()?;
    let config = match &located.workspace {
        Some(_) => Some(global.load()?),
        None => None,
    };
    let shown = format!("{}/{name}.lua", template.group);
    let path = located.root.join(&shown);
    let fill = |text: &str| text.replace("@NAME@", &key).replace("@PATH@", &shown);
    create_file(&path, &shown, &fill(template.text))?;
    let section = format!("[{}.script.{key}]\npath = \"{shown}\"\n", template.group);
    let added = match &config {
        Some(config) => add_section(config, template.group, &key, &section, global)?,
        None => None,
    };
    let test_command = fill(template.test_command);
    global.output().print_result(&json!({"script": path, "section": section, "config": added}), || {
        match &added {
            Some(file) => {
                format!(
                    "created {shown}\nadded [{}.script.{key}] to {file}\nnext: `{test_command}`",
                    template.group
                )
            }
            None => {
                format!(
                    "created {shown}\nnext: `{test_command}`; its section in ctx.toml would be\n\n{section}"
                )
            }
        }
    })
}

/// Validates a name, and returns it as it is used in the configuration and in the script.
fn checked_name(template: &Template, name: &str) -> CommandResult<String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty()
        || name.len() > NAME_LENGTH_MAX
        || !name.chars().all(is_allowed)
        || name.starts_with('-')
    {
        return Err(CommandError::usage(format!("`{name}` is not a valid script name"))
            .hint("letters, digits, `-` and `_`, like `post-slack`"));
    }
    // Scripts call tools by name, so a tool's name must be an identifier. Agents and sources keep the given name.
    if template.group != TOOL.group {
        return Ok(name.to_owned());
    }
    let key = Identifier::sanitize(name).to_string();
    if RESERVED_NAMES.contains(&key.as_str()) {
        return Err(CommandError::usage(format!("`{name}` is reserved for a built-in")));
    }
    Ok(key)
}

fn create_file(path: &Path, shown: &str, text: &str) -> CommandResult {
    let failed = |error| CommandError::new(format!("cannot write {shown}: {error}"));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut file = match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(CommandError::usage(format!("{shown} already exists; nothing was changed")));
        }
        opened => opened.map_err(failed)?,
    };
    file.write_all(text.as_bytes()).map_err(failed)
}

/// Appends the section to the configuration file and returns the file's path; `None` if the section exists already.
fn add_section(
    config: &Config,
    group: &str,
    key: &str,
    section: &str,
    global: &GlobalOptions,
) -> CommandResult<Option<String>> {
    let Some(path) = &config.path else { return Ok(None) };
    if config.has_section(&[group, "script", key]) {
        return Ok(None);
    }
    let file = path.strip_prefix(&config.root).unwrap_or(path).display().to_string();
    let failed = |error| CommandError::new(format!("cannot write {file}: {error}"));
    let mut text = fs::read_to_string(path).map_err(failed)?;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let gap = if text.is_empty() { "" } else { "\n" };
    fs::write(path, format!("{text}{gap}{section}")).map_err(failed)?;
    // The user has just asked for this section, so it is trusted without a prompt; no other section is.
    let name = format!("{group}.script.{key}");
    let added: Vec<_> = global
        .load_at(path, &CliOverrides::default())?
        .trust_requests
        .into_iter()
        .filter(|request| request.section == name)
        .collect();
    trust::grant(path, &added)?;
    Ok(Some(file))
}
