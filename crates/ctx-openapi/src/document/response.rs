//! The successful response of an operation: its media types and its schema.

use super::media::{MediaKind, essence, media_kind};
use super::read::DescriptionReader;
use super::reference::DocumentNode;
use crate::operation::{Direction, SuccessResponse};
use serde_json::{Value, json};

/// Maximum number of media types in `Accept`.
const ACCEPTED_MAX: usize = 16;

/// Maximum number of different response schemas of one operation.
const ALTERNATIVES_MAX: usize = 8;

/// Statuses without a response body.
const BODILESS_STATUSES: [&str; 2] = ["204", "205"];

impl<'d> DescriptionReader<'d> {
    /// The successful response, and its schema if it is known.
    pub(super) fn response(&mut self, operation: DocumentNode<'d>) -> (SuccessResponse, Option<Value>) {
        let mut content: Vec<(&'d str, Option<DocumentNode<'d>>)> = Vec::new();
        for response in self.success_responses(operation) {
            match response.get("content") {
                Some(media) => content.extend(media.fields().map(|(name, media)| {
                    let media = self.documents.follow(media).unwrap_or(media);
                    (name, media.get("schema"))
                })),
                None if response.get("schema").is_some() => {
                    let produces = operation.get("produces").or_else(|| self.root.get("produces"));
                    let names = produces
                        .into_iter()
                        .flat_map(DocumentNode::items)
                        .filter_map(|name| name.value.as_str());
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
        content.sort_by_key(|(name, _)| match media_kind(name) {
            MediaKind::Json if name.contains('*') => MediaKind::Form,
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
        let schema = match content.is_empty() && self.has_no_body(operation) {
            true => Some(json!({"type": "null"})),
            false => self.response_schema(&content),
        };
        (SuccessResponse { accept }, schema)
    }

    /// Whether all success statuses of an operation are without a response body.
    fn has_no_body(&self, operation: DocumentNode<'d>) -> bool {
        let responses =
            operation.get("responses").and_then(|responses| self.documents.follow(responses).ok());
        let all = responses.into_iter().flat_map(DocumentNode::fields).map(|(status, _)| status);
        let mut successful = all.filter(|status| status.starts_with('2')).peekable();
        successful.peek().is_some() && successful.all(|status| BODILESS_STATUSES.contains(&status))
    }

    fn response_schema(&mut self, content: &[(&'d str, Option<DocumentNode<'d>>)]) -> Option<Value> {
        let best = content.first().map(|(name, _)| media_kind(name))?;
        match best {
            MediaKind::Json => {}
            MediaKind::Text => return Some(json!({"type": "string"})),
            MediaKind::Form | MediaKind::Multipart | MediaKind::Binary => return None,
        }
        let mut alternatives: Vec<Value> = Vec::new();
        for (_, schema) in
            content.iter().filter(|(name, _)| media_kind(name) == MediaKind::Json).take(ALTERNATIVES_MAX)
        {
            let schema = self.schemas.convert_for((*schema)?, Direction::Response);
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
    fn success_responses(&self, operation: DocumentNode<'d>) -> Vec<DocumentNode<'d>> {
        let responses =
            operation.get("responses").and_then(|responses| self.documents.follow(responses).ok());
        let all = responses.into_iter().flat_map(DocumentNode::fields);
        let mut successful: Vec<(&str, DocumentNode<'d>)> =
            all.filter(|(status, _)| status.starts_with('2')).collect();
        successful.sort_by_key(|(status, _)| *status);
        if successful.is_empty() {
            let has_redirect = responses
                .into_iter()
                .flat_map(DocumentNode::fields)
                .any(|(status, _)| status.starts_with('3'));
            let default = responses.and_then(|responses| responses.get("default"));
            successful.extend(default.filter(|_| !has_redirect).map(|response| ("default", response)));
        }
        successful.into_iter().filter_map(|(_, response)| self.documents.follow(response).ok()).collect()
    }
}
