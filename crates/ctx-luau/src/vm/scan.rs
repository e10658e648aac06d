//! Sends the items that a connector's scan returns one by one, like emitted ones, so that neither their
//! number nor their total size is limited.

use crate::engine::protocol::{Answer, Failure, FailureKind, Question};
use crate::value::{ValueError, Writing, write};
use crate::vm::machine::Scene;
use mlua::{Table, Value};
use serde_json::json;

/// Maximum size of one item as JSON, above that of a document.
const ITEM_BYTES_MAX: usize = 60 * 1024 * 1024;

/// Sends the items and returns the cursor as JSON, from `return items`, `return items, cursor` or nothing.
pub(super) fn scanned(scene: &Scene<'_>, returned: &[Value]) -> Result<Vec<u8>, Failure> {
    match returned.first() {
        None | Some(Value::Nil) => {}
        Some(Value::Table(items)) => hand_over_all(scene, items)?,
        Some(other) => {
            let other = other.type_name();
            return Err(
                scene.contract(&format!("connector.scan must return a list of items, it returned a {other}"))
            );
        }
    }
    let how = Writing { name: "cursor", bytes_max: scene.job.bounds.result_bytes };
    let cursor = returned.get(1).unwrap_or(&Value::Nil);
    let cursor = write(&scene.globals.marks, cursor, how).map_err(|error| scene.unfit(error))?;
    Ok([b"{\"cursor\":".as_slice(), &cursor, b"}"].concat())
}

fn hand_over_all(scene: &Scene<'_>, items: &Table) -> Result<(), Failure> {
    let count = items.raw_len();
    if count == 0 && !items.is_empty() {
        // A table that is not a list is a single item.
        return hand_over(scene, &Value::Table(items.clone()), "item");
    }
    for position in 1..=count {
        let item: Value = items.raw_get(position).map_err(|error| scene.failed(&error))?;
        hand_over(scene, &item, &format!("items[{position}]"))?;
    }
    Ok(())
}

fn hand_over(scene: &Scene<'_>, item: &Value, name: &str) -> Result<(), Failure> {
    let how = Writing { name, bytes_max: ITEM_BYTES_MAX };
    let arguments = match write(&scene.globals.marks, item, how) {
        Ok(json) => json,
        Err(ValueError::Lua(error)) => return Err(scene.failed(&error)),
        // An item that cannot be converted must not fail the others.
        Err(unfit) => in_place_of(item, &unfit),
    };
    let question = Question { about: "emit".to_owned(), arguments, bytes: Vec::new() };
    let run = scene.run;
    let waited = run.ask(question).and_then(|id| run.wait_any(&[id]).map(|()| run.take(id)));
    match waited {
        Ok(Some(Answer::Failed { code, message, .. })) => {
            let message = format!("{}: {message}", scene.job.chunk_name);
            Err(Failure { kind: FailureKind::Raised, message, code: Some(code) })
        }
        Ok(_) => Ok(()),
        Err(message) => Err(scene.failed(&mlua::Error::runtime(message))),
    }
}

/// An item that reports an unconvertible one, with its `source_id` if that is readable.
fn in_place_of(item: &Value, unfit: &ValueError) -> Vec<u8> {
    let source_id = match item {
        Value::Table(fields) => fields.raw_get::<Value>("source_id").ok(),
        _ => None,
    };
    let source_id = match source_id {
        Some(Value::String(id)) => id.to_str().ok().map(|id| id.to_owned()),
        _ => None,
    };
    serde_json::to_vec(&json!({ "source_id": source_id, "unfit": unfit.to_string() })).unwrap_or_default()
}
