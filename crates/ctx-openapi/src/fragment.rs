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
pub(crate) struct Fragment {
    /// The stored JSON; `None` if the schema was built or changed in memory.
    text: Option<Box<RawValue>>,
    value: OnceLock<Value>,
}

impl Deref for Fragment {
    type Target = Value;

    fn deref(&self) -> &Value {
        // The text was checked to be JSON when it was deserialized.
        let read = || self.text.as_ref().and_then(|text| serde_json::from_str(text.get()).ok());
        self.value.get_or_init(|| read().unwrap_or_default())
    }
}

impl Fragment {
    /// Applies `change` to the schema.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Value)) {
        let mut value = Value::clone(self);
        change(&mut value);
        *self = value.into();
    }
}

impl From<Value> for Fragment {
    fn from(value: Value) -> Self {
        Self { text: None, value: OnceLock::from(value) }
    }
}

impl PartialEq for Fragment {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Fragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Serialize for Fragment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.text {
            Some(text) => text.serialize(serializer),
            None => (**self).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Fragment {
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
    fn what_is_read_back_is_what_was_kept_and_can_be_changed() {
        let schema = json!({"type": "object", "properties": {"id": {"type": "integer"}}});
        let kept = serde_json::to_string(&Fragment::from(schema.clone())).unwrap();
        let mut back: Fragment = serde_json::from_str(&kept).unwrap();
        assert!(back.value.get().is_none());
        assert_eq!(serde_json::to_string(&back).unwrap(), kept);
        assert_eq!(*back, schema);
        back.change(|schema| schema["type"] = json!("array"));
        assert_eq!(back["type"], "array");
        assert_eq!(serde_json::to_value(&back).unwrap()["type"], "array");
    }
}
