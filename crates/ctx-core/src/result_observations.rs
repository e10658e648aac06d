//! Observations of a tool's results, for its documentation.

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
    /// Records a result.
    pub(crate) fn record(&self, answer: &Value) {
        if let Value::String(text) = answer
            && !self.answers_json_text()
            && is_json_text(text)
        {
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

    #[test]
    fn only_text_that_is_a_json_object_or_array_counts() {
        let observed = ResultObservations::default();
        for answer in [json!({"a": 1}), json!("[draft] a note"), json!("7"), json!("{ broken"), json!(" ")] {
            observed.record(&answer);
            assert!(!observed.answers_json_text(), "{answer}");
        }
        observed.record(&json!("\n {\"PATH\": \"/bin\"}"));
        observed.record(&json!("plain"));
        assert!(observed.answers_json_text(), "once seen, it is remembered");
    }
}
