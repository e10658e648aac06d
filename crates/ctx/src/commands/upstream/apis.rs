//! APIs among the upstreams: how each is doing, and what stands in the way.

use super::functions;
use crate::output::count;
use ctx_core::{Catalog, summary_line};
use ctx_openapi::{ApiState, ApiStatus};
use serde_json::{Value, json};

/// Operations that cannot be called and that are named, of one API.
const SKIPPED_MAX: usize = 10;

pub(super) fn as_json(status: &ApiStatus, catalog: &Catalog) -> Value {
    let functions: Vec<String> =
        functions(&status.name, catalog).map(|entry| entry.name.to_string()).collect();
    let skipped = status.skipped.iter().map(|(what, why)| json!({ "operation": what, "reason": why }));
    json!({
        "name": status.name.as_str(),
        "kind": "openapi",
        "state": state(&status.state),
        "reason": reason(status),
        "spec": status.spec,
        "title": status.title,
        "functions": functions,
        "skipped": skipped.collect::<Vec<_>>(),
        "warnings": warnings(status),
    })
}

pub(super) fn row(status: &ApiStatus) -> Vec<String> {
    let notes = match reason(status) {
        Some(reason) => reason.to_owned(),
        None => {
            let mut notes = vec![count(status.functions as u64, "function")];
            if !status.skipped.is_empty() {
                notes.push(format!("{} left out", count(status.skipped.len() as u64, "operation")));
            }
            if let Some((locked, _)) = &status.locked {
                notes.push(format!("{locked} need credentials"));
            }
            notes.join(", ")
        }
    };
    vec![status.name.to_string(), state(&status.state).to_owned(), notes, status.spec.clone()]
}

/// What `ctx upstream test` prints.
pub(super) fn shown(status: &ApiStatus, catalog: &Catalog) -> String {
    let title = status.title.as_deref().unwrap_or("a description without a title");
    let mut text = format!("✓ {title} was read ({})\n", status.spec);
    text.push_str(&format!("✓ {}\n", count(status.functions as u64, "function")));
    for entry in functions(&status.name, catalog) {
        let summary = summary_line(&entry.spec.description);
        text.push_str(&format!("    {}  {summary}\n", entry.name));
    }
    for warning in warnings(status) {
        text.push_str(&format!("! {warning}\n"));
    }
    text
}

/// What does not keep an API from being called, but some of its functions.
pub(crate) fn warnings(status: &ApiStatus) -> Vec<String> {
    let mut warnings: Vec<String> = status.unplaced.clone().into_iter().collect();
    if let Some((locked, missing)) = &status.locked {
        let functions = count(*locked as u64, "function");
        warnings.push(format!("{functions} cannot be called without credentials; {missing}"));
    }
    let skipped = status.skipped.iter().take(SKIPPED_MAX);
    warnings.extend(skipped.map(|(what, why)| format!("{what} is left out: {why}")));
    if let Some(more) = status.skipped.len().checked_sub(SKIPPED_MAX).filter(|more| *more > 0) {
        warnings.push(format!("{} more are left out", count(more as u64, "operation")));
    }
    warnings
}

fn reason(status: &ApiStatus) -> Option<&str> {
    match &status.state {
        ApiState::Failed(reason) => Some(reason),
        ApiState::Reading | ApiState::Ready => None,
    }
}

fn state(state: &ApiState) -> &'static str {
    match state {
        ApiState::Reading => "reading",
        ApiState::Ready => "ready",
        ApiState::Failed(_) => "failed",
    }
}
