//! Resolution of `$ref`.

use super::documents::{Documents, percent_decode};
use serde_json::{Map, Value};

/// Maximum length of a chain of references.
const STEPS_MAX: usize = 32;

/// Locations of schemas that some documents refer to by their bare name.
const SCHEMA_POINTERS: [&str; 2] = ["/components/schemas/", "/definitions/"];

/// A value and its document, against which its references are resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct DocumentNode<'a> {
    pub(super) document: usize,
    pub(super) value: &'a Value,
}

/// The target of a reference.
#[derive(Clone, Debug)]
pub(super) struct ReferenceTarget<'a> {
    pub(super) node: DocumentNode<'a>,
    /// JSON Pointer to it within its document.
    pub(super) pointer: String,
}

impl<'a> DocumentNode<'a> {
    /// One of its fields.
    pub(super) fn get(self, name: &str) -> Option<DocumentNode<'a>> {
        self.value.get(name).map(|value| DocumentNode { value, ..self })
    }

    /// Its fields; none if it is not an object.
    pub(super) fn fields(self) -> impl Iterator<Item = (&'a str, DocumentNode<'a>)> {
        let fields = self.value.as_object().into_iter().flatten();
        fields.map(move |(name, value)| (name.as_str(), DocumentNode { value, ..self }))
    }

    /// Its items; none if it is not an array.
    pub(super) fn items(self) -> impl Iterator<Item = DocumentNode<'a>> {
        self.value.as_array().into_iter().flatten().map(move |value| DocumentNode { value, ..self })
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
    pub(super) fn resolve<'a>(&'a self, from: usize, reference: &str) -> Result<ReferenceTarget<'a>, String> {
        let refused = |why: &str| format!("refers to `{}`, which {why}", shorten(reference));
        let is_bare_name = !reference.contains(['#', '/', '.']) && !reference.is_empty();
        if is_bare_name {
            for prefix in SCHEMA_POINTERS {
                let pointer = format!("{prefix}{reference}");
                if let Some(value) = self.document(from).and_then(|document| document.pointer(&pointer)) {
                    return Ok(ReferenceTarget { node: DocumentNode { document: from, value }, pointer });
                }
            }
        }
        let (document, fragment) = self.locate(from, reference).map_err(|why| refused(&why))?;
        let document_value = self.document(document).ok_or_else(|| refused("does not exist"))?;
        let decoded = percent_decode(fragment);
        let found = document_value.pointer(&decoded).map(|value| (value, decoded));
        let found =
            found.or_else(|| document_value.pointer(fragment).map(|value| (value, fragment.to_owned())));
        let (value, pointer) = found.ok_or_else(|| refused("does not exist"))?;
        Ok(ReferenceTarget { node: DocumentNode { document, value }, pointer })
    }

    /// Follows a chain of references to its end; a value that is not a reference is returned as it is. The
    /// error says why a reference cannot be resolved.
    pub(super) fn follow<'a>(&'a self, mut node: DocumentNode<'a>) -> Result<DocumentNode<'a>, String> {
        for _ in 0..STEPS_MAX {
            match node.value.as_object().and_then(reference_of) {
                Some(reference) => node = self.resolve(node.document, reference)?.node,
                None => return Ok(node),
            }
        }
        Err("refers to itself".to_owned())
    }

    /// Resolves a reference, and further ones as long as the target has no field but `$ref`; the error says
    /// why it cannot be resolved.
    pub(super) fn resolve_aliases<'a>(
        &'a self,
        from: usize,
        reference: &str,
    ) -> Result<ReferenceTarget<'a>, String> {
        let mut target = self.resolve(from, reference)?;
        for _ in 0..STEPS_MAX {
            let fields = target.node.value.as_object();
            match fields.filter(|fields| fields.len() == 1).and_then(reference_of) {
                Some(reference) => target = self.resolve(target.node.document, reference)?,
                None => return Ok(target),
            }
        }
        Err("refers to itself".to_owned())
    }
}

/// The beginning of a text, for error messages.
pub(super) fn shorten(text: &str) -> String {
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
    use super::super::documents::{RootLocation, SingleDocument};
    use super::*;
    use serde_json::json;

    fn documents(value: &Value) -> Documents {
        Documents::gather(&value.to_string(), RootLocation::Directory("a.json".to_owned()), &SingleDocument)
            .unwrap()
    }

    #[test]
    fn references_resolve_to_their_targets() {
        let documents = documents(&json!({
            "components": {"schemas": {"A b": 1, "x/y": 2, "C": {"$ref": "#/components/schemas/A b"}}},
        }));
        let resolve = |reference: &str| {
            let target = documents.resolve(0, reference).and_then(|target| documents.follow(target.node));
            target.map(|node| node.value.clone()).ok()
        };
        assert_eq!(resolve("#/components/schemas/A%20b"), Some(json!(1)));
        assert_eq!(resolve("#/components/schemas/x~1y"), Some(json!(2)));
        assert_eq!(resolve("a.json#/components/schemas/C"), Some(json!(1)));
        assert_eq!(resolve("C"), Some(json!(1)));
        assert_eq!(resolve("#/components/schemas/D"), None);
        assert_eq!(resolve("#anchor"), None);
    }

    #[test]
    fn circular_references_end() {
        let documents = documents(&json!({"a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}, "c": {"$ref": "#/c"}}));
        for start in ["#/a", "#/b", "#/c"] {
            let target = documents.resolve(0, start).unwrap();
            assert!(documents.follow(target.node).is_err());
            assert!(documents.resolve_aliases(0, start).is_err());
        }
    }
}
