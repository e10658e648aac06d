//! `ctx exec`

use super::trial::Terminal;
use crate::cli::Global;
use crate::error::{CommandError, CommandResult};
use crate::trust::CALL_GROUPS;
use ctx_core::{Call, Caller, Catalog, Entry, ErrorKind};
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A script that is longer is refused before it is read whole.
const SCRIPT_BYTES_MAX: u64 = 1 << 20;

/// Run a script against everything that can be called, and print its result.
#[derive(Debug, clap::Args)]
pub(crate) struct Exec {
    /// The script; `-` reads it from standard input.
    file: PathBuf,
}

impl Exec {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        let script = read(&self.file)?;
        let workspace = global.open_for(CALL_GROUPS)?;
        let scripts = workspace.load_callable().await;
        let output = global.output();
        scripts.problems().iter().for_each(|problem| output.warn(problem));
        let run = async |catalog: Arc<Catalog>| {
            let call = Call::new(catalog, Caller::Cli).with_peer(Arc::new(Terminal(output)));
            Catalog::call("execute", json!({ "script": script }), call).await
        };
        let before = workspace.catalog.current();
        let mut done = run(before.clone()).await;
        if done.as_ref().is_err_and(|error| error.kind() == ErrorKind::BadRequest) {
            // It was not run, since it names what is not there; what is remembered of servers may be old.
            workspace.connect_upstreams().await;
            let now = workspace.catalog.current();
            if !has_same_functions(&before, &now) {
                done = run(now).await;
            }
        }
        workspace.end_processes().await;
        workspace.close();
        let done = done?;
        let logs: Vec<Value> = done
            .logs
            .iter()
            .map(|line| json!({"level": line.level.as_str().to_lowercase(), "message": line.message}))
            .collect();
        let meta = done.inside;
        let result = done.into_data();
        output.content(&json!({ "result": result, "logs": logs, "meta": meta }), || match &result {
            Value::String(text) => text.clone(),
            result => serde_json::to_string_pretty(result).unwrap_or_default(),
        })
    }
}

fn has_same_functions(one: &Catalog, other: &Catalog) -> bool {
    let function = |entry: &Entry| (entry.name.to_string(), entry.spec.clone());
    one.entries().map(function).eq(other.entries().map(function))
}

fn read(file: &Path) -> CommandResult<String> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(SCRIPT_BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(SCRIPT_BYTES_MAX + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| CommandError::usage(format!("cannot read {}: {error}", file.display())))?;
    if bytes.len() as u64 > SCRIPT_BYTES_MAX {
        let most = SCRIPT_BYTES_MAX >> 20;
        return Err(CommandError::usage(format!("{} is larger than {most} MiB", file.display())));
    }
    String::from_utf8(bytes).map_err(|_| CommandError::usage(format!("{} is not text", file.display())))
}
