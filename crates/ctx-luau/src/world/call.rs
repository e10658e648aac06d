//! `sdk` and `context`: tool calls nested in the script's own call.

use super::{HostResult, text};
use crate::engine::HostError;
use crate::kinds::{fit_body, fit_empty};
use ctx_core::{Call, Catalog, Identifier, Page, QuestionError, ToolError, ToolSpec};
use serde::Serialize;
use serde_json::{Map, Value};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Name of the body argument, unless the tool has another.
const BODY: &str = "body";

/// Calls a tool; returns its structured value, or its content if it has none. With `page`, also returns the
/// [`Page`] of a list as JSON text, which is empty if the answer is not a list.
pub(super) async fn call(call: &Call, arguments: &Map<String, Value>) -> HostResult {
    let name = resolve_name(call.catalog(), text(arguments, "name")?);
    let arguments_value = arguments.get("arguments").cloned().unwrap_or_default();
    let separate_body = arguments.get("body").cloned();
    let fit = move |spec: &ToolSpec, schema: &Value, mut arguments_value: Value| {
        let body = spec.body.as_ref();
        if let Some(separate_body) = separate_body {
            arguments_value =
                with_body(arguments_value, body.map_or(BODY, |body| &body.name), separate_body)?;
        }
        fit_empty(schema, &mut arguments_value);
        if let Some(body) = body {
            fit_body(schema, body, &mut arguments_value);
        }
        Ok(arguments_value)
    };
    let nested = call.nested().map_err(refusal)?;
    let mut output =
        Catalog::call_with_adapter(&name, arguments_value, fit, nested).await.map_err(refusal)?;
    let page = output.page.take().map(|page| *page);
    let value = output.into_data();
    let wants_page = arguments.get("page") == Some(&Value::Bool(true));
    let page_json = if wants_page { page_text(page, &value) } else { Ok(Vec::new()) };
    Ok((value, page_json.map_err(|error| refusal(ToolError::internal("cannot serialize the page", error)))?))
}

/// The page information that `paginate` gets.
#[derive(Serialize)]
struct PageInfo {
    #[serde(flatten)]
    page: Page,
    /// A fingerprint of the page. Two pages with the same fingerprint are the same page: the service repeats
    /// pages, or ignores the page number.
    mark: String,
}

fn page_text(page: Option<Page>, value: &Value) -> serde_json::Result<Vec<u8>> {
    let whole_list = || value.is_array().then(|| Page { items: Some(Vec::new()), ..Page::default() });
    let Some(page) = page.or_else(whole_list) else { return Ok(Vec::new()) };
    let fields = page.items.as_deref();
    let items = fields.and_then(|fields| fields.iter().try_fold(value, |value, field| value.get(field)));
    let is_empty = items.and_then(Value::as_array).is_none_or(Vec::is_empty);
    let mut mark = DefaultHasher::new();
    serde_json::to_vec(value)?.hash(&mut mark);
    // Empty pages are equal; the arguments of their next pages tell them apart.
    if is_empty {
        serde_json::to_vec(&page.next)?.hash(&mut mark);
    }
    serde_json::to_vec(&PageInfo { page, mark: format!("{:x}", mark.finish()) })
}

/// Adds the body that a script passes separately from the other arguments.
fn with_body(arguments_value: Value, name: &str, body: Value) -> Result<Value, ToolError> {
    let mut fields = match arguments_value {
        Value::Null => Map::new(),
        Value::Object(fields) => fields,
        _ => return Err(ToolError::bad_request("arguments before a body must be a table")),
    };
    if fields.insert(name.to_owned(), body).is_some() {
        return Err(ToolError::bad_request(format!("`{name}` is given twice")));
    }
    Ok(Value::Object(fields))
}

fn refusal(error: ToolError) -> HostError {
    let data = error.data().and_then(Value::as_object).cloned().unwrap_or_default();
    let code = error.question_error().map_or_else(|| error.kind().code(), QuestionError::code);
    HostError::new(code, error.message()).with_data(data)
}

/// The catalog's name of a tool, which a script may also call by the name that the tool has at its origin.
fn resolve_name(catalog: &Catalog, requested: &str) -> String {
    if catalog.entry(requested).is_some() {
        return requested.to_owned();
    }
    let Some((provider, original)) = requested.split_once('.') else { return requested.to_owned() };
    let provider = Identifier::sanitize(provider);
    let entry = catalog.entries().find(|entry| {
        *entry.name.provider() == provider
            && (entry.spec.name == original || entry.name.tool().as_str() == original)
    });
    entry.map_or_else(|| requested.to_owned(), |entry| entry.name.to_string())
}
