//! The successful response of an operation: its media types and its schema.

use super::media::{Kind, essence, kind};
use super::read::Reader;
use super::reference::Node;
use crate::operation::{Answer, Way};
use serde_json::{Value, json};

/// Maximum number of media types in `Accept`.
const ACCEPTED_MAX: usize = 16;

/// Maximum number of different response schemas of one operation.
const ALTERNATIVES_MAX: usize = 8;

/// Statuses without a response body.
const NOTHING: [&str; 2] = ["204", "205"];

impl<'d> Reader<'d> {
    /// The successful response, and its schema if it is known.
    pub(super) fn answer(&mut self, operation: Node<'d>) -> (Answer, Option<Value>) {
        let mut content: Vec<(&'d str, Option<Node<'d>>)> = Vec::new();
        for response in self.good_responses(operation) {
            match response.get("content") {
                Some(media) => content.extend(media.fields().map(|(name, media)| {
                    let media = self.documents.follow(media).unwrap_or(media);
                    (name, media.get("schema"))
                })),
                None if response.get("schema").is_some() => {
                    let produces = operation.get("produces").or_else(|| self.root.get("produces"));
                    let names =
                        produces.into_iter().flat_map(Node::items).filter_map(|name| name.value.as_str());
                    let before = content.len();
                    content.extend(names.map(|name| (name, response.get("schema"))));
                    if content.len() == before {
                        content.push(("application/json", response.get("schema")));
                    }
                }
                None => {}
            }
        }
        // Concrete JSON goes first. The type of a wildcard range shows only in the response, and event
        // streams are text.
        content.sort_by_key(|(name, _)| match kind(name) {
            Kind::Json if name.contains('*') => Kind::Form,
            kind => kind,
        });
        let mut accept: Vec<String> = Vec::new();
        for (name, _) in &content {
            let name = essence(name);
            let is_sendable = name.contains('/') && name.chars().all(|c| c.is_ascii_graphic());
            if is_sendable && accept.len() < ACCEPTED_MAX && !accept.contains(&name) {
                accept.push(name);
            }
        }
        let schema = match content.is_empty() && self.is_nothing(operation) {
            true => Some(json!({"type": "null"})),
            false => self.answer_schema(&content),
        };
        (Answer { accept }, schema)
    }

    /// Whether all success statuses of an operation are without a response body.
    fn is_nothing(&self, operation: Node<'d>) -> bool {
        let responses =
            operation.get("responses").and_then(|responses| self.documents.follow(responses).ok());
        let all = responses.into_iter().flat_map(Node::fields).map(|(status, _)| status);
        let mut good = all.filter(|status| status.starts_with('2')).peekable();
        good.peek().is_some() && good.all(|status| NOTHING.contains(&status))
    }

    fn answer_schema(&mut self, content: &[(&'d str, Option<Node<'d>>)]) -> Option<Value> {
        let best = content.first().map(|(name, _)| kind(name))?;
        match best {
            Kind::Json => {}
            Kind::Text => return Some(json!({"type": "string"})),
            Kind::Form | Kind::Multipart | Kind::Binary => return None,
        }
        let mut alternatives: Vec<Value> = Vec::new();
        for (_, schema) in content.iter().filter(|(name, _)| kind(name) == Kind::Json).take(ALTERNATIVES_MAX)
        {
            let schema = self.schemas.schema((*schema)?, Way::Response);
            if !alternatives.contains(&schema) {
                alternatives.push(schema);
            }
        }
        match alternatives.len() {
            0 => None,
            1 => alternatives.pop().filter(Value::is_object),
            _ => Some(json!({"anyOf": alternatives})),
        }
    }

    /// Successful responses, best first; one whose `$ref` cannot be resolved is left out.
    fn good_responses(&self, operation: Node<'d>) -> Vec<Node<'d>> {
        let responses =
            operation.get("responses").and_then(|responses| self.documents.follow(responses).ok());
        let all = responses.into_iter().flat_map(Node::fields);
        let mut good: Vec<(&str, Node<'d>)> = all.filter(|(status, _)| status.starts_with('2')).collect();
        good.sort_by_key(|(status, _)| *status);
        if good.is_empty() {
            let has_redirect =
                responses.into_iter().flat_map(Node::fields).any(|(status, _)| status.starts_with('3'));
            let default = responses.and_then(|responses| responses.get("default"));
            good.extend(default.filter(|_| !has_redirect).map(|response| ("default", response)));
        }
        good.into_iter().filter_map(|(_, response)| self.documents.follow(response).ok()).collect()
    }
}
