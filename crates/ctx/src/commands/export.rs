//! `ctx export`: writes all documents as one JSON object.

use crate::cli::{GlobalOptions, examples};
use crate::error::{CommandError, CommandResult};
use serde_json::json;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Export all documents as JSON.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Export to a file", "ctx export --output documents.json"),
    ("List the titles of all documents", "ctx export | jq -r '.documents[].title'"),
]))]
pub(crate) struct Export {
    /// Write to this file instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Export {
    pub(crate) fn run(self, global: &GlobalOptions) -> CommandResult {
        let workspace = global.open()?;
        let knowledge = &workspace.knowledge;
        let mut ids = knowledge.ids()?;
        ids.sort();
        let destination =
            self.output.as_ref().map_or_else(String::new, |path| format!(" to {}", path.display()));
        let failed =
            |error: io::Error| CommandError::new(format!("cannot write the export{destination}: {error}"));
        let mut target: Box<dyn Write> = match &self.output {
            Some(path) => Box::new(BufWriter::new(File::create(path).map_err(failed)?)),
            None => Box::new(BufWriter::new(io::stdout().lock())),
        };
        // Written one document at a time: an export may be larger than memory.
        let mut separator = "{\"documents\":[\n";
        for id in ids {
            let Some(document) = knowledge.get(id)? else { continue };
            let tags = json!(document.tags);
            let mut value = serde_json::to_value(document).map_err(|error| failed(error.into()))?;
            value["tags"] = tags;
            if is_pipe_closed(write!(target, "{separator}{value}")).map_err(failed)? {
                return Ok(());
            }
            separator = ",\n";
        }
        let start = if separator.starts_with('{') { separator } else { "" };
        is_pipe_closed(writeln!(target, "{start}\n]}}").and_then(|()| target.flush()))
            .map_err(failed)
            .map(drop)
    }
}

/// Whether the reader of stdout has closed the pipe, as `head` does: this is no failure.
fn is_pipe_closed(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        other => other.map(|()| false),
    }
}
