//! Resolution of `$ref` within one document; nothing is ever fetched.

use serde_json::Value;
use std::collections::HashMap;

/// Maximum number of values scanned for anchors and ids.
const SCANNED_MAX: usize = 20_000;

/// Maximum depth of that scan.
const DEPTH_MAX: usize = 64;

/// A schema with all targets of its references.
pub(crate) struct ReferenceResolver<'a> {
    root: &'a Value,
    /// Targets by `$id`, and by `#` with an anchor's name. Built on first use, because few schemas have any.
    anchors: Option<HashMap<String, &'a Value>>,
}

impl<'a> ReferenceResolver<'a> {
    pub(crate) fn new(root: &'a Value) -> Self {
        Self { root, anchors: None }
    }

    /// The target of a reference, if it is in this document.
    pub(crate) fn find(&mut self, reference: &str) -> Option<&'a Value> {
        let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let document = match address {
            "" => self.root,
            address => self.find_anchor(address)?,
        };
        match fragment {
            "" => Some(document),
            pointer if pointer.starts_with('/') => document.pointer(&percent_decode(pointer)),
            anchor => self.find_anchor(&format!("#{anchor}")),
        }
    }

    fn find_anchor(&mut self, name: &str) -> Option<&'a Value> {
        let root = self.root;
        let anchors = self.anchors.get_or_insert_with(|| {
            let mut anchors = HashMap::new();
            let mut left = SCANNED_MAX;
            collect_anchors(root, 0, &mut left, &mut anchors);
            anchors
        });
        anchors.get(name).copied()
    }
}

fn collect_anchors<'a>(
    value: &'a Value,
    depth: usize,
    left: &mut usize,
    anchors: &mut HashMap<String, &'a Value>,
) {
    if depth > DEPTH_MAX || *left == 0 {
        return;
    }
    *left -= 1;
    match value {
        Value::Object(fields) => {
            for key in ["$anchor", "$dynamicAnchor"] {
                if let Some(anchor) = fields.get(key).and_then(Value::as_str) {
                    anchors.entry(format!("#{anchor}")).or_insert(value);
                }
            }
            if let Some(id) = fields.get("$id").and_then(Value::as_str) {
                anchors.entry(id.trim_end_matches('#').to_owned()).or_insert(value);
            }
            for field in fields.values() {
                collect_anchors(field, depth + 1, left, anchors);
            }
        }
        Value::Array(items) => {
            for item in items {
                collect_anchors(item, depth + 1, left, anchors);
            }
        }
        _ => {}
    }
}

/// The name that a reference gives its target: its last segment, decoded, without a file extension.
pub(crate) fn reference_name(reference: &str) -> Option<String> {
    let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
    let part = if fragment.is_empty() {
        let file = address.rsplit('/').find(|part| !part.is_empty())?;
        file.split('.').next()?.to_owned()
    } else {
        percent_decode(fragment.rsplit('/').next()?).replace("~1", "/").replace("~0", "~")
    };
    (!part.is_empty()).then_some(part)
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digit = |index: usize| after.get(index).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_are_found_by_pointer_anchor_and_identifier() {
        let root = json!({
            "$id": "https://example.com/root.json",
            "$defs": {
                "a/b c": {"const": 1},
                "marked": {"$anchor": "here", "const": 2},
                "old": {"$id": "#there", "const": 3},
                "own": {"$id": "own.json", "const": 4, "$defs": {"inner": {"const": 5}}},
            },
        });
        let mut document = ReferenceResolver::new(&root);
        let mut constant =
            |reference: &str| document.find(reference).and_then(|found| found.get("const")).cloned();
        for (reference, expected) in [
            ("#/$defs/a~1b%20c", Some(json!(1))),
            ("#here", Some(json!(2))),
            ("https://example.com/root.json#here", Some(json!(2))),
            ("#there", Some(json!(3))),
            ("own.json", Some(json!(4))),
            ("own.json#/$defs/inner", Some(json!(5))),
            ("#/$defs/none", None),
            ("https://example.com/elsewhere.json", None),
            ("%", None),
            ("#/%zz", None),
        ] {
            assert_eq!(constant(reference), expected, "{reference}");
        }
        assert_eq!(document.find("#"), Some(&root));
    }

    #[test]
    fn a_target_is_called_by_the_last_part() {
        for (reference, expected) in [
            ("#/components/schemas/Pet", Some("Pet")),
            ("#/$defs/a~1b%20c", Some("a/b c")),
            ("#here", Some("here")),
            ("https://example.com/pets/pet.schema.json", Some("pet")),
            ("#", None),
            ("", None),
            ("#/", None),
        ] {
            assert_eq!(reference_name(reference).as_deref(), expected, "{reference}");
        }
    }
}
