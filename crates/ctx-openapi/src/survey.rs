//! What can be made of a description, in numbers: for measuring over many of them.

use crate::document::{Alone, Home, load};
use crate::operation::{Description, MediaKind, Operation, Place};
use ctx_core::Identifier;
use serde_json::Value;

/// A description that was read.
#[derive(Debug)]
pub struct Survey {
    description: Description,
}

impl Survey {
    /// Reads a description that is one document; the error says why it cannot be.
    pub fn of(text: &str) -> Result<Self, String> {
        let home = Home::Directory("description".to_owned());
        let description = load(text, home, &Alone).map_err(|error| error.to_string())?;
        Ok(Self { description })
    }

    /// How many operations can be called.
    pub fn operations(&self) -> usize {
        self.description.operations.len()
    }

    /// How many definitions their schemas refer to.
    pub fn definitions(&self) -> usize {
        self.description.definitions.len()
    }

    /// What cannot be called, and why.
    pub fn skipped(&self) -> impl Iterator<Item = (&str, &str)> {
        self.description.skipped.iter().map(|skipped| (skipped.what.as_str(), skipped.why.as_str()))
    }

    /// The schemas of each operation, whole, by its name.
    pub fn schemas(&self) -> impl Iterator<Item = (&str, Value, Option<Value>)> {
        let description = &self.description;
        description.operations.iter().map(|operation| {
            let input = description.input_schema(operation);
            (operation.name.as_str(), input, description.output_schema(operation))
        })
    }

    /// Operations that could be called but not as the description means it, and why.
    pub fn faults(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let operations = self.description.operations.iter();
        operations.filter_map(|operation| Some((operation.name.as_str(), self.fault(operation)?)))
    }

    fn fault(&self, operation: &Operation) -> Option<&'static str> {
        let schemes = &self.description.schemes;
        let is_known =
            |name: &String| !matches!(schemes.get(name), None | Some(crate::operation::Scheme::Unknown(_)));
        let ways = &operation.security;
        let slots = operation.path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let is_bound = |slot: &str| {
            operation
                .parameters
                .iter()
                .any(|one| one.place == Place::Path && one.name == slot && one.required)
        };
        let media = operation.body.iter().flat_map(|body| &body.media);
        let best = media.into_iter().next();
        if operation.name.parse::<Identifier>().is_err() || operation.name.len() > 64 {
            Some("its name is no identifier")
        } else if !slots.into_iter().all(is_bound) {
            Some("a part of its path is not bound")
        } else if operation.body.is_some() && best.is_none() {
            Some("its body has no kind of content")
        } else if best.is_some_and(|best| best.kind == MediaKind::Binary && best.content_type.contains('*')) {
            Some("its body's kind of content cannot be sent")
        } else if !ways.is_empty() && !ways.iter().any(|way| way.keys().all(is_known)) {
            Some("no way to be let in is known")
        } else {
            None
        }
    }
}
