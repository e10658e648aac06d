//! `ctx stats`

use crate::cli::Global;
use crate::error::CommandResult;
use crate::output::{bytes, count, table};
use ctx_knowledge::{Stats as Figures, VectorStats};

/// Show how much is stored, by source.
#[derive(Debug, clap::Args)]
pub(crate) struct Stats {}

impl Stats {
    pub(crate) fn run(self, global: &Global) -> CommandResult {
        let figures = global.open()?.knowledge.stats()?;
        global.output().answer(&figures, || as_text(&figures))
    }
}

fn vectors(figures: &VectorStats) -> String {
    let waiting = match figures.pending_documents {
        0 => String::new(),
        pending => format!(", missing for {}", count(pending, "document")),
    };
    format!("{} of {}{waiting}", figures.vectors, figures.model)
}

fn as_text(figures: &Figures) -> String {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut text = table(&[
        row("documents", figures.documents.to_string()),
        row("chunks", figures.chunks.to_string()),
        row("text", bytes(figures.text_bytes)),
        row("store", bytes(figures.store_bytes)),
        row("keyword index", bytes(figures.keyword_index_bytes)),
        row("vectors", figures.vectors.as_ref().map_or_else(|| "none".to_owned(), vectors)),
    ]);
    let header = ["source", "documents", "chunks", "text", "last sync"].map(str::to_owned).to_vec();
    let sources = figures.sources.iter().map(|source| {
        vec![
            source.name.clone(),
            source.documents.to_string(),
            source.chunks.to_string(),
            bytes(source.text_bytes),
            source.last_sync.map_or_else(|| "never".to_owned(), |at| at.to_string()),
        ]
    });
    let rows: Vec<_> = std::iter::once(header).chain(sources).collect();
    text.push_str(&format!("\n{}", table(&rows)));
    text
}
