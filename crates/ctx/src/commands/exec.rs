//! `ctx exec`: runs a script by a call of the tool `execute`.

use super::script_test::LogPrinter;
use crate::cli::{GlobalOptions, examples};
use crate::error::{CommandError, CommandResult};
use crate::trust::CALL_GROUPS;
use ctx_core::{Call, Caller, Catalog, CatalogEntry, ErrorKind};
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum size of a script; a longer file is rejected without reading all of it.
const SCRIPT_BYTES_MAX: u64 = 1 << 20;

/// Run a Luau script that can call every function, and print its result.
///
/// The script runs as in the tool `execute`: it calls tools, APIs and MCP servers as `sdk.<provider>.<name>{…}`, and
/// the value that it returns is printed.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Run a script", "ctx exec report.luau"),
    ("Run a script from standard input, and print result and logs as JSON", "ctx exec - --json < report.luau"),
]))]
pub(crate) struct Exec {
    /// The script file; `-` reads the script from standard input.
    file: PathBuf,
}

impl Exec {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        let script = read_script(&self.file)?;
        let workspace = global.open_for(CALL_GROUPS)?;
        let scripts = workspace.load_callable().await;
        let output = global.output();
        scripts.problems().iter().for_each(|problem| output.warn(problem));
        let run = async |catalog: Arc<Catalog>| {
            let call = Call::new(catalog, Caller::Cli).with_peer(Arc::new(LogPrinter(output)));
            Catalog::call("execute", json!({ "script": script }), call).await
        };
        let before = workspace.catalog.current();
        let mut result = run(before.clone()).await;
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::BadRequest) {
            // The script was rejected before it ran, because it names an unknown function. The cached function lists of
            // MCP servers may be outdated: connect to the servers, and try again if the functions differ.
            workspace.connect_upstreams().await;
            let now = workspace.catalog.current();
            if !has_same_functions(&before, &now) {
                result = run(now).await;
            }
        }
        workspace.end_processes().await;
        workspace.close();
        let result = result?;
        let logs: Vec<Value> = result
            .logs
            .iter()
            .map(|line| json!({"level": line.level.as_str().to_lowercase(), "message": line.message}))
            .collect();
        let meta = result.nested_calls;
        let result = result.into_data();
        output.print_content(&json!({ "result": result, "logs": logs, "meta": meta }), || match &result {
            Value::String(text) => text.clone(),
            result => serde_json::to_string_pretty(result).unwrap_or_default(),
        })
    }
}

fn has_same_functions(one: &Catalog, other: &Catalog) -> bool {
    let function = |entry: &CatalogEntry| (entry.name.to_string(), entry.spec.clone());
    one.entries().map(function).eq(other.entries().map(function))
}

fn read_script(file: &Path) -> CommandResult<String> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(SCRIPT_BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(SCRIPT_BYTES_MAX + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| CommandError::usage(format!("cannot read {}: {error}", file.display())))?;
    if bytes.len() as u64 > SCRIPT_BYTES_MAX {
        let mebibytes = SCRIPT_BYTES_MAX >> 20;
        return Err(CommandError::usage(format!("{} is larger than {mebibytes} MiB", file.display())));
    }
    String::from_utf8(bytes).map_err(|_| CommandError::usage(format!("{} is not text", file.display())))
}
