//! A real knowledge base with two sources: a folder, and one whose document has no optional fields.

use super::{ApiServer, ServerBuilder};
use async_trait::async_trait;
use ctx_core::{
    Change, Connector, Cursor, Document, DocumentContent, Listing, PullResult, Sink, SourceError, SourceName,
};
use ctx_knowledge::{
    Chunking, ContextProvider, Extraction, KINDS, Knowledge, KnowledgeOptions, OpenOptions, SearchMode,
    SearchTuning, Source, SyncOptions,
};
use serde_json::{Map, json};
use std::fs;
use std::sync::Arc;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A source of a document without optional fields.
struct BareConnector;

#[async_trait]
impl Connector for BareConnector {
    async fn pull(&self, _: Option<&Cursor>, sink: &Sink) -> Result<PullResult, SourceError> {
        let document = Document {
            source_id: "bare".to_owned(),
            source_url: None,
            title: None,
            author: None,
            created_at: None,
            updated_at: None,
            content_type: None,
            content: DocumentContent::Text("the kettle is on".to_owned()),
            metadata: Map::new(),
            tags: Vec::new(),
            fingerprint: None,
        };
        sink.send(Change::Upsert(Box::new(document))).await?;
        Ok(PullResult { cursor: None, listing: Listing::Complete })
    }

    async fn check(&self) -> Result<(), SourceError> {
        Ok(())
    }
}

/// A server over synced sources; the folder must be held as long as the server.
pub(crate) async fn serving_documents() -> (ApiServer, TempDir) {
    let folder = tempfile::tempdir().expect("a sound workspace");
    let docs = folder.path().join("docs");
    fs::create_dir(&docs).expect("a sound workspace");
    fs::write(docs.join("deploy.md"), "# Deploy\n\nPush the green button.\n").expect("a sound workspace");
    fs::write(docs.join("rollback.md"), "# Rollback\n\nPush the red button.\n").expect("a sound workspace");

    let kind = KINDS.iter().find(|kind| kind.name == "filesystem").expect("a sound workspace");
    let options = OpenOptions {
        workspace_root: folder.path(),
        cache: folder.path(),
        environment: &|_| None,
        document_bytes_max: 1 << 20,
        own_files: &[],
    };
    let files = (kind.open)(&json!({"root": "docs"}), options).expect("a sound workspace");
    let source =
        |kind, name, connector| Source { name: SourceName::new(kind, name), connector, tags: Vec::new() };
    let knowledge = Knowledge::open(KnowledgeOptions {
        store: folder.path().join("data").join("ctx.sqlite"),
        extraction: Extraction::in_process(),
        chunking: Chunking { max_tokens: 256, overlap_tokens: 32 },
        mode: SearchMode::Hybrid,
        final_limit: 12,
        tuning: SearchTuning {
            keyword_candidates: 100,
            vector_candidates: 100,
            hybrid_alpha: None,
            min_cosine: None,
        },
        embedding: None,
        sources: vec![
            source("filesystem", "notes", files),
            source("script", "bare", Arc::new(BareConnector)),
        ],
    });
    let knowledge = Arc::new(knowledge.expect("a sound workspace"));
    for name in knowledge.source_names() {
        let (progress, never) = (Arc::new(|_| ()), CancellationToken::new());
        let report =
            knowledge.sync(name, SyncOptions::default(), progress, never).await.expect("a sound workspace");
        assert_eq!(report.warnings, []);
    }
    (ServerBuilder::new().provider(Arc::new(ContextProvider::new(knowledge))).start().await, folder)
}
