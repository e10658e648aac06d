//! Argument completion while a user types, for agents (MCP prompts) and URI templates.

use std::collections::BTreeMap;

/// A completion request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionRequest {
    /// The agent or URI template that has the argument.
    pub target: CompletionTarget,
    /// Name of the argument.
    pub argument: String,
    /// Text typed so far.
    pub typed: String,
    /// Arguments that are already filled in.
    pub context: BTreeMap<String, String>,
}

/// An agent or URI template whose arguments can be completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompletionTarget {
    /// An agent, by name.
    Agent(String),
    /// A URI template, as listed.
    Template(String),
}

/// Completion values of an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completions {
    /// The values, best first.
    pub values: Vec<String>,
    /// Total number of values, if known.
    pub total: Option<u32>,
    /// Whether there are more values than these.
    pub has_more: bool,
}

impl Completions {
    /// The choices that start with the typed text, ignoring case; at most `most` of them.
    pub fn matching(choices: &[String], typed: &str, most: usize) -> Self {
        let typed = typed.to_lowercase();
        let matching: Vec<&String> =
            choices.iter().filter(|choice| choice.to_lowercase().starts_with(&typed)).collect();
        Self {
            values: matching.iter().take(most).map(|choice| (*choice).clone()).collect(),
            total: Some(u32::try_from(matching.len()).unwrap_or(u32::MAX)),
            has_more: matching.len() > most,
        }
    }
}
