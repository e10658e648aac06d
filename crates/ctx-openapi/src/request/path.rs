//! Fills in the path template of an operation.

use super::{RequestError, content, encode, style};
use crate::operation::{Format, Parameter};
use serde_json::Value;
use url::Url;

const EMPTY: &str = "is a part of the path, and must not be empty";
const DOTS: &str = "is a part of the path, and cannot be `.` or `..`";

/// The value of a path parameter, serialized: always within one segment.
pub(super) struct Written<'a> {
    parameter: &'a Parameter,
    text: String,
}

impl<'a> Written<'a> {
    pub(super) fn new(parameter: &'a Parameter, value: &Value) -> Result<Self, RequestError> {
        let text = match &parameter.format {
            Format::Style { style, explode, .. } => style::in_path(&parameter.name, value, *style, *explode),
            Format::Content(content_type) => Some(encode::component(&content(value, content_type))),
        };
        match text {
            None => Err(RequestError::unfit(&parameter.argument, EMPTY)),
            Some(text) if text.is_empty() => Err(RequestError::unfit(&parameter.argument, EMPTY)),
            Some(text) => Ok(Self { parameter, text }),
        }
    }
}

/// The URL: the filled-in template is appended to the base path, and `query` to the base query.
pub(super) fn url(
    base: &Url,
    template: &str,
    values: &[Written<'_>],
    query: &[String],
) -> Result<Url, RequestError> {
    // A fragment only tells apart operations of the same path.
    let template = template.split('#').next().unwrap_or_default();
    let (path, own_query) = template.split_once('?').unwrap_or((template, ""));
    let mut filled = base.path().trim_end_matches('/').to_owned();
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        filled.push('/');
        filled.push_str(&fill(segment, values)?);
    }
    let own_query = fill(own_query, values)?;
    let mut url = base.clone();
    url.set_path(&filled);
    let pairs = [base.query().unwrap_or_default(), &own_query];
    let pairs = pairs.into_iter().chain(query.iter().map(String::as_str));
    let pairs: Vec<&str> = pairs.filter(|pair| !pair.is_empty()).collect();
    url.set_query((!pairs.is_empty()).then(|| pairs.join("&")).as_deref());
    Ok(url)
}

/// Fills in the placeholders of one segment or of the query.
fn fill(template: &str, values: &[Written<'_>]) -> Result<String, RequestError> {
    let (mut filled, mut rest, mut last) = (String::new(), template, None);
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            return Err(RequestError::Document(format!("`{template}` has a `{{` without its `}}`")));
        };
        let value = values
            .iter()
            .find(|value| value.parameter.name == name)
            .ok_or_else(|| RequestError::Document(format!("it does not say what `{name}` in the path is")))?;
        filled.push_str(before);
        filled.push_str(&value.text);
        (rest, last) = (after, Some(value));
    }
    filled.push_str(rest);
    match last {
        // URL parsing would remove such a segment, and `..` also the one before.
        Some(value) if is_dots(&filled) => Err(RequestError::unfit(&value.parameter.argument, DOTS)),
        _ => Ok(filled),
    }
}

/// Whether URL parsing takes a segment for `.` or `..`, which may be percent-encoded.
fn is_dots(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}
