//! The argument that a tool sends as its request body, and normalisation of the forms in which callers may pass it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The argument that a tool sends as its request body.
///
/// Callers pass it under its name, or its fields next to the other arguments, or the value alone if it is not an
/// object. The argument schema describes only the first form; the others are converted to it before validation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyArgument {
    /// Name of the argument.
    pub name: String,
    /// Whether the body can be an object, so that its fields may be passed next to the other arguments. The name of
    /// another argument is never taken for a field of the body.
    pub has_fields: bool,
}

/// The form in which a caller passed the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyForm {
    /// Under its name, as the only value, or omitted.
    Whole,
    /// As fields next to the other arguments.
    Fields,
    /// A required body, of which neither the name nor a field was passed.
    Missing,
}

impl BodyArgument {
    /// Converts arguments to the form that the schema describes.
    pub(crate) fn normalize(&self, schema: &Value, arguments: Value) -> (Value, BodyForm) {
        let mut arguments = match arguments {
            Value::Null => Map::new(),
            Value::Object(arguments) => arguments,
            other => return (Value::Object(Map::from_iter([(self.name.clone(), other)])), BodyForm::Whole),
        };
        let known = schema.get("properties").and_then(Value::as_object);
        let is_known =
            |name: &String| *name == self.name || known.is_some_and(|known| known.contains_key(name));
        // Many clients send null for arguments that they leave out.
        let has_named_body = arguments.get(&self.name).is_some_and(|body| !body.is_null());
        if !self.has_fields || has_named_body {
            return (Value::Object(arguments), BodyForm::Whole);
        }
        if arguments.keys().all(is_known) {
            let is_missing = !arguments.contains_key(&self.name) && self.is_required(schema);
            if is_missing {
                arguments.insert(self.name.clone(), Value::Object(Map::new()));
            }
            return (Value::Object(arguments), if is_missing { BodyForm::Missing } else { BodyForm::Whole });
        }
        let (mut others, fields): (Map<String, Value>, Map<String, Value>) =
            arguments.into_iter().partition(|(name, _)| is_known(name));
        others.insert(self.name.clone(), Value::Object(fields));
        (Value::Object(others), BodyForm::Fields)
    }

    fn is_required(&self, schema: &Value) -> bool {
        let required = schema.get("required").and_then(Value::as_array);
        required.is_some_and(|names| names.iter().any(|name| *name == *self.name))
    }
}

#[cfg(test)]
mod tests {
    use crate::{ArgumentSchema, BodyArgument};
    use serde_json::{Map, Value, json};

    fn schema(parameters: &Value, body: &Value, has_fields: bool) -> ArgumentSchema {
        let mut properties = parameters.as_object().unwrap().clone();
        let required: Vec<String> = properties.keys().cloned().chain(["body".to_owned()]).collect();
        properties.insert("body".to_owned(), body.clone());
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            "$defs": {"Pet": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "tags": {"type": "array"}, "id": {"type": "string"}},
                "required": ["name"],
                "additionalProperties": false,
            }},
        });
        let body = BodyArgument { name: "body".to_owned(), has_fields };
        ArgumentSchema::compile(schema).unwrap().with_body(Some(body))
    }

    fn pet() -> Value {
        json!({"$ref": "#/$defs/Pet"})
    }

    fn prepared(schema: &ArgumentSchema, arguments: &Value) -> Result<Value, String> {
        let prepared: Result<Map<String, Value>, _> = schema.prepare(arguments.clone());
        prepared.map(Value::Object).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn fields_may_stand_alone_beside_parameters_or_in_the_body() {
        let create = schema(&json!({}), &pet(), true);
        let rex = json!({"body": {"name": "Rex"}});
        for arguments in
            [json!({"name": "Rex"}), json!({"body": {"name": "Rex"}}), json!({"name": "Rex", "body": null})]
        {
            assert_eq!(prepared(&create, &arguments), Ok(rex.clone()), "{arguments}");
        }
        let update = schema(&json!({"id": {"type": "integer"}}), &pet(), true);
        let rex = json!({"id": 1, "body": {"name": "Rex"}});
        for arguments in [json!({"id": 1, "name": "Rex"}), json!({"id": 1, "body": {"name": "Rex"}})] {
            assert_eq!(prepared(&update, &arguments), Ok(rex.clone()), "{arguments}");
        }
    }

    #[test]
    fn what_is_no_object_is_the_body() {
        let list = schema(&json!({}), &json!({"type": "array", "items": {"type": "string"}}), false);
        for arguments in [json!(["a"]), json!({"body": ["a"]})] {
            assert_eq!(prepared(&list, &arguments), Ok(json!({"body": ["a"]})));
        }
        assert_eq!(prepared(&list, &json!({})).unwrap_err(), "missing required parameter: body");
        let text = schema(&json!({}), &json!({"type": "string"}), false);
        assert_eq!(prepared(&text, &json!("hello")), Ok(json!({"body": "hello"})));
        let with_id = schema(&json!({"id": {}}), &json!({"type": "string"}), false);
        assert_eq!(prepared(&with_id, &json!("hello")).unwrap_err(), "missing required parameter: id");
    }

    #[test]
    fn an_empty_body_is_one_where_nothing_must_be_in_it() {
        let open = schema(&json!({}), &json!({"type": "object"}), true);
        assert_eq!(prepared(&open, &json!({})), Ok(json!({"body": {}})));
        assert_eq!(prepared(&open, &Value::Null), Ok(json!({"body": {}})));
        let either = json!({"anyOf": [{"type": "string"}, {"type": "object", "required": ["name"]}]});
        let either = schema(&json!({}), &either, true);
        assert_eq!(prepared(&either, &json!({})).unwrap_err(), "missing required parameter: body");
    }

    #[test]
    fn messages_name_fields_as_the_caller_passed_them() {
        let update = schema(&json!({"petId": {"type": "integer"}}), &pet(), true);
        for (arguments, message) in [
            (json!({"petId": 1}), "missing required parameter: name"),
            (json!({"petId": 1, "tags": []}), "missing required parameter: name"),
            (json!({"petId": 1, "body": {}}), "missing required parameter: body.name"),
            (json!({"petId": 1, "name": 7}), r#"parameter `name`: its value is not of type "string""#),
            (json!({"petId": 1, "name": "x", "nam": 1}), "unknown parameter: nam (did you mean `name`?)"),
            (
                json!({"petId": 1, "body": {"name": "x", "nam": 1}}),
                "unknown parameter: body.nam (did you mean `name`?)",
            ),
            (json!({"petId": 1, "body": {"name": "x"}, "tags": []}), "unknown parameter: tags"),
            (
                json!({"petid": 1, "name": "x"}),
                "missing required parameter: petId; unknown parameter: petid (did you mean `petId`?)",
            ),
        ] {
            let problems = prepared(&update, &arguments).unwrap_err();
            let (mut problems, mut expected): (Vec<_>, Vec<_>) =
                (problems.split("; ").collect(), message.split("; ").collect());
            problems.sort_unstable();
            expected.sort_unstable();
            assert_eq!(problems, expected, "{arguments}");
        }
    }

    #[test]
    fn a_misspelt_parameter_is_reported_even_where_the_body_takes_any_field() {
        let update = schema(&json!({"petId": {"type": "integer"}}), &json!({"type": "object"}), true);
        assert_eq!(
            prepared(&update, &json!({"petid": 1, "name": "x"})).unwrap_err(),
            "missing required parameter: petId (misspelled as `petid`?)"
        );
    }
}
