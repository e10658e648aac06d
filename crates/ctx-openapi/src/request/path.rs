//! Fills in the path template of an operation.

use super::{RequestError, content_text, encode, style};
use crate::operation::{Format, Parameter};
use serde_json::Value;
use url::Url;

const EMPTY_VALUE: &str = "is a part of the path, and must not be empty";
const DOT_SEGMENT: &str = "is a part of the path, and cannot be `.` or `..`";

/// The value of a path parameter, serialized: always within one segment.
pub(super) struct PathValue<'a> {
    parameter: &'a Parameter,
    text: String,
}

impl<'a> PathValue<'a> {
    pub(super) fn new(parameter: &'a Parameter, value: &Value) -> Result<Self, RequestError> {
        let text = match &parameter.format {
            Format::Style { style, explode, .. } => {
                style::path_text(&parameter.name, value, *style, *explode)
            }
            Format::Content(content_type) => {
                Some(encode::encode_component(&content_text(value, content_type)))
            }
        };
        match text {
            None => Err(RequestError::invalid_argument(&parameter.argument, EMPTY_VALUE)),
            Some(text) if text.is_empty() => {
                Err(RequestError::invalid_argument(&parameter.argument, EMPTY_VALUE))
            }
            Some(text) => Ok(Self { parameter, text }),
        }
    }
}

/// The URL: the filled-in template is appended to the base path, and `query` to the base query.
pub(super) fn operation_url(
    base: &Url,
    template: &str,
    values: &[PathValue<'_>],
    query: &[String],
) -> Result<Url, RequestError> {
    // A fragment only tells apart operations of the same path.
    let template = template.split('#').next().unwrap_or_default();
    let (path, template_query) = template.split_once('?').unwrap_or((template, ""));
    let mut base_path = base.path().trim_end_matches('/').to_owned();
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        base_path.push('/');
        base_path.push_str(&fill_placeholders(segment, values)?);
    }
    let template_query = fill_placeholders(template_query, values)?;
    let mut url = base.clone();
    url.set_path(&base_path);
    let pairs = [base.query().unwrap_or_default(), &template_query];
    let pairs = pairs.into_iter().chain(query.iter().map(String::as_str));
    let pairs: Vec<&str> = pairs.filter(|pair| !pair.is_empty()).collect();
    url.set_query((!pairs.is_empty()).then(|| pairs.join("&")).as_deref());
    Ok(url)
}

/// Fills in the placeholders of one segment or of the query.
fn fill_placeholders(template: &str, values: &[PathValue<'_>]) -> Result<String, RequestError> {
    let (mut filled, mut rest, mut last) = (String::new(), template, None);
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            return Err(RequestError::Document(format!("`{template}` has a `{{` without its `}}`")));
        };
        let value = values
            .iter()
            .find(|value| value.parameter.name == name)
            .ok_or_else(|| RequestError::Document(format!("the path parameter `{name}` is not declared")))?;
        filled.push_str(before);
        filled.push_str(&value.text);
        (rest, last) = (after, Some(value));
    }
    filled.push_str(rest);
    match last {
        // URL parsing would remove such a segment, and `..` also the one before.
        Some(value) if is_dot_segment(&filled) => {
            Err(RequestError::invalid_argument(&value.parameter.argument, DOT_SEGMENT))
        }
        _ => Ok(filled),
    }
}

/// Whether URL parsing takes a segment for `.` or `..`, which may be percent-encoded.
fn is_dot_segment(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}
