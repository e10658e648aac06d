//! JSON Schemas of tools, stored or generated on demand.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// A JSON Schema (2020-12).
///
/// Thousands of tools of one origin may share definitions. Storing a complete schema for each would take more memory
/// than everything else, so such schemas are generated on every access.
#[derive(Clone)]
pub struct Schema(SchemaSource);

#[derive(Clone)]
enum SchemaSource {
    Stored(Arc<Value>),
    Generated(Arc<dyn Fn(usize) -> Value + Send + Sync>),
}

impl Schema {
    /// A schema that is generated on every access, always the same. `make` gets the maximum number of definitions to
    /// include, nearest first.
    pub fn lazy(make: impl Fn(usize) -> Value + Send + Sync + 'static) -> Self {
        Self(SchemaSource::Generated(Arc::new(make)))
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
            SchemaSource::Generated(make) => Arc::new(make(definitions_max)),
        }
    }

    /// Whether it is generated on every access.
    pub(crate) fn is_generated(&self) -> bool {
        matches!(self.0, SchemaSource::Generated(_))
    }
}

impl From<Value> for Schema {
    fn from(value: Value) -> Self {
        Self(SchemaSource::Stored(Arc::new(value)))
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SchemaSource::Stored(value) => fmt::Debug::fmt(value, f),
            SchemaSource::Generated(_) => f.write_str("Schema(generated on demand)"),
        }
    }
}

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.get().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}
