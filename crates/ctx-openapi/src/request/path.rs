//! Paths: a template becomes the URL.

use super::{RequestError, content, encode, style};
use crate::operation::{Format, Parameter, Style};
use reqwest::Url;
use serde_json::Value;

/// A parameter's value as it stands in the path: always within one segment.
pub(super) fn written(parameter: &Parameter, value: &Value) -> Result<String, RequestError> {
    let text = match &parameter.format {
        Format::Style { style, explode, .. } => style::in_path(&parameter.name, value, *style, *explode),
        Format::Content(content_type) => Some(encode::component(&content(value, content_type))),
    };
    let unfit = |why: &str| Err(RequestError::unfit(&parameter.argument, why));
    let is_simple = !matches!(parameter.format, Format::Style { style: Style::Label | Style::Matrix, .. });
    match text {
        None => unfit("is a part of the path, and must not be empty"),
        Some(text) if text.is_empty() => unfit("is a part of the path, and must not be empty"),
        // Other words for this folder and the one above.
        Some(text) if is_simple && is_dots(&text) => {
            unfit("is a part of the path, and cannot be `.` or `..`")
        }
        Some(text) => Ok(text),
    }
}

/// The URL: the base with the filled path after its own, and the query after its own.
pub(super) fn url(
    base: &Url,
    template: &str,
    values: &[(&str, String)],
    query: &[String],
) -> Result<Url, RequestError> {
    let filled = fill(template, values)?;
    // What comes after `#` only tells operations of one path apart.
    let filled = filled.split('#').next().unwrap_or_default();
    let (path, own_query) = filled.split_once('?').unwrap_or((filled, ""));
    if let Some((name, _)) = values.first().filter(|_| path.split('/').any(is_dots)) {
        return Err(RequestError::unfit(name, "would lead to another path"));
    }
    let mut url = base.clone();
    url.set_path(&format!("{}/{}", base.path().trim_end_matches('/'), path.trim_start_matches('/')));
    let pairs = [base.query().unwrap_or_default(), own_query];
    let pairs: Vec<&str> = pairs.into_iter().chain(query.iter().map(String::as_str)).collect();
    let pairs: Vec<&str> = pairs.into_iter().filter(|pair| !pair.is_empty()).collect();
    url.set_query((!pairs.is_empty()).then(|| pairs.join("&")).as_deref());
    Ok(url)
}

fn fill(template: &str, values: &[(&str, String)]) -> Result<String, RequestError> {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            return Err(RequestError::Document(format!("the path `{template}` has a `{{` without its `}}`")));
        };
        let value = values.iter().find(|(known, _)| *known == name).ok_or_else(|| {
            RequestError::Document(format!("it does not say what `{name}` in the path `{template}` is"))
        })?;
        filled.push_str(before);
        filled.push_str(&value.1);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Whether a segment is one that URLs take for this folder or the one above.
fn is_dots(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}
