//! Sends the items that a connector's scan returns one by one, like emitted ones, so that neither their
//! number nor their total size is limited.

use crate::engine::protocol::{HostRequest, HostResponse, JobFailure, JobFailureKind};
use crate::value::{ValueError, WriteOptions, write};
use crate::vm::machine::Execution;
use mlua::{Table, Value};
use serde_json::json;

/// Maximum size of one item as JSON, above that of a document.
const ITEM_BYTES_MAX: usize = 60 * 1024 * 1024;

/// Sends the items and returns the cursor as JSON, from `return items`, `return items, cursor` or nothing.
pub(super) fn emit_scan_result(execution: &Execution<'_>, returned: &[Value]) -> Result<Vec<u8>, JobFailure> {
    match returned.first() {
        None | Some(Value::Nil) => {}
        Some(Value::Table(items)) => emit_items(execution, items)?,
        Some(other) => {
            let other = other.type_name();
            return Err(execution.contract_failure(&format!(
                "connector.scan must return a list of items, it returned a {other}"
            )));
        }
    }
    let options = WriteOptions { name: "cursor", bytes_max: execution.job.bounds.result_bytes };
    let cursor = returned.get(1).unwrap_or(&Value::Nil);
    let cursor =
        write(&execution.globals.bridge, cursor, options).map_err(|error| execution.result_failure(error))?;
    Ok([b"{\"cursor\":".as_slice(), &cursor, b"}"].concat())
}

fn emit_items(execution: &Execution<'_>, items: &Table) -> Result<(), JobFailure> {
    let count = items.raw_len();
    if count == 0 && !items.is_empty() {
        // A table that is not a list is a single item.
        return emit_item(execution, &Value::Table(items.clone()), "item");
    }
    for position in 1..=count {
        let item: Value = items.raw_get(position).map_err(|error| execution.vm_failure(&error))?;
        emit_item(execution, &item, &format!("items[{position}]"))?;
    }
    Ok(())
}

fn emit_item(execution: &Execution<'_>, item: &Value, name: &str) -> Result<(), JobFailure> {
    let options = WriteOptions { name, bytes_max: ITEM_BYTES_MAX };
    let arguments = match write(&execution.globals.bridge, item, options) {
        Ok(json) => json,
        Err(ValueError::Lua(error)) => return Err(execution.vm_failure(&error)),
        // An item that cannot be converted must not fail the others.
        Err(error) => unreadable_item(item, &error),
    };
    let request = HostRequest { method: "emit".to_owned(), arguments, bytes: Vec::new() };
    let run = execution.run;
    let response =
        run.send_request(request).and_then(|id| run.wait_any(&[id]).map(|()| run.take_response(id)));
    match response {
        Ok(Some(HostResponse::Failed { code, message, .. })) => {
            let message = format!("{}: {message}", execution.job.chunk_name);
            Err(JobFailure { kind: JobFailureKind::Raised, message, code: Some(code) })
        }
        Ok(_) => Ok(()),
        Err(message) => Err(execution.vm_failure(&mlua::Error::runtime(message))),
    }
}

/// An item that reports an unconvertible one, with its `source_id` if that is readable.
fn unreadable_item(item: &Value, error: &ValueError) -> Vec<u8> {
    let source_id = match item {
        Value::Table(fields) => fields.raw_get::<Value>("source_id").ok(),
        _ => None,
    };
    let source_id = match source_id {
        Some(Value::String(id)) => id.to_str().ok().map(|id| id.to_owned()),
        _ => None,
    };
    serde_json::to_vec(&json!({ "source_id": source_id, "unfit": error.to_string() })).unwrap_or_default()
}
