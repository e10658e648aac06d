//! A schema of one operation, stored as JSON text and parsed on first use.
//!
//! A description of eleven thousand operations has twice as many schemas; most are never read.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

/// A schema without the definitions that it refers to.
#[derive(Clone, Default)]
pub(crate) struct LazySchema {
    /// The stored JSON; `None` if the schema was built or changed in memory.
    text: Option<Box<RawValue>>,
    value: OnceLock<Value>,
}

impl Deref for LazySchema {
    type Target = Value;

    fn deref(&self) -> &Value {
        // The text was checked to be JSON when it was deserialized.
        let read = || self.text.as_ref().and_then(|text| serde_json::from_str(text.get()).ok());
        self.value.get_or_init(|| read().unwrap_or_default())
    }
}

impl LazySchema {
    /// Applies `change` to the schema.
    pub(crate) fn modify(&mut self, change: impl FnOnce(&mut Value)) {
        let mut value = Value::clone(self);
        change(&mut value);
        *self = value.into();
    }
}

impl From<Value> for LazySchema {
    fn from(value: Value) -> Self {
        Self { text: None, value: OnceLock::from(value) }
    }
}

impl PartialEq for LazySchema {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for LazySchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Serialize for LazySchema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.text {
            Some(text) => text.serialize(serializer),
            None => (**self).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for LazySchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self { text: Some(text), value: OnceLock::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_deserialized_schema_is_parsed_on_first_use_and_can_be_modified() {
        let schema = json!({"type": "object", "properties": {"id": {"type": "integer"}}});
        let stored = serde_json::to_string(&LazySchema::from(schema.clone())).unwrap();
        let mut restored: LazySchema = serde_json::from_str(&stored).unwrap();
        assert!(restored.value.get().is_none());
        assert_eq!(serde_json::to_string(&restored).unwrap(), stored);
        assert_eq!(*restored, schema);
        restored.modify(|schema| schema["type"] = json!("array"));
        assert_eq!(restored["type"], "array");
        assert_eq!(serde_json::to_value(&restored).unwrap()["type"], "array");
    }
}
