//! Resolution of `$ref`.

use super::sources::{Documents, percent_decoded};
use serde_json::{Map, Value};

/// Maximum length of a chain of references.
const STEPS_MAX: usize = 32;

/// Locations of schemas that some documents refer to by their bare name.
const SCHEMA_HOMES: [&str; 2] = ["/components/schemas/", "/definitions/"];

/// A value and its document, against which its references are resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    pub(super) document: usize,
    pub(super) value: &'a Value,
}

/// The target of a reference.
#[derive(Clone, Debug)]
pub(super) struct Found<'a> {
    pub(super) node: Node<'a>,
    /// JSON Pointer to it within its document.
    pub(super) pointer: String,
}

impl<'a> Node<'a> {
    /// One of its fields.
    pub(super) fn get(self, name: &str) -> Option<Node<'a>> {
        self.value.get(name).map(|value| Node { value, ..self })
    }

    /// Its fields; none if it is not an object.
    pub(super) fn fields(self) -> impl Iterator<Item = (&'a str, Node<'a>)> {
        let fields = self.value.as_object().into_iter().flatten();
        fields.map(move |(name, value)| (name.as_str(), Node { value, ..self }))
    }

    /// Its items; none if it is not an array.
    pub(super) fn items(self) -> impl Iterator<Item = Node<'a>> {
        self.value.as_array().into_iter().flatten().map(move |value| Node { value, ..self })
    }

    /// A field that is a non-empty string.
    pub(super) fn text(self, name: &str) -> Option<&'a str> {
        self.value.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty())
    }

    /// A boolean field; false if it is absent.
    pub(super) fn is(self, name: &str) -> bool {
        self.flag(name).unwrap_or(false)
    }

    /// A boolean field, if it is present. The strings `true` and `false` count as booleans.
    pub(super) fn flag(self, name: &str) -> Option<bool> {
        match self.value.get(name)? {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) => text.parse().ok(),
            _ => None,
        }
    }
}

/// The `$ref` of an object, if it has one.
pub(super) fn reference_of(fields: &Map<String, Value>) -> Option<&str> {
    fields.get("$ref").and_then(Value::as_str)
}

impl Documents {
    /// Resolves a reference by one step; the error says why it cannot be resolved.
    pub(super) fn find<'a>(&'a self, from: usize, reference: &str) -> Result<Found<'a>, String> {
        let refused = |why: &str| format!("refers to `{}`, which {why}", shortened(reference));
        let is_bare_name = !reference.contains(['#', '/', '.']) && !reference.is_empty();
        if is_bare_name {
            for home in SCHEMA_HOMES {
                let pointer = format!("{home}{reference}");
                if let Some(value) = self.document(from).and_then(|document| document.pointer(&pointer)) {
                    return Ok(Found { node: Node { document: from, value }, pointer });
                }
            }
        }
        let (document, fragment) = self.locate(from, reference).map_err(|why| refused(&why))?;
        let whole = self.document(document).ok_or_else(|| refused("is not there"))?;
        let decoded = percent_decoded(fragment);
        let hit = whole.pointer(&decoded).map(|value| (value, decoded));
        let hit = hit.or_else(|| whole.pointer(fragment).map(|value| (value, fragment.to_owned())));
        let (value, pointer) = hit.ok_or_else(|| refused("is not there"))?;
        Ok(Found { node: Node { document, value }, pointer })
    }

    /// Follows a chain of references to its end; a value that is not a reference is returned as it is. The
    /// error says why a reference cannot be resolved.
    pub(super) fn follow<'a>(&'a self, mut node: Node<'a>) -> Result<Node<'a>, String> {
        for _ in 0..STEPS_MAX {
            match node.value.as_object().and_then(reference_of) {
                Some(reference) => node = self.find(node.document, reference)?.node,
                None => return Ok(node),
            }
        }
        Err("refers to itself".to_owned())
    }

    /// Resolves a reference, and further ones as long as the target has no field but `$ref`; the error says
    /// why it cannot be resolved.
    pub(super) fn find_last<'a>(&'a self, from: usize, reference: &str) -> Result<Found<'a>, String> {
        let mut found = self.find(from, reference)?;
        for _ in 0..STEPS_MAX {
            let fields = found.node.value.as_object();
            match fields.filter(|fields| fields.len() == 1).and_then(reference_of) {
                Some(reference) => found = self.find(found.node.document, reference)?,
                None => return Ok(found),
            }
        }
        Err("refers to itself".to_owned())
    }
}

/// The beginning of a text, for error messages.
pub(super) fn shortened(text: &str) -> String {
    const SHOWN_MAX: usize = 120;
    let mut shown: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::super::sources::{Alone, Home};
    use super::*;
    use serde_json::json;

    fn documents(value: &Value) -> Documents {
        Documents::gather(&value.to_string(), Home::Directory("a.json".to_owned()), &Alone).unwrap()
    }

    #[test]
    fn references_lead_to_what_they_name() {
        let documents = documents(&json!({
            "components": {"schemas": {"A b": 1, "x/y": 2, "C": {"$ref": "#/components/schemas/A b"}}},
        }));
        let find = |reference: &str| {
            let found = documents.find(0, reference).and_then(|found| documents.follow(found.node));
            found.map(|node| node.value.clone()).ok()
        };
        assert_eq!(find("#/components/schemas/A%20b"), Some(json!(1)));
        assert_eq!(find("#/components/schemas/x~1y"), Some(json!(2)));
        assert_eq!(find("a.json#/components/schemas/C"), Some(json!(1)));
        assert_eq!(find("C"), Some(json!(1)));
        assert_eq!(find("#/components/schemas/D"), None);
        assert_eq!(find("#anchor"), None);
    }

    #[test]
    fn circles_end() {
        let documents = documents(&json!({"a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}, "c": {"$ref": "#/c"}}));
        for start in ["#/a", "#/b", "#/c"] {
            let found = documents.find(0, start).unwrap();
            assert!(documents.follow(found.node).is_err());
            assert!(documents.find_last(0, start).is_err());
        }
    }
}
