//! Selects operations of a description, and freezes parameters.

use crate::operation::{Description, Operation};
use globset::{GlobBuilder, GlobMatcher};
use serde_json::Value;
use std::collections::BTreeMap;

/// Prefix of a pattern for tags.
const TAG: &str = "tag:";

/// Which operations are offered: those that match `include`, or all if it is empty, without those that match
/// `exclude`.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    include: Vec<OperationPattern>,
    exclude: Vec<OperationPattern>,
}

/// A pattern that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is not a valid pattern: {why}")]
pub struct InvalidPattern {
    pattern: String,
    why: String,
}

/// A pattern for operations: `tag:pets`, `/pets/**`, `GET /pets/*` or `list_*`.
#[derive(Clone, Debug)]
enum OperationPattern {
    Tag(GlobMatcher),
    Path(Option<String>, GlobMatcher),
    Name(GlobMatcher),
}

impl Selection {
    /// Parses patterns: `tag:pets`, `/pets/**`, `GET /pets/*` or `list_*`.
    pub fn new<'a>(
        include: impl IntoIterator<Item = &'a str>,
        exclude: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, InvalidPattern> {
        Ok(Self {
            include: include.into_iter().map(OperationPattern::parse).collect::<Result<_, _>>()?,
            exclude: exclude.into_iter().map(OperationPattern::parse).collect::<Result<_, _>>()?,
        })
    }

    fn selects(&self, operation: &Operation) -> bool {
        let is_included = self.include.is_empty() || self.include.iter().any(|one| one.matches(operation));
        is_included && !self.exclude.iter().any(|one| one.matches(operation))
    }
}

impl OperationPattern {
    fn parse(text: &str) -> Result<Self, InvalidPattern> {
        let glob = |part: &str, literal_separator: bool| {
            let glob = GlobBuilder::new(part).literal_separator(literal_separator).build();
            let invalid = |error: globset::Error| InvalidPattern {
                pattern: text.to_owned(),
                why: error.kind().to_string(),
            };
            glob.map(|glob| glob.compile_matcher()).map_err(invalid)
        };
        // Braces in a path are literal, not a glob alternative.
        let path_glob = |path: &str| glob(&path.replace('{', "\\{").replace('}', "\\}"), true);
        if let Some(tag) = text.strip_prefix(TAG) {
            return Ok(Self::Tag(glob(tag.trim(), false)?));
        }
        if text.starts_with('/') {
            return Ok(Self::Path(None, path_glob(text)?));
        }
        match text.split_once(' ') {
            Some((method, path)) if path.trim_start().starts_with('/') => {
                Ok(Self::Path(Some(method.to_ascii_uppercase()), path_glob(path.trim())?))
            }
            _ => Ok(Self::Name(glob(text, false)?)),
        }
    }

    fn matches(&self, operation: &Operation) -> bool {
        match self {
            Self::Tag(tag) => operation.tags.iter().any(|own| tag.is_match(own)),
            Self::Path(method, path) => {
                method.as_ref().is_none_or(|method| *method == operation.method)
                    && path.is_match(&operation.path)
            }
            Self::Name(name) => name.is_match(&operation.name),
        }
    }
}

impl Description {
    /// Keeps the selected operations, and the definitions that they refer to.
    pub(crate) fn select(&mut self, selection: &Selection) {
        if selection.include.is_empty() && selection.exclude.is_empty() {
            return;
        }
        self.operations.retain(|operation| selection.selects(operation));
        self.drop_unreferenced();
    }

    /// Freezes parameters, by argument name or by name in the request: their values are always sent, and
    /// callers neither see nor set them.
    pub(crate) fn freeze(&mut self, values: &BTreeMap<String, Value>) {
        for operation in &mut self.operations {
            for parameter in &operation.parameters {
                let named = values.get(&parameter.argument).or_else(|| values.get(&parameter.name));
                if let Some(value) = named {
                    operation.input_schema.modify(|schema| remove_argument(schema, &parameter.argument));
                    operation.frozen.insert(parameter.argument.clone(), value.clone());
                }
            }
        }
    }
}

/// Removes an argument from a schema.
fn remove_argument(schema: &mut Value, argument: &str) {
    let Value::Object(fields) = schema else { return };
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.shift_remove(argument);
    }
    if let Some(required) = fields.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != argument);
        if required.is_empty() {
            fields.shift_remove("required");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RootLocation, SingleDocument, load};
    use super::*;
    use serde_json::json;

    fn description() -> Description {
        let key = json!({"name": "X-Key", "in": "header", "required": true, "schema": {"type": "string"}});
        let page = json!({"name": "page", "in": "query", "schema": {"$ref": "#/components/schemas/Page"}});
        let document = json!({
            "openapi": "3.0.0",
            "paths": {
                "/pets": {"get": {"operationId": "list_pets", "tags": ["pets"], "parameters": [key, page]}},
                "/pets/{id}": {"get": {"operationId": "get_pet", "tags": ["pets"]},
                    "delete": {"operationId": "delete_pet", "tags": ["pets", "admin"]}},
                "/stores": {"get": {"operationId": "list_stores", "parameters": [page]}},
            },
            "components": {"schemas": {"Page": {"type": "integer"}}},
        });
        load(&document.to_string(), RootLocation::Directory("a.json".to_owned()), &SingleDocument).unwrap()
    }

    fn selected(include: &[&str], exclude: &[&str]) -> Vec<String> {
        let mut description = description();
        let selection = Selection::new(include.iter().copied(), exclude.iter().copied()).unwrap();
        description.select(&selection);
        description.operations.into_iter().map(|operation| operation.name).collect()
    }

    #[test]
    fn operations_are_selected_by_tag_path_and_name() {
        let all = ["list_pets", "get_pet", "delete_pet", "list_stores"];
        assert_eq!(selected(&[], &[]), all);
        assert_eq!(selected(&["tag:pets"], &["tag:admin"]), ["list_pets", "get_pet"]);
        assert_eq!(selected(&["/pets/**"], &[]), ["get_pet", "delete_pet"]);
        assert_eq!(selected(&["/*"], &[]), ["list_pets", "list_stores"]);
        assert_eq!(selected(&["GET /pets/{id}"], &[]), ["get_pet"]);
        assert_eq!(selected(&["list_*"], &["list_stores"]), ["list_pets"]);
        assert!(Selection::new(["a["], []).is_err());
    }

    #[test]
    fn unreferenced_definitions_are_dropped() {
        let mut description = description();
        assert_eq!(description.definitions.len(), 1);
        description.select(&Selection::new(["/pets/*"], []).unwrap());
        assert!(description.definitions.is_empty());
    }

    #[test]
    fn frozen_arguments_are_hidden_and_stored() {
        let mut description = description();
        description.freeze(&BTreeMap::from([("X-Key".to_owned(), json!("secret"))]));
        let operation = &description.operations[0];
        assert_eq!(operation.frozen, BTreeMap::from([("X-Key".to_owned(), json!("secret"))]));
        assert_eq!(operation.input_schema["required"], Value::Null);
        assert_eq!(operation.input_schema["properties"]["X-Key"], Value::Null);
        assert!(description.operations[1].frozen.is_empty());
    }
}
