//! A JSON Schema of a tool: there, or made when somebody asks for it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// A JSON Schema (2020-12).
///
/// Thousands of tools of one origin may share what their schemas refer to; each schema by itself, whole, would
/// then take more memory than all the rest. Such a schema is made anew whenever somebody asks for it.
#[derive(Clone)]
pub struct Schema(Kind);

#[derive(Clone)]
enum Kind {
    There(Arc<Value>),
    Made(Arc<dyn Fn(usize) -> Value + Send + Sync>),
}

impl Schema {
    /// A schema that is made when it is asked for, always the same. It is told how many definitions are wanted at
    /// most, nearest first.
    pub fn made(make: impl Fn(usize) -> Value + Send + Sync + 'static) -> Self {
        Self(Kind::Made(Arc::new(make)))
    }

    /// The schema.
    pub fn get(&self) -> Arc<Value> {
        self.near(usize::MAX)
    }

    /// The schema, or the part of it that is nearest: a made one has no more definitions than these, and what refers
    /// to others leads nowhere. For those who look at many schemas and at no more than the beginning of each.
    pub fn near(&self, definitions_max: usize) -> Arc<Value> {
        match &self.0 {
            Kind::There(value) => value.clone(),
            Kind::Made(make) => Arc::new(make(definitions_max)),
        }
    }

    /// Whether asking for it costs something.
    pub(crate) fn is_made(&self) -> bool {
        matches!(self.0, Kind::Made(_))
    }
}

impl From<Value> for Schema {
    fn from(value: Value) -> Self {
        Self(Kind::There(Arc::new(value)))
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
            Kind::There(value) => fmt::Debug::fmt(value, f),
            Kind::Made(_) => f.write_str("Schema(made when asked for)"),
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
