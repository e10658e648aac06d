//! Converts the items of a connector to changes of its source.

use super::type_name;
use ctx_core::{Change, Document, DocumentContent};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use serde_json::{Map, Number, Value};

/// Maximum size of a `source_id`.
const SOURCE_ID_BYTES_MAX: usize = 4 << 10;
/// A Unix time above this is in milliseconds: in seconds it would be after the year 5000.
const SECONDS_MAX: f64 = 1e11;

/// An invalid item.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidItem {
    /// The id of the document, if it is known.
    pub(super) source_id: Option<String>,
    /// The error message.
    pub(super) reason: String,
}

/// The changes in an item: one document, or deletions.
pub(super) fn parse_item(item: Value, document_bytes_max: usize) -> Result<Vec<Change>, InvalidItem> {
    let without_id = |reason: String| InvalidItem { source_id: None, reason };
    let Value::Object(mut fields) = item else {
        return Err(without_id(format!("an item must be a table, it is {}", type_name(&item))));
    };
    match fields.remove("deleted") {
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(Value::Bool(true)) => {
            return Ok(vec![Change::Delete { source_id: source_id(&fields).map_err(without_id)? }]);
        }
        Some(deleted) => return deletions(deleted).map_err(without_id),
    }
    let reported = fields.get("unfit").and_then(Value::as_str).map(str::to_owned);
    let source_id = source_id(&fields).map_err(|reason| without_id(reported.clone().unwrap_or(reason)))?;
    if let Some(reason) = reported {
        return Err(InvalidItem { source_id: Some(source_id), reason });
    }
    match document(source_id.clone(), fields, document_bytes_max) {
        Ok(document) => Ok(vec![Change::Upsert(Box::new(document))]),
        Err(reason) => Err(InvalidItem { source_id: Some(source_id), reason }),
    }
}

fn deletions(deleted: Value) -> Result<Vec<Change>, String> {
    let ids = match deleted {
        Value::Array(ids) => ids,
        Value::Object(fields) if fields.is_empty() => Vec::new(),
        one => vec![one],
    };
    let deletions = ids.iter().map(|id| scalar_text(id).map(|source_id| Change::Delete { source_id }));
    deletions.collect::<Option<_>>().ok_or_else(|| "`deleted` must be a list of source_ids".to_owned())
}

fn source_id(fields: &Map<String, Value>) -> Result<String, String> {
    let id = match fields.get("source_id") {
        None | Some(Value::Null) => return Err("`source_id` is missing".to_owned()),
        Some(value) => scalar_text(value),
    };
    match id {
        Some(id) if !id.is_empty() && id.len() <= SOURCE_ID_BYTES_MAX => Ok(id),
        _ => Err(format!("`source_id` must be a string of 1 to {SOURCE_ID_BYTES_MAX} bytes")),
    }
}

fn document(
    source_id: String,
    mut fields: Map<String, Value>,
    document_bytes_max: usize,
) -> Result<Document, String> {
    let body = match fields.remove("body") {
        Some(Value::String(body)) => body,
        None | Some(Value::Null) => return Err("`body` is missing".to_owned()),
        Some(other) => return Err(format!("`body` must be a string, it is {}", type_name(&other))),
    };
    if body.len() > document_bytes_max {
        return Err(format!("`body` is {} bytes; the limit is {document_bytes_max}", body.len()));
    }
    let text = |field: &str| match fields.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match scalar_text(value) {
            Some(text) => Ok(Some(text).filter(|text| !text.is_empty())),
            None => Err(format!("`{field}` must be a string, it is {}", type_name(value))),
        },
    };
    let date = |field: &str| match fields.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => timestamp(value)
            .map(Some)
            .ok_or_else(|| format!("`{field}` must be a date (2026-01-31T12:00:00Z) or seconds since 1970")),
    };
    Ok(Document {
        source_url: text("source_url")?,
        title: text("title")?,
        author: text("author")?,
        created_at: date("created_at")?,
        updated_at: date("updated_at")?,
        content_type: text("content_type")?,
        metadata: metadata(&fields)?,
        tags: tags(fields.get("tags"))?,
        content: DocumentContent::Text(body),
        // Changes are detected by the content.
        fingerprint: None,
        source_id,
    })
}

fn metadata(fields: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    match (fields.get("metadata"), fields.get("metadata_json")) {
        (Some(Value::Object(metadata)), _) => Ok(metadata.clone()),
        (Some(Value::Array(items)), _) if items.is_empty() => Ok(Map::new()),
        (None | Some(Value::Null), None | Some(Value::Null)) => Ok(Map::new()),
        (None | Some(Value::Null), Some(Value::String(text))) if text.trim().is_empty() => Ok(Map::new()),
        (None | Some(Value::Null), Some(Value::String(text))) => serde_json::from_str(text)
            .map_err(|_| "`metadata_json` must be the JSON text of an object".to_owned()),
        (None | Some(Value::Null), Some(_)) => Err("`metadata_json` must be JSON text".to_owned()),
        (Some(other), _) => {
            Err(format!("`metadata` must be a table with string keys, it is {}", type_name(other)))
        }
    }
}

fn tags(value: Option<&Value>) -> Result<Vec<String>, String> {
    let invalid = || "`tags` must be a list of strings".to_owned();
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Object(fields)) if fields.is_empty() => Ok(Vec::new()),
        Some(Value::String(tag)) => Ok(vec![tag.clone()]),
        Some(Value::Array(tags)) => tags.iter().map(scalar_text).collect::<Option<_>>().ok_or_else(invalid),
        Some(_) => Err(invalid()),
    }
}

/// Parses a date: RFC 3339, ISO 8601 without a zone, RFC 2822 or Unix time.
fn timestamp(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Number(number) => unix_timestamp(number),
        Value::String(text) => {
            let text = text.trim();
            // A time without a zone is in UTC.
            let local_time =
                || text.parse::<DateTime>().ok().or_else(|| Some(text.parse::<civil::Date>().ok()?.into()));
            let number = || text.parse::<Number>().ok();
            text.parse::<Timestamp>()
                .ok()
                .or_else(|| local_time()?.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp()))
                .or_else(|| jiff::fmt::rfc2822::parse(text).ok().map(|zoned| zoned.timestamp()))
                .or_else(|| unix_timestamp(&number()?))
        }
        _ => None,
    }
}

fn unix_timestamp(number: &Number) -> Option<Timestamp> {
    let seconds = number.as_f64()?;
    let milliseconds = if seconds.abs() > SECONDS_MAX { seconds } else { seconds * 1000.0 };
    if !milliseconds.is_finite() || milliseconds.abs() > i64::MAX as f64 {
        return None;
    }
    Timestamp::from_millisecond(milliseconds.round() as i64).ok()
}

/// A string, or a number as a string.
fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn one(item: Value) -> Document {
        match parse_item(item, 1_000).unwrap().remove(0) {
            Change::Upsert(document) => *document,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_item_becomes_a_document() {
        let document = one(json!({
            "source_id": 7, "body": "text", "title": "T", "author": "", "source_url": "https://x",
            "content_type": "text/html", "metadata_json": "{\"a\":1}", "tags": ["x"],
            "created_at": "2026-01-31T12:00:00Z", "updated_at": 1769860800,
        }));
        assert_eq!((document.source_id.as_str(), document.author), ("7", None));
        assert_eq!(document.content, DocumentContent::Text("text".to_owned()));
        assert_eq!(document.metadata["a"], 1);
        assert_eq!(document.created_at, document.updated_at);
    }

    #[test]
    fn dates_are_read_in_every_usual_form() {
        let noon: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        for date in [
            json!("2026-01-31T12:00:00Z"),
            json!("2026-01-31T13:00:00+01:00"),
            json!("2026-01-31T12:00:00.000+0000"),
            json!("2026-01-31T12:00:00"),
            json!("2026-01-31 12:00:00"),
            json!("Sat, 31 Jan 2026 12:00:00 +0000"),
            json!(1_769_860_800),
            json!(1_769_860_800.0),
            json!("1769860800"),
            json!(1_769_860_800_000_u64),
        ] {
            assert_eq!(timestamp(&date), Some(noon), "{date}");
        }
        assert_eq!(timestamp(&json!("2026-01-31")), "2026-01-31T00:00:00Z".parse().ok());
        for date in [json!("yesterday"), json!(true), json!(1e300), json!("")] {
            assert_eq!(timestamp(&date), None, "{date}");
        }
    }

    #[test]
    fn deletions_are_named_in_a_list_or_by_an_item() {
        let deletions = |item: Value| parse_item(item, 10).unwrap();
        let delete = |id: &str| Change::Delete { source_id: id.to_owned() };
        assert_eq!(deletions(json!({"deleted": ["a", 2]})), [delete("a"), delete("2")]);
        assert_eq!(deletions(json!({"deleted": "a"})), [delete("a")]);
        assert_eq!(deletions(json!({"source_id": "a", "deleted": true})), [delete("a")]);
        assert_eq!(deletions(json!({"deleted": {}})), []);
    }

    #[test]
    fn invalid_items_are_reported_with_their_document() {
        for (item, id, part) in [
            (json!(1), None, "must be a table"),
            (json!({"body": "x"}), None, "`source_id` is missing"),
            (json!({"source_id": "", "body": "x"}), None, "`source_id` must be"),
            (json!({"source_id": "a"}), Some("a"), "`body` is missing"),
            (json!({"source_id": "a", "body": 1}), Some("a"), "`body` must be a string"),
            (json!({"source_id": "a", "body": "12345678901"}), Some("a"), "the limit is 10"),
            (json!({"source_id": "a", "body": "x", "updated_at": "soon"}), Some("a"), "`updated_at` must be"),
            (json!({"source_id": "a", "body": "x", "metadata": "m"}), Some("a"), "`metadata` must be"),
            (json!({"source_id": "a", "body": "x", "metadata_json": "["}), Some("a"), "`metadata_json`"),
            (json!({"source_id": "a", "body": "x", "tags": [{}]}), Some("a"), "`tags` must be"),
            (json!({"deleted": [{}]}), None, "`deleted` must be"),
            (json!({"source_id": "a", "unfit": "why"}), Some("a"), "why"),
            (json!({"source_id": null, "unfit": "why"}), None, "why"),
        ] {
            let invalid = parse_item(item.clone(), 10).unwrap_err();
            assert_eq!(invalid.source_id.as_deref(), id, "{item}");
            assert!(invalid.reason.contains(part), "{item}: {}", invalid.reason);
        }
    }

    proptest! {
        #[test]
        fn any_number_is_a_date_or_none(number in any::<f64>()) {
            let _ = timestamp(&json!(number));
        }
    }
}
