//! Observations of a tool's results, for its documentation.

use crate::content::ContentBlock;
use crate::tool::Output;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum size of a text that is parsed to detect JSON.
const PARSED_BYTES_MAX: usize = 256 << 10;

/// Observations of one tool's results, kept until its definition changes.
#[derive(Debug, Default)]
pub(crate) struct ResultObservations {
    json_text: AtomicBool,
}

impl ResultObservations {
    /// Records a result. A script gets a text as the value, or as the only block of a result without one, as MCP servers
    /// answer.
    pub(crate) fn record(&self, output: &Output) {
        let text = match (&output.value, output.content.as_slice()) {
            (Value::String(text), _) | (Value::Null, [ContentBlock::Text(text)]) => text,
            _ => return,
        };
        if !self.answers_json_text() && is_json_text(text) {
            self.json_text.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a result was a text that contains a JSON object or array.
    pub(crate) fn answers_json_text(&self) -> bool {
        self.json_text.load(Ordering::Relaxed)
    }
}

fn is_json_text(text: &str) -> bool {
    text.len() <= PARSED_BYTES_MAX
        && text.trim_start().starts_with(['{', '['])
        && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn block(text: &str) -> ContentBlock {
        ContentBlock::Text(text.to_owned())
    }

    #[test]
    fn only_text_that_is_a_json_object_or_array_counts() {
        let observed = ResultObservations::default();
        for answer in [json!({"a": 1}), json!("[draft] a note"), json!("7"), json!("{ broken"), json!(" ")] {
            observed.record(&answer.clone().into());
            assert!(!observed.answers_json_text(), "{answer}");
        }
        observed.record(&json!("\n {\"PATH\": \"/bin\"}").into());
        observed.record(&json!("plain").into());
        assert!(observed.answers_json_text(), "once seen, it is remembered");
    }

    #[test]
    fn the_only_block_of_a_result_without_a_value_counts() {
        let of = |value, content| Output { value, content, ..Output::default() };
        let observed = ResultObservations::default();
        for output in [
            of(json!({"a": 1}), vec![block("{\"a\": 1}")]),
            of(Value::Null, vec![block("{\"a\": 1}"), block("more")]),
            of(Value::Null, vec![block("plain")]),
        ] {
            observed.record(&output);
            assert!(!observed.answers_json_text(), "{output:?}");
        }
        observed.record(&of(Value::Null, vec![block("{\"a\": 1}")]));
        assert!(observed.answers_json_text());
    }
}
