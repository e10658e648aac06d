//! `ctx stats`: prints the sizes of store, indexes and sources.

use crate::admin::{self, ShowStats, ShowStatsRequest};
use crate::cli::{GlobalOptions, examples};
use crate::error::CommandResult;
use crate::output::{bytes, count, table};
use ctx_knowledge::{Stats as KnowledgeStats, VectorStats};

/// Show the size of the index, in total and by source.
///
/// Lists documents, chunks, bytes of text and vectors, and how many documents still lack vectors.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Show sizes and the progress of embeddings", "ctx stats"),
    ("Print the number of documents", "ctx stats --json | jq .documents"),
]))]
pub(crate) struct Stats {}

impl Stats {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        let catalog = global.open()?.catalog.current();
        let stats = admin::call::<ShowStats>(catalog, ShowStatsRequest {}).await?;
        global.output().print_result(&stats, || as_text(&stats))
    }
}

fn vectors_text(stats: &VectorStats) -> String {
    let waiting = match stats.pending_documents {
        0 => String::new(),
        pending => format!(", missing for {}", count(pending, "document")),
    };
    format!("{} of {}{waiting}{}", stats.vectors, stats.model, unreadable_text(stats))
}

/// Describes the chunks that the embedding model rejects, with the reason; empty if it rejects none.
pub(crate) fn unreadable_text(stats: &VectorStats) -> String {
    let Some(first) = stats.unreadable.first() else { return String::new() };
    let more = match stats.unreadable.len() {
        1 => String::new(),
        several => format!(" and {}", count(several as u64 - 1, "other document")),
    };
    let name = format!("{}:{}", first.source, first.source_id);
    let chunks = count(stats.unreadable_chunks, "chunk");
    format!(", none for {chunks} that the model rejects, in {name}{more}: {}", first.reason)
}

fn as_text(stats: &KnowledgeStats) -> String {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut text = table(&[
        row("documents", stats.documents.to_string()),
        row("chunks", stats.chunks.to_string()),
        row("text", bytes(stats.text_bytes)),
        row("store", bytes(stats.store_bytes)),
        row("keyword index", bytes(stats.keyword_index_bytes)),
        row("vectors", stats.vectors.as_ref().map_or_else(|| "none".to_owned(), vectors_text)),
    ]);
    let header = ["source", "documents", "chunks", "text", "last sync"].map(str::to_owned).to_vec();
    let sources = stats.sources.iter().map(|source| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_knowledge::UnreadableDocument;

    #[test]
    fn rejected_chunks_are_reported_with_the_first_document() {
        let mut stats = VectorStats {
            model: "openai:m".to_owned(),
            vectors: 7,
            pending_documents: 0,
            unreadable_chunks: 0,
            unreadable: Vec::new(),
        };
        assert_eq!(vectors_text(&stats), "7 of openai:m");
        let document = UnreadableDocument {
            source: "filesystem:docs".to_owned(),
            source_id: "a.md".to_owned(),
            chunks: 1,
            reason: "too rude".to_owned(),
        };
        stats.unreadable = vec![document.clone()];
        stats.unreadable_chunks = 1;
        let expected =
            "7 of openai:m, none for 1 chunk that the model rejects, in filesystem:docs:a.md: too rude";
        assert_eq!(vectors_text(&stats), expected);
        stats.unreadable.push(document);
        stats.unreadable_chunks = 3;
        let expected =
            "none for 3 chunks that the model rejects, in filesystem:docs:a.md and 1 other document";
        assert!(vectors_text(&stats).contains(expected), "{}", vectors_text(&stats));
    }
}
