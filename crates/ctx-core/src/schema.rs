//! JSON Schemas of tools: as values, as text that is parsed on demand, or generated on demand.

use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A JSON Schema (2020-12).
///
/// Thousands of tools of one origin may share definitions. Storing a complete schema for each would take more memory
/// than everything else, so such schemas are generated on every access. A schema that was deserialized is kept as its
/// text, which takes a tenth of the memory of its value; it is parsed on every access.
#[derive(Clone)]
pub struct Schema(SchemaSource);

#[derive(Clone)]
enum SchemaSource {
    Stored(Arc<Value>),
    /// Valid JSON.
    Text(Arc<str>),
    Generated(GeneratedSchema),
}

#[derive(Clone)]
struct GeneratedSchema {
    make: Arc<dyn Fn(usize) -> Value + Send + Sync>,
    identity: Option<Arc<str>>,
}

impl Schema {
    /// A schema that is generated on every access, always the same. `make` gets the maximum number of definitions to
    /// include, nearest first.
    pub fn lazy(make: impl Fn(usize) -> Value + Send + Sync + 'static) -> Self {
        Self(SchemaSource::Generated(GeneratedSchema { make: Arc::new(make), identity: None }))
    }

    /// Gives a generated schema an identity: a text that is another one, in the same tool, if the schema is. Other schemas
    /// are left as they are.
    #[must_use]
    pub fn with_identity(self, identity: Arc<str>) -> Self {
        match self.0 {
            SchemaSource::Generated(generated) => {
                Self(SchemaSource::Generated(GeneratedSchema { identity: Some(identity), ..generated }))
            }
            other => Self(other),
        }
    }

    /// A text that differs, for a tool of the same name, whenever the schema does: to recognise what was made of it
    /// earlier. `None` if the schema is generated and has no identity.
    pub fn identity(&self) -> Option<Cow<'_, str>> {
        match &self.0 {
            SchemaSource::Stored(value) => Some(Cow::Owned(value.to_string())),
            SchemaSource::Text(text) => Some(Cow::Borrowed(text)),
            SchemaSource::Generated(generated) => generated.identity.as_deref().map(Cow::Borrowed),
        }
    }

    /// A schema that is kept as text. `None` if it cannot be serialized.
    pub fn as_text(schema: &impl Serialize) -> Option<Self> {
        serde_json::to_string(schema).ok().map(|text| Self(SchemaSource::Text(text.into())))
    }

    /// The complete schema.
    pub fn get(&self) -> Arc<Value> {
        self.with_definitions_max(usize::MAX)
    }

    /// The schema; if it is generated, with at most this many definitions, nearest first, so that references to others
    /// dangle. For code that looks at the start of many schemas.
    pub fn with_definitions_max(&self, definitions_max: usize) -> Arc<Value> {
        match &self.0 {
            SchemaSource::Stored(value) => value.clone(),
            // It was checked to be JSON when it became text.
            SchemaSource::Text(text) => Arc::new(serde_json::from_str(text).unwrap_or_default()),
            SchemaSource::Generated(generated) => Arc::new((generated.make)(definitions_max)),
        }
    }

    /// Whether it is a value already, and is not parsed or generated on every access.
    pub(crate) fn is_value(&self) -> bool {
        matches!(self.0, SchemaSource::Stored(_))
    }

    /// Whether it is text that came from elsewhere, and so may be no valid schema.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.0, SchemaSource::Text(_))
    }
}

impl From<Value> for Schema {
    fn from(value: Value) -> Self {
        Self(SchemaSource::Stored(Arc::new(value)))
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (SchemaSource::Text(one), SchemaSource::Text(another)) if one == another => true,
            _ => self.get() == other.get(),
        }
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SchemaSource::Stored(value) => fmt::Debug::fmt(value, f),
            SchemaSource::Text(text) => f.write_str(text),
            SchemaSource::Generated(_) => f.write_str("Schema(generated on demand)"),
        }
    }
}

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            SchemaSource::Text(text) => {
                serde_json::from_str::<&RawValue>(text).map_err(S::Error::custom)?.serialize(serializer)
            }
            _ => self.get().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(SchemaSource::Text(Box::<str>::from(text).into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_deserialized_schema_is_its_text_and_the_same_schema() {
        let value =
            json!({"type": "object", "properties": {"b": {"default": 1.50}, "a": {"const": "\u{e9}\n"}}});
        let text = value.to_string();
        let schema: Schema = serde_json::from_str(&text).unwrap();
        assert!(schema.is_text() && !schema.is_value());
        assert_eq!((*schema.get()).clone(), value);
        assert_eq!(serde_json::to_string(&schema).unwrap(), text);
        assert_eq!(serde_json::to_value(&schema).unwrap(), value);
        assert_eq!(schema.identity().as_deref(), Some(&*text));
        let others = [Schema::from(value.clone()), Schema::as_text(&value).unwrap()];
        others.iter().for_each(|other| assert_eq!((other, other.identity()), (&schema, schema.identity())));
        let spaced: Schema = serde_json::from_str(&format!(" {}", text.replace(':', ": "))).unwrap();
        assert_eq!(spaced, schema);
        assert_ne!(Schema::from(json!({})), schema);
        assert_eq!(serde_json::from_value::<Schema>(value).unwrap(), schema);
    }
}
