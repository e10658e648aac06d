//! Completing what is typed for an argument, of an agent or of a form of URIs.

use std::collections::BTreeMap;

/// What is typed, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completing {
    /// Whose argument it is.
    pub of: Completable,
    /// Its name.
    pub argument: String,
    /// What was typed of it so far.
    pub typed: String,
    /// Other arguments that are given already.
    pub given: BTreeMap<String, String>,
}

/// What has arguments that can be completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completable {
    /// An agent, by name.
    Agent(String),
    /// A form of URIs, as it is listed.
    Template(String),
}

/// What an argument can be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completions {
    /// The values, best first.
    pub values: Vec<String>,
    /// How many there are, where that is known.
    pub total: Option<u32>,
    /// Whether there are more than these.
    pub has_more: bool,
}

impl Completions {
    /// Those of a few choices that begin with what was typed, at most `most` of them.
    pub fn among(choices: &[String], typed: &str, most: usize) -> Self {
        let typed = typed.to_lowercase();
        let fitting: Vec<&String> =
            choices.iter().filter(|choice| choice.to_lowercase().starts_with(&typed)).collect();
        Self {
            values: fitting.iter().take(most).map(|choice| (*choice).clone()).collect(),
            total: Some(u32::try_from(fitting.len()).unwrap_or(u32::MAX)),
            has_more: fitting.len() > most,
        }
    }
}
