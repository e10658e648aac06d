//! Sample documents and vectors.

use crate::documents::{DocumentId, NewDocument, SourceCounts, Span};
use crate::store::Store;
use crate::vectors::{ModelKey, NewVector, NewVectors, TextHash};
use ctx_core::SourceName;
use jiff::Timestamp;
use std::collections::BTreeMap;
use uuid::Uuid;

/// A source of the suite.
pub(crate) fn source(number: u8) -> SourceName {
    SourceName::new("contract", format!("s{number}"))
}

/// The id of a document of the suite.
pub(crate) fn id(source_number: u8, name: &str) -> DocumentId {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{}\n{name}", source(source_number)).as_bytes())
}

/// A document with a chunk for each line of its text, and no vectors.
pub(crate) fn document(source_number: u8, name: &str, body: &str) -> NewDocument {
    let mut chunks = Vec::new();
    let mut start = 0;
    for line in body.split_inclusive('\n') {
        chunks.push(Span { start, end: start + line.len(), heading: format!("{name} > {}", chunks.len()) });
        start += line.len();
    }
    NewDocument {
        id: id(source_number, name),
        source: source(source_number).to_string(),
        source_id: name.to_owned(),
        source_url: Some(format!("contract://{name}")),
        title: Some(format!("Title of {name}")),
        author: None,
        created_at: Timestamp::from_millisecond(1_000).unwrap(),
        updated_at: Timestamp::from_millisecond(2_000 + body.len() as i64).unwrap(),
        content_type: "text/plain".to_owned(),
        metadata: "{\"a\":1}".to_owned(),
        tags: format!("[\"all\",\"s{source_number}\"]"),
        body: body.to_owned(),
        chunks,
        vectors: NewVectors::default(),
        sketch: vec![1, 2, 3],
        hash: *blake3::hash(body.as_bytes()).as_bytes(),
        fingerprint: Some("f".to_owned()),
        note: None,
    }
}

/// Hash of the text of a chunk.
pub(crate) fn text_hash(text: &str) -> TextHash {
    let mut hash = TextHash::default();
    let all = blake3::hash(text.as_bytes());
    hash.copy_from_slice(&all.as_bytes()[..size_of::<TextHash>()]);
    hash
}

/// Fake exact values of a vector: bytes derived from the model and the text.
pub(crate) fn half(model: ModelKey, text: &str) -> Vec<u8> {
    blake3::hash(format!("{model} {text}").as_bytes()).as_bytes()[..8].to_vec()
}

/// The vector of a chunk.
pub(crate) fn vector(model: ModelKey, position: usize, text: &str) -> NewVector {
    let half = half(model, text);
    NewVector { position, hash: text_hash(text), scale: 0.5, codes: half[..4].to_vec(), half }
}

/// The document with vectors of the model `made` for all of its chunks, if a model is given.
pub(crate) fn with_vectors(
    document: NewDocument,
    made: Option<ModelKey>,
    wanted: Option<ModelKey>,
) -> NewDocument {
    let texts: Vec<&str> = document.chunks.iter().map(|span| span.of(&document.body)).collect();
    let vectors = NewVectors {
        hashes: texts.iter().map(|text| text_hash(text)).collect(),
        computed: made.map(|model| {
            let vectors = texts.iter().enumerate().map(|(position, text)| vector(model, position, text));
            (model, vectors.collect())
        }),
        required_model: wanted,
    };
    NewDocument { vectors, ..document }
}

/// The counts of each source, from the documents themselves.
pub(crate) fn recount(store: &dyn Store) -> BTreeMap<String, SourceCounts> {
    let mut counts: BTreeMap<String, SourceCounts> = BTreeMap::new();
    for listed in store.list(0, usize::MAX >> 1).unwrap() {
        let count = counts.entry(listed.source).or_default();
        count.documents += 1;
        count.chunks += store.document(listed.id).unwrap().unwrap().chunks.len() as u64;
        count.bytes += listed.bytes;
    }
    counts
}
