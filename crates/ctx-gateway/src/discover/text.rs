//! Text answers of bounded length.

use ctx_types::Function;
use std::fmt::Write as _;

/// Maximum length of an answer that lists functions: about two thousand tokens.
pub(super) const ANSWER_CHARS_MAX: usize = 8_000;

/// Characters reserved for the closing line.
const CLOSING_CHARS: usize = 200;

/// Maximum length of the sentence about a function.
const SENTENCE_CHARS_MAX: usize = 120;

/// Maximum number of parameters named on a line.
const PARAMETERS_MAX: usize = 10;

/// Maximum length of an untrusted name that a message repeats.
const SHOWN_CHARS_MAX: usize = 100;

/// Lines of text, up to a total length.
pub(super) struct BoundedLines {
    text: String,
    chars_left: usize,
    omitted: usize,
}

impl BoundedLines {
    pub(super) fn with_limit(chars_max: usize) -> Self {
        Self { text: String::new(), chars_left: chars_max.saturating_sub(CLOSING_CHARS), omitted: 0 }
    }

    /// Adds a line; once one does not fit, none does.
    pub(super) fn add(&mut self, line: &str) {
        let chars = line.chars().count() + 1;
        if self.omitted > 0 || chars > self.chars_left {
            self.omitted += 1;
            return;
        }
        self.chars_left -= chars;
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// The text. `more` makes the closing line, from the number of lines that did not fit.
    pub(super) fn finish(mut self, more: impl FnOnce(usize) -> String) -> String {
        if self.omitted > 0 {
            let _ = writeln!(self.text, "{}", more(self.omitted));
        }
        self.text.truncate(self.text.trim_end().len());
        self.text
    }
}

/// A function on one line: `sdk.github.create_issue(title, body?) – Opens an issue.`
pub(super) fn function_line(function: &Function) -> String {
    let parameters = function.parameters();
    let mut names: Vec<String> = parameters
        .iter()
        .take(PARAMETERS_MAX)
        .map(|field| format!("{}{}", truncate(&field.name), if field.required { "" } else { "?" }))
        .collect();
    if parameters.len() > PARAMETERS_MAX {
        names.push("…".to_owned());
    }
    let sentence = first_sentence(function.description());
    let dash = if sentence.is_empty() { "" } else { " – " };
    format!("sdk.{}({}){dash}{sentence}", function.name(), names.join(", "))
}

/// The first sentence of a description, on one line.
fn first_sentence(description: &str) -> String {
    let paragraph = description.trim().split("\n\n").next().unwrap_or_default();
    let mut sentence = String::new();
    let mut words = paragraph.split_whitespace().peekable();
    while let Some(word) = words.next() {
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.extend(word.chars().filter(|letter| !letter.is_control()));
        let begins = |next: &&str| next.chars().next().is_some_and(char::is_uppercase);
        if word.ends_with(['.', '!', '?', '。']) && words.peek().is_none_or(begins) {
            break;
        }
    }
    match sentence.char_indices().nth(SENTENCE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", sentence[..end].trim_end()),
        None => sentence,
    }
}

/// Truncates a name for a message.
pub(crate) fn truncate(name: &str) -> String {
    match name.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// The hint ` (did you mean …?)`, if there is a similar name.
pub(crate) fn hint(similar: Option<&str>) -> String {
    similar.map_or_else(String::new, |similar| format!(" (did you mean `{similar}`?)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_core::{BodyArgument, Identifier, ToolName, ToolSpec};
    use serde_json::json;

    #[test]
    fn a_sentence_ends_where_another_begins() {
        for (description, sentence) in [
            ("Opens an issue. Needs a token.", "Opens an issue."),
            (
                "Opens an issue, e.g. a bug, in v1.2 of\n  it.\nMore.",
                "Opens an issue, e.g. a bug, in v1.2 of it.",
            ),
            ("Opens an issue\n\nArguments follow", "Opens an issue"),
            ("\n\n    Opens an issue.\n\n    Args:\n", "Opens an issue."),
            ("\u{1b}[31mRed\u{7}", "[31mRed"),
            ("", ""),
        ] {
            assert_eq!(first_sentence(description), sentence);
        }
        assert_eq!(first_sentence(&"word ".repeat(100)).chars().count(), SENTENCE_CHARS_MAX);
    }

    #[test]
    fn a_line_names_parameters_and_marks_optional_ones() {
        let schema = json!({
            "type": "object",
            "properties": {"title": {"type": "string"}, "body": {"type": "string"}},
            "required": ["title"],
        });
        let name = ToolName::new(Identifier::sanitize("github"), Identifier::sanitize("create-issue"));
        let function = Function::of(&name, &ToolSpec::new("create-issue", "Opens one.", schema));
        assert_eq!(function_line(&function), "sdk.github.create_issue(title, body?) – Opens one.");
    }

    #[test]
    fn a_line_names_the_fields_of_a_body() {
        let pet = json!({
            "type": "object",
            "properties": {"name": {"type": "string"}, "tag": {"type": "string"}},
            "required": ["name"],
        });
        let schema = json!({"type": "object", "properties": {"body": pet}, "required": ["body"]});
        let name = ToolName::new(Identifier::sanitize("petstore"), Identifier::sanitize("create_pet"));
        let body = BodyArgument { name: "body".to_owned(), has_fields: true };
        let spec = ToolSpec { body: Some(body), ..ToolSpec::new("create_pet", "Adds a pet.", schema) };
        assert_eq!(
            function_line(&Function::with_nearest_types(&name, &spec)),
            "sdk.petstore.create_pet(name, tag?) – Adds a pet."
        );
    }

    #[test]
    fn lines_end_before_the_bound_and_say_so() {
        let mut lines = BoundedLines::with_limit(CLOSING_CHARS + 10);
        ["four", "five", "x"].into_iter().for_each(|line| lines.add(line));
        assert_eq!(lines.finish(|more| format!("{more} more")), "four\nfive\n1 more");
    }
}
