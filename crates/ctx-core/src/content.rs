//! MCP content blocks, in results and messages.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// An MCP content block; its JSON is `{"type": …}`.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentBlock {
    /// Plain text.
    Text(String),
    /// Any other block, with all its fields: image, audio, resource, link.
    Other(Map<String, Value>),
}

impl ContentBlock {
    /// Parses the JSON of a block; `None` if it is not one.
    pub fn from_json(value: Value) -> Option<Self> {
        let Value::Object(mut fields) = value else { return None };
        let is_plain = fields.len() == 2 && fields.get("type").and_then(Value::as_str) == Some("text");
        match fields.get_mut("text") {
            Some(Value::String(text)) if is_plain => Some(Self::Text(std::mem::take(text))),
            _ => fields.get("type").is_some_and(Value::is_string).then_some(Self::Other(fields)),
        }
    }
}

impl Serialize for ContentBlock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct TextBlockJson<'a> {
            r#type: &'static str,
            text: &'a str,
        }
        match self {
            Self::Text(text) => TextBlockJson { r#type: "text", text }.serialize(serializer),
            Self::Other(fields) => fields.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ContentBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_json(value).ok_or_else(|| D::Error::custom("a content block needs a `type`"))
    }
}

/// Serde format of a message's content: a plain text as a string, one block as itself, several as an array.
pub(crate) mod compact {
    use super::ContentBlock;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value;

    pub(crate) fn serialize<S: Serializer>(
        blocks: &[ContentBlock],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match blocks {
            [ContentBlock::Text(text)] => serializer.serialize_str(text),
            [block] => block.serialize(serializer),
            blocks => blocks.serialize(serializer),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<ContentBlock>, D::Error> {
        let block = |value| {
            ContentBlock::from_json(value).ok_or_else(|| D::Error::custom("a content block needs a `type`"))
        };
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(vec![ContentBlock::Text(text)]),
            Value::Array(blocks) => blocks.into_iter().map(block).collect(),
            other => Ok(vec![block(other)?]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, Role};
    use serde_json::json;

    #[test]
    fn a_block_is_the_json_it_came_from() {
        for json in [
            json!({"type": "text", "text": "plain"}),
            json!({"type": "text", "text": "weighed", "annotations": {"priority": 1}}),
            json!({"type": "image", "data": "aGk=", "mimeType": "image/png"}),
        ] {
            let block: ContentBlock = serde_json::from_value(json.clone()).unwrap();
            assert_eq!(serde_json::to_value(&block).unwrap(), json);
        }
        assert!(serde_json::from_value::<ContentBlock>(json!({"text": "untyped"})).is_err());
        assert!(serde_json::from_value::<ContentBlock>(json!("bare")).is_err());
    }

    #[test]
    fn a_message_of_one_text_is_a_string_in_json() {
        for content in [
            json!("hello"),
            json!({"type": "image", "data": "", "mimeType": "image/png"}),
            json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        ] {
            let json = json!({"role": "user", "content": content});
            let message: Message = serde_json::from_value(json.clone()).unwrap();
            assert_eq!(serde_json::to_value(&message).unwrap(), json);
        }
        let message = Message::text(Role::User, "hello");
        assert_eq!(serde_json::to_value(&message).unwrap(), json!({"role": "user", "content": "hello"}));
    }
}
