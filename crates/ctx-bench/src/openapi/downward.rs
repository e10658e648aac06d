//! Converts descriptions of OpenAPI 3.0 to version 2.0 (Swagger). Features that version 2.0 lacks are left out.

use serde_json::{Map, Value, json};

/// Maximum length of a chain of references.
const STEPS_MAX: usize = 32;
/// Keywords of an operation that both versions have in common.
const SAME: [&str; 7] =
    ["operationId", "summary", "description", "tags", "deprecated", "security", "externalDocs"];
/// Keywords of a schema that version 2.0 has directly in a parameter.
const PLAIN: [&str; 15] = [
    "type",
    "format",
    "items",
    "default",
    "enum",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
];
/// Keywords of schemas that version 2.0 lacks.
const UNKNOWN: [&str; 5] = ["oneOf", "anyOf", "not", "writeOnly", "deprecated"];
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

/// The description in version 2.0.
pub(super) fn converted(root: &Value) -> Value {
    let third = Third { root };
    let mut second = Map::from_iter([
        ("swagger".to_owned(), json!("2.0")),
        ("info".to_owned(), root.get("info").cloned().unwrap_or_default()),
    ]);
    third.add_server(&mut second);
    let paths = root.get("paths").and_then(Value::as_object).into_iter().flatten();
    let paths: Map<String, Value> = paths.map(|(path, item)| (path.clone(), third.item(item))).collect();
    second.insert("paths".to_owned(), Value::Object(paths));
    let components =
        |word: &str| root.get("components").and_then(|all| all.get(word)).and_then(Value::as_object);
    let schemas = components("schemas").into_iter().flatten();
    let definitions: Map<String, Value> =
        schemas.map(|(name, schema)| (name.clone(), self::schema(schema))).collect();
    second.insert("definitions".to_owned(), Value::Object(definitions));
    let schemes = components("securitySchemes").into_iter().flatten();
    let schemes: Map<String, Value> =
        schemes.map(|(name, scheme)| (name.clone(), third.scheme(scheme))).collect();
    second.insert("securityDefinitions".to_owned(), Value::Object(schemes));
    if let Some(security) = root.get("security") {
        second.insert("security".to_owned(), security.clone());
    }
    Value::Object(second)
}

struct Third<'a> {
    root: &'a Value,
}

impl<'a> Third<'a> {
    fn add_server(&self, second: &mut Map<String, Value>) {
        let Some(server) = self.root.pointer("/servers/0") else { return };
        let mut url = server["url"].as_str().unwrap_or_default().to_owned();
        for (name, variable) in server.get("variables").and_then(Value::as_object).into_iter().flatten() {
            let default = variable["default"].as_str().unwrap_or_default();
            url = url.replace(&format!("{{{name}}}"), default);
        }
        let base = match url.split_once("://") {
            Some((scheme, rest)) => {
                let (host, base) = rest.split_once('/').unwrap_or((rest, ""));
                second.insert("host".to_owned(), host.into());
                second.insert("schemes".to_owned(), json!([scheme]));
                format!("/{base}")
            }
            None => url,
        };
        second.insert("basePath".to_owned(), base.into());
    }

    fn item(&self, item: &'a Value) -> Value {
        let item = self.follow(item);
        let mut second = Map::new();
        if let Some(Value::Array(parameters)) = item.get("parameters") {
            second.insert("parameters".to_owned(), self.parameters(parameters).into());
        }
        for (word, operation) in item.as_object().into_iter().flatten() {
            if METHODS.contains(&word.as_str()) {
                second.insert(word.clone(), self.operation(operation));
            }
        }
        Value::Object(second)
    }

    fn operation(&self, operation: &'a Value) -> Value {
        let mut second = Map::new();
        for word in SAME {
            if let Some(value) = operation.get(word) {
                second.insert(word.to_owned(), value.clone());
            }
        }
        let own = operation.get("parameters").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut parameters = self.parameters(own);
        if let Some(body) = operation.get("requestBody") {
            let (consumes, of_body) = self.body(self.follow(body));
            second.insert("consumes".to_owned(), consumes.into());
            parameters.extend(of_body);
        }
        second.insert("parameters".to_owned(), parameters.into());
        let mut produces: Vec<Value> = Vec::new();
        let mut responses = Map::new();
        for (status, response) in operation.get("responses").and_then(Value::as_object).into_iter().flatten()
        {
            let response = self.follow(response);
            let mut told = json!({"description": response.get("description").cloned().unwrap_or(json!(""))});
            let content = response.get("content").and_then(Value::as_object).into_iter().flatten();
            for (name, media) in content {
                if !produces.contains(&json!(name)) {
                    produces.push(json!(name));
                }
                if let (None, Some(described)) = (told.get("schema"), media.get("schema")) {
                    told["schema"] = schema(described);
                }
            }
            responses.insert(status.clone(), told);
        }
        second.insert("produces".to_owned(), produces.into());
        second.insert("responses".to_owned(), Value::Object(responses));
        Value::Object(second)
    }

    /// Converts parameters. Version 2.0 has no cookie parameters, so these are left out.
    fn parameters(&self, parameters: &'a [Value]) -> Vec<Value> {
        let all = parameters.iter().map(|parameter| self.follow(parameter));
        all.filter(|one| one["in"] != "cookie").map(|one| self.parameter(one)).collect()
    }

    fn parameter(&self, parameter: &'a Value) -> Value {
        let mut second = self.plain(parameter.get("schema"));
        for word in ["name", "in", "required", "description"] {
            if let Some(value) = parameter.get(word) {
                second.insert(word.to_owned(), value.clone());
            }
        }
        if second["type"] == "array" {
            let is_form = parameter["in"] == "query";
            let explode = parameter["explode"].as_bool().unwrap_or(is_form);
            let format = match parameter["style"].as_str() {
                Some("spaceDelimited") => "ssv",
                Some("pipeDelimited") => "pipes",
                _ if is_form && explode => "multi",
                _ => "csv",
            };
            second.insert("collectionFormat".to_owned(), format.into());
        }
        Value::Object(second)
    }

    /// The keywords of a schema for a parameter. A schema that is neither a scalar nor an array becomes a string.
    fn plain(&self, schema: Option<&'a Value>) -> Map<String, Value> {
        let schema = schema.map(|schema| self.follow(schema));
        let mut plain = Map::new();
        for word in PLAIN {
            if let Some(value) = schema.and_then(|schema| schema.get(word)) {
                plain.insert(word.to_owned(), value.clone());
            }
        }
        if plain.get("type").is_none_or(|kind| kind == "object" || !kind.is_string()) {
            return Map::from_iter([("type".to_owned(), json!("string"))]);
        }
        if plain["type"] == "array" {
            let items = schema.and_then(|schema| schema.get("items"));
            plain.insert("items".to_owned(), Value::Object(self.plain(items)));
        }
        plain
    }

    /// A request body as its media types (`consumes`), and as parameters.
    fn body(&self, body: &'a Value) -> (Vec<Value>, Vec<Value>) {
        let content: Vec<(&String, &Value)> =
            body.get("content").and_then(Value::as_object).into_iter().flatten().collect();
        let is_form =
            |name: &str| name.starts_with("multipart/") || name.starts_with("application/x-www-form");
        let (forms, others): (Vec<_>, Vec<_>) = content.into_iter().partition(|(name, _)| is_form(name));
        let required = body.get("required").cloned().unwrap_or(json!(false));
        if let Some((_, media)) = others.first() {
            let described = media.get("schema").map_or(json!({}), schema);
            let parameter = json!({"in": "body", "name": "body", "required": required, "schema": described});
            return (others.iter().map(|(name, _)| json!(name)).collect(), vec![parameter]);
        }
        let Some((name, media)) = forms.first() else { return (Vec::new(), Vec::new()) };
        let described = media.get("schema").map(|schema| self.follow(schema));
        let needed = described.and_then(|schema| schema.get("required")).and_then(Value::as_array);
        let properties = described.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
        let fields = properties.into_iter().flatten().map(|(field, schema)| {
            let mut plain = self.plain(Some(schema));
            if plain.get("format") == Some(&json!("binary")) {
                plain = Map::from_iter([("type".to_owned(), json!("file"))]);
            }
            let is_needed = needed.is_some_and(|needed| needed.contains(&json!(field)));
            plain.insert("name".to_owned(), json!(field));
            plain.insert("in".to_owned(), json!("formData"));
            plain.insert("required".to_owned(), json!(is_needed && required == json!(true)));
            Value::Object(plain)
        });
        (vec![json!(name)], fields.collect())
    }

    fn scheme(&self, scheme: &'a Value) -> Value {
        let scheme = self.follow(scheme);
        let header = |name: &str| json!({"type": "apiKey", "in": "header", "name": name});
        match (scheme["type"].as_str().unwrap_or_default(), scheme["in"].as_str().unwrap_or_default()) {
            ("http", _) if scheme["scheme"] == "basic" => json!({"type": "basic"}),
            ("apiKey", "cookie") => header("Cookie"),
            ("apiKey", _) => scheme.clone(),
            ("oauth2", _) => {
                let flows = scheme.get("flows").and_then(Value::as_object);
                let Some((name, flow)) = flows.and_then(|flows| flows.iter().next()) else {
                    return header("Authorization");
                };
                let name = match name.as_str() {
                    "clientCredentials" => "application",
                    "authorizationCode" => "accessCode",
                    other => other,
                };
                let mut second = flow.clone();
                second["type"] = json!("oauth2");
                second["flow"] = json!(name);
                second
            }
            _ => header("Authorization"),
        }
    }

    fn follow(&self, mut value: &'a Value) -> &'a Value {
        for _ in 0..STEPS_MAX {
            let reference = value.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
            match reference.and_then(|pointer| self.root.pointer(pointer)) {
                Some(target) => value = target,
                None => return value,
            }
        }
        value
    }
}

/// A schema with the keywords of version 2.0.
fn schema(third: &Value) -> Value {
    match third {
        Value::Object(fields) => {
            let mut second = Map::new();
            for (word, value) in fields {
                match (word.as_str(), value) {
                    ("$ref", Value::String(reference)) => {
                        let reference = reference.replace("#/components/schemas/", "#/definitions/");
                        second.insert(word.clone(), reference.into());
                    }
                    ("nullable", _) => {
                        second.insert("x-nullable".to_owned(), value.clone());
                    }
                    ("discriminator", Value::Object(of)) => {
                        second.insert(word.clone(), of.get("propertyName").cloned().unwrap_or_default());
                    }
                    ("properties", Value::Object(properties)) => {
                        let properties =
                            properties.iter().map(|(name, property)| (name.clone(), schema(property)));
                        second.insert(word.clone(), Value::Object(properties.collect()));
                    }
                    ("enum" | "default" | "example", _) => {
                        second.insert(word.clone(), value.clone());
                    }
                    (word, _) if UNKNOWN.contains(&word) => {}
                    _ => {
                        second.insert(word.clone(), schema(value));
                    }
                }
            }
            Value::Object(second)
        }
        Value::Array(items) => items.iter().map(schema).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_says_the_same_in_the_older_version() {
        let third = json!({
            "openapi": "3.0.0", "info": {"title": "x"}, "servers": [{"url": "https://a.example/v{n}", "variables": {"n": {"default": "1"}}}],
            "paths": {"/x/{id}": {"post": {
                "parameters": [
                    {"name": "id", "in": "path", "required": true, "schema": {"$ref": "#/components/schemas/Id"}},
                    {"name": "q", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                ],
                "requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/X"}}}},
                "responses": {"200": {"description": "", "content": {"application/json": {"schema": {"nullable": true}}}}},
            }}},
            "components": {"schemas": {"Id": {"type": "integer"}, "X": {"type": "object"}}},
        });
        let second = converted(&third);
        let operation = &second["paths"]["/x/{id}"]["post"];
        assert_eq!((&second["host"], &second["basePath"]), (&json!("a.example"), &json!("/v1")));
        assert_eq!(operation["parameters"][0]["type"], "integer");
        assert_eq!(operation["parameters"][1]["collectionFormat"], "multi");
        assert_eq!(operation["parameters"][2]["schema"], json!({"$ref": "#/definitions/X"}));
        assert_eq!(operation["consumes"], json!(["application/json"]));
        assert_eq!(operation["responses"]["200"]["schema"], json!({"x-nullable": true}));
    }
}
