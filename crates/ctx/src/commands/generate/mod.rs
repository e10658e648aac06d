//! `ctx generate`: writes Luau types and a manifest of the functions of APIs.

mod manifest;

use crate::cli::{GlobalOptions, examples, working_directory};
use crate::config::split_name_and_spec;
use crate::error::{CommandError, CommandResult};
use crate::output::{CommandOutput, bytes, count};
use ctx_core::Identifier;
use ctx_openapi::{ApiOptions, ApiSettings, ApiState, ApiStatus, Apis, Interface, Spec};
use ctx_types::{Library, definitions};
use manifest::Manifest;
use serde_json::json;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of skipped operations listed per API.
const SKIPPED_SHOWN_MAX: usize = 10;

/// The comment at the beginning of `sdk.d.luau`.
const HEADER: &str = "\
-- Globals of the scripts that `ctx` runs, and every function of `sdk` that was generated.
-- Written by `ctx generate`, which writes it anew: changes are lost.
--
-- The Luau language server completes and checks scripts by it:
--   luau-lsp analyze --definitions=sdk.d.luau --flag:LuauTarjanChildLimit=0 SCRIPT…
-- and in Visual Studio Code, with these settings:
--   \"luau-lsp.platform.type\": \"standard\",
--   \"luau-lsp.types.definitionFiles\": { \"@ctx\": \"sdk.d.luau\" },
--   \"luau-lsp.fflags.override\": { \"LuauTarjanChildLimit\": \"0\" }
-- The flag raises a limit that about a thousand functions exceed; smaller APIs do not need it.
";

/// Generate Luau types and a JSON manifest from the functions of APIs.
///
/// Writes a module with types per API (`sdk/NAME.luau`), the declarations of all of them (`sdk.d.luau`), which the Luau
/// language server uses to complete and check scripts, and `manifest.json`. Other files in the folder are left alone.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Generate types for the APIs of the workspace", "ctx generate --output types"),
    ("Generate types for an OpenAPI file", "ctx generate petstore.yaml --output types"),
    ("Generate types for a URL, under another name", "ctx generate pets=https://example.com/openapi.json --output types"),
]))]
pub(crate) struct Generate {
    /// Path or URL of an OpenAPI description. The API is named after the file unless a name precedes it. By default the
    /// APIs in the workspace's `[apis]`.
    #[arg(value_name = "[NAME=]PATH|URL")]
    specs: Vec<String>,
    /// The folder to write to, which is created if it does not exist.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

impl Generate {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        let output = global.output();
        let settings =
            if self.specs.is_empty() { configured_apis(global)? } else { parse_apis(&self.specs)? };
        let options =
            ApiOptions { cache: None, on_change: Arc::new(|| ()), is_trusted: Arc::new(|_, _| true) };
        let apis = Apis::start(settings, &options);
        apis.wait_until_loaded().await;
        let files = tokio::task::spawn_blocking(move || GeneratedFiles::of(&apis, &output)).await;
        let files = files.map_err(|error| CommandError::new(format!("cannot generate: {error}")))??;
        let written = files.write(&self.output)?;
        let shown: Vec<String> = written.iter().map(|(path, _)| path.display().to_string()).collect();
        output.print_result(&json!({ "functions": files.functions, "files": shown }), || {
            let lines = written.iter().map(|(path, size)| format!("{}  {}\n", path.display(), bytes(*size)));
            format!("{}{}\n", lines.collect::<String>(), count(files.functions as u64, "function"))
        })
    }
}

/// The trusted APIs of the workspace.
fn configured_apis(global: &GlobalOptions) -> CommandResult<Vec<ApiSettings>> {
    let workspace = global.open_for(&["apis.", "frozen_params"])?;
    let (mut apis, _) = workspace.config.apis(&|_| true);
    if apis.is_empty() {
        let error = CommandError::usage("the workspace has no usable [apis] section");
        return Err(error.hint("name a description: ctx generate petstore.yaml -o types"));
    }
    let working_folder = working_directory()?;
    for api in &mut apis {
        // Relative, so that the generated files do not depend on the location of the workspace.
        if let Spec::File(path) = &api.spec
            && let Ok(inside) = path.strip_prefix(&working_folder)
        {
            api.spec = Spec::File(inside.to_owned());
        }
    }
    Ok(apis)
}

/// The APIs named on the command line: `name=path`, `name=https://…`, or without a name.
fn parse_apis(specs: &[String]) -> CommandResult<Vec<ApiSettings>> {
    let mut names = HashSet::new();
    let mut settings = Vec::new();
    for argument in specs {
        let (name, spec) = split_name_and_spec(argument).map_err(CommandError::usage)?;
        let name = Identifier::sanitize(&name);
        if !names.insert(name.clone()) {
            let error = CommandError::usage(format!("two descriptions have the name {name}"));
            return Err(error.hint("give one of them another name: `other=PATH`"));
        }
        // Relative paths stay relative, so that the generated files do not depend on the working directory.
        let spec = Spec::parse(spec, Path::new(""));
        let spec = spec.map_err(|error| CommandError::usage(format!("{name}: {error}")))?;
        settings.push(ApiSettings::new(name, spec));
    }
    Ok(settings)
}

/// The generated files, in memory.
struct GeneratedFiles {
    all: Vec<(PathBuf, Vec<u8>)>,
    functions: usize,
}

impl GeneratedFiles {
    fn of(apis: &Apis, output: &CommandOutput) -> CommandResult<Self> {
        let states = apis.statuses();
        let failed = states.iter().filter_map(|status| match &status.state {
            ApiState::Failed(reason) => Some(format!("{} cannot be read: {reason}", status.spec)),
            _ => None,
        });
        let messages: Vec<String> = failed.collect();
        if !messages.is_empty() {
            return Err(CommandError { messages, ..CommandError::new("") });
        }
        states.iter().for_each(|status| warn_skipped(status, output));
        let mut files = Self { all: Vec::new(), functions: 0 };
        let mut manifest = Manifest::default();
        let mut libraries = Vec::new();
        for (status, interface) in apis.interfaces() {
            let Some(interface) = interface else { continue };
            let file = format!("sdk/{}.luau", status.name);
            let library = library(&status, &interface);
            files.functions += interface.functions.len();
            files.all.push((PathBuf::from(&file), library.module().into_bytes()));
            manifest.add(status, file, interface);
            libraries.push(library);
        }
        files.all.push((PathBuf::from("sdk.d.luau"), all_definitions(&libraries).into_bytes()));
        let manifest = manifest.text();
        let manifest =
            manifest.map_err(|error| CommandError::new(format!("cannot serialize the manifest: {error}")))?;
        files.all.push((PathBuf::from("manifest.json"), manifest));
        Ok(files)
    }

    /// Writes the files that are missing or differ; returns all paths with sizes.
    fn write(&self, folder: &Path) -> CommandResult<Vec<(PathBuf, u64)>> {
        let write = |(path, bytes): &(PathBuf, Vec<u8>)| {
            let path = folder.join(path);
            write_atomically(&path, bytes)
                .map_err(|error| CommandError::new(format!("cannot write {}: {error}", path.display())))?;
            Ok((path, bytes.len() as u64))
        };
        self.all.iter().map(write).collect()
    }
}

fn library(status: &ApiStatus, interface: &Interface) -> Library {
    let title = status.title.as_deref().unwrap_or_default();
    let specs = interface.functions.iter().map(|function| &function.spec);
    Library::of(&status.name, title, specs, &interface.definitions)
}

/// The type definitions of all globals of scripts: the generated `sdk`, and the host APIs.
fn all_definitions(libraries: &[Library]) -> String {
    let hosts =
        ctx_luau::api_types().filter(|(name, _)| *name != "sdk").map(|(_, types)| format!("\n{types}"));
    format!("{HEADER}{}{}", hosts.collect::<String>(), definitions(libraries))
}

fn warn_skipped(status: &ApiStatus, output: &CommandOutput) {
    for (operation, reason) in status.skipped.iter().take(SKIPPED_SHOWN_MAX) {
        output.warn(&format!("{}: {operation} is left out: {reason}", status.name));
    }
    let more = status.skipped.len().saturating_sub(SKIPPED_SHOWN_MAX);
    if more > 0 {
        let operations = count(more as u64, "more operation");
        output.warn(&format!(
            "{}: {operations} left out; `skipped` in manifest.json has them all",
            status.name
        ));
    }
}

/// Writes a file atomically, unless it has this content already.
fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|existing| existing == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    fs::write(&part, bytes).and_then(|()| fs::rename(&part, path)).inspect_err(|_| {
        if fs::remove_file(&part).is_err() {
            // The temporary file was never created.
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_is_called_as_it_is_typed_or_like_its_file() {
        for (argument, name, spec) in [
            ("pets=specs/petstore.yaml", "pets", "specs/petstore.yaml"),
            ("specs/pet-store.v2.yaml", "pet_store", "specs/pet-store.v2.yaml"),
            ("https://example.com/a/pets.json?key=secret", "pets", "https://example.com/a/pets.json"),
            ("x=https://example.com/openapi.json", "x", "https://example.com/openapi.json"),
            ("specs/a=b.yaml", "a_b", "specs/a=b.yaml"),
        ] {
            let api = parse_apis(&[argument.to_owned()]).unwrap().remove(0);
            assert_eq!((api.name.as_str(), api.spec.to_string()), (name, spec.to_owned()), "{argument}");
        }
        let error = parse_apis(&["https://me:secret@example.com/pets.json".to_owned()]).err().unwrap();
        assert!(!error.messages.concat().contains("secret"), "{:?}", error.messages);
    }
}
