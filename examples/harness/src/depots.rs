//! A connector in Rust: reads the bike depots of a company.

use async_trait::async_trait;
use ctx::{Change, Connector, Cursor, Document, DocumentContent, Listing, PullResult, Sink, SourceError};

/// Name, version and text of each depot. Your connector reads them from a database or an API.
const DEPOTS: [(&str, &str, &str); 2] = [
    ("harbour", "3", "The harbour depot has forty city bikes. Its gate code is changed on Mondays."),
    ("old-town", "7", "The old town depot has twelve cargo bikes and a workshop for punctures."),
];

/// The source `rust:depots`.
pub(crate) struct Depots;

#[async_trait]
impl Connector for Depots {
    async fn pull(&self, _: Option<&Cursor>, sink: &Sink) -> Result<PullResult, SourceError> {
        for (name, version, text) in DEPOTS {
            // A document whose version has not changed since the last sync need not be fetched.
            if sink.needs_read(name, version) {
                let document = Document {
                    title: Some(format!("Depot {name}")),
                    source_url: Some(format!("https://depots.example.com/{name}")),
                    fingerprint: Some(version.to_owned()),
                    ..Document::new(name, DocumentContent::Text(text.to_owned()))
                };
                sink.send(Change::Upsert(Box::new(document))).await?;
            }
        }
        // A complete listing: documents of depots that were not listed are deleted.
        Ok(PullResult { cursor: None, listing: Listing::Complete })
    }

    async fn check(&self) -> Result<(), SourceError> {
        Ok(())
    }
}
