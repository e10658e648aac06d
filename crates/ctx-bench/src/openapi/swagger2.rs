//! Converts descriptions of OpenAPI 3.0 to version 2.0 (Swagger). Features that version 2.0 lacks are left out.

use serde_json::{Map, Value, json};

/// Maximum length of a chain of references.
const STEPS_MAX: usize = 32;
/// Keywords of an operation that both versions have in common.
const COMMON_KEYWORDS: [&str; 7] =
    ["operationId", "summary", "description", "tags", "deprecated", "security", "externalDocs"];
/// Keywords of a schema that version 2.0 has directly in a parameter.
const PARAMETER_KEYWORDS: [&str; 15] = [
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
const UNSUPPORTED_KEYWORDS: [&str; 5] = ["oneOf", "anyOf", "not", "writeOnly", "deprecated"];
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

/// The description in version 2.0.
pub(super) fn to_swagger2(root: &Value) -> Value {
    let converter = Swagger2Converter { root };
    let mut swagger2 = Map::from_iter([
        ("swagger".to_owned(), json!("2.0")),
        ("info".to_owned(), root.get("info").cloned().unwrap_or_default()),
    ]);
    converter.add_server(&mut swagger2);
    let paths = root.get("paths").and_then(Value::as_object).into_iter().flatten();
    let paths: Map<String, Value> =
        paths.map(|(path, item)| (path.clone(), converter.path_item(item))).collect();
    swagger2.insert("paths".to_owned(), Value::Object(paths));
    let components =
        |keyword: &str| root.get("components").and_then(|all| all.get(keyword)).and_then(Value::as_object);
    let schemas = components("schemas").into_iter().flatten();
    let definitions: Map<String, Value> =
        schemas.map(|(name, schema)| (name.clone(), convert_schema(schema))).collect();
    swagger2.insert("definitions".to_owned(), Value::Object(definitions));
    let schemes = components("securitySchemes").into_iter().flatten();
    let schemes: Map<String, Value> =
        schemes.map(|(name, scheme)| (name.clone(), converter.security_scheme(scheme))).collect();
    swagger2.insert("securityDefinitions".to_owned(), Value::Object(schemes));
    if let Some(security) = root.get("security") {
        swagger2.insert("security".to_owned(), security.clone());
    }
    Value::Object(swagger2)
}

/// Converts the parts of an OpenAPI 3.0 description.
struct Swagger2Converter<'a> {
    root: &'a Value,
}

impl<'a> Swagger2Converter<'a> {
    fn add_server(&self, swagger2: &mut Map<String, Value>) {
        let Some(server) = self.root.pointer("/servers/0") else { return };
        let mut url = server["url"].as_str().unwrap_or_default().to_owned();
        for (name, variable) in server.get("variables").and_then(Value::as_object).into_iter().flatten() {
            let default = variable["default"].as_str().unwrap_or_default();
            url = url.replace(&format!("{{{name}}}"), default);
        }
        let base = match url.split_once("://") {
            Some((scheme, rest)) => {
                let (host, base) = rest.split_once('/').unwrap_or((rest, ""));
                swagger2.insert("host".to_owned(), host.into());
                swagger2.insert("schemes".to_owned(), json!([scheme]));
                format!("/{base}")
            }
            None => url,
        };
        swagger2.insert("basePath".to_owned(), base.into());
    }

    fn path_item(&self, item: &'a Value) -> Value {
        let item = self.follow(item);
        let mut swagger2 = Map::new();
        if let Some(Value::Array(parameters)) = item.get("parameters") {
            swagger2.insert("parameters".to_owned(), self.parameters(parameters).into());
        }
        for (keyword, operation) in item.as_object().into_iter().flatten() {
            if METHODS.contains(&keyword.as_str()) {
                swagger2.insert(keyword.clone(), self.operation(operation));
            }
        }
        Value::Object(swagger2)
    }

    fn operation(&self, operation: &'a Value) -> Value {
        let mut swagger2 = Map::new();
        for keyword in COMMON_KEYWORDS {
            if let Some(value) = operation.get(keyword) {
                swagger2.insert(keyword.to_owned(), value.clone());
            }
        }
        let own = operation.get("parameters").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut parameters = self.parameters(own);
        if let Some(body) = operation.get("requestBody") {
            let (consumes, body_parameters) = self.body(self.follow(body));
            swagger2.insert("consumes".to_owned(), consumes.into());
            parameters.extend(body_parameters);
        }
        swagger2.insert("parameters".to_owned(), parameters.into());
        let mut produces: Vec<Value> = Vec::new();
        let mut responses = Map::new();
        for (status, response) in operation.get("responses").and_then(Value::as_object).into_iter().flatten()
        {
            let response = self.follow(response);
            let mut display_path =
                json!({"description": response.get("description").cloned().unwrap_or(json!(""))});
            let content = response.get("content").and_then(Value::as_object).into_iter().flatten();
            for (name, media) in content {
                if !produces.contains(&json!(name)) {
                    produces.push(json!(name));
                }
                if let (None, Some(body_schema)) = (display_path.get("schema"), media.get("schema")) {
                    display_path["schema"] = convert_schema(body_schema);
                }
            }
            responses.insert(status.clone(), display_path);
        }
        swagger2.insert("produces".to_owned(), produces.into());
        swagger2.insert("responses".to_owned(), Value::Object(responses));
        Value::Object(swagger2)
    }

    /// Converts parameters. Version 2.0 has no cookie parameters, so these are left out.
    fn parameters(&self, parameters: &'a [Value]) -> Vec<Value> {
        let all = parameters.iter().map(|parameter| self.follow(parameter));
        all.filter(|one| one["in"] != "cookie").map(|one| self.parameter(one)).collect()
    }

    fn parameter(&self, parameter: &'a Value) -> Value {
        let mut swagger2 = self.parameter_keywords(parameter.get("schema"));
        for keyword in ["name", "in", "required", "description"] {
            if let Some(value) = parameter.get(keyword) {
                swagger2.insert(keyword.to_owned(), value.clone());
            }
        }
        if swagger2["type"] == "array" {
            let is_form = parameter["in"] == "query";
            let explode = parameter["explode"].as_bool().unwrap_or(is_form);
            let format = match parameter["style"].as_str() {
                Some("spaceDelimited") => "ssv",
                Some("pipeDelimited") => "pipes",
                _ if is_form && explode => "multi",
                _ => "csv",
            };
            swagger2.insert("collectionFormat".to_owned(), format.into());
        }
        Value::Object(swagger2)
    }

    /// The keywords of a schema for a parameter. A schema that is neither a scalar nor an array becomes a string.
    fn parameter_keywords(&self, schema: Option<&'a Value>) -> Map<String, Value> {
        let schema = schema.map(|schema| self.follow(schema));
        let mut keywords = Map::new();
        for keyword in PARAMETER_KEYWORDS {
            if let Some(value) = schema.and_then(|schema| schema.get(keyword)) {
                keywords.insert(keyword.to_owned(), value.clone());
            }
        }
        if keywords.get("type").is_none_or(|kind| kind == "object" || !kind.is_string()) {
            return Map::from_iter([("type".to_owned(), json!("string"))]);
        }
        if keywords["type"] == "array" {
            let items = schema.and_then(|schema| schema.get("items"));
            keywords.insert("items".to_owned(), Value::Object(self.parameter_keywords(items)));
        }
        keywords
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
            let body_schema = media.get("schema").map_or(json!({}), convert_schema);
            let parameter =
                json!({"in": "body", "name": "body", "required": required, "schema": body_schema});
            return (others.iter().map(|(name, _)| json!(name)).collect(), vec![parameter]);
        }
        let Some((name, media)) = forms.first() else { return (Vec::new(), Vec::new()) };
        let body_schema = media.get("schema").map(|schema| self.follow(schema));
        let needed = body_schema.and_then(|schema| schema.get("required")).and_then(Value::as_array);
        let properties = body_schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
        let fields = properties.into_iter().flatten().map(|(field, schema)| {
            let mut keywords = self.parameter_keywords(Some(schema));
            if keywords.get("format") == Some(&json!("binary")) {
                keywords = Map::from_iter([("type".to_owned(), json!("file"))]);
            }
            let is_needed = needed.is_some_and(|needed| needed.contains(&json!(field)));
            keywords.insert("name".to_owned(), json!(field));
            keywords.insert("in".to_owned(), json!("formData"));
            keywords.insert("required".to_owned(), json!(is_needed && required == json!(true)));
            Value::Object(keywords)
        });
        (vec![json!(name)], fields.collect())
    }

    fn security_scheme(&self, scheme: &'a Value) -> Value {
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
                let mut swagger2 = flow.clone();
                swagger2["type"] = json!("oauth2");
                swagger2["flow"] = json!(name);
                swagger2
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
fn convert_schema(openapi3: &Value) -> Value {
    match openapi3 {
        Value::Object(fields) => {
            let mut swagger2 = Map::new();
            for (keyword, value) in fields {
                match (keyword.as_str(), value) {
                    ("$ref", Value::String(reference)) => {
                        let reference = reference.replace("#/components/schemas/", "#/definitions/");
                        swagger2.insert(keyword.clone(), reference.into());
                    }
                    ("nullable", _) => {
                        swagger2.insert("x-nullable".to_owned(), value.clone());
                    }
                    ("discriminator", Value::Object(of)) => {
                        swagger2.insert(keyword.clone(), of.get("propertyName").cloned().unwrap_or_default());
                    }
                    ("properties", Value::Object(properties)) => {
                        let properties = properties
                            .iter()
                            .map(|(name, property)| (name.clone(), convert_schema(property)));
                        swagger2.insert(keyword.clone(), Value::Object(properties.collect()));
                    }
                    ("enum" | "default" | "example", _) => {
                        swagger2.insert(keyword.clone(), value.clone());
                    }
                    (keyword, _) if UNSUPPORTED_KEYWORDS.contains(&keyword) => {}
                    _ => {
                        swagger2.insert(keyword.clone(), convert_schema(value));
                    }
                }
            }
            Value::Object(swagger2)
        }
        Value::Array(items) => items.iter().map(convert_schema).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_converted_to_swagger_2() {
        let openapi3 = json!({
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
        let swagger2 = to_swagger2(&openapi3);
        let operation = &swagger2["paths"]["/x/{id}"]["post"];
        assert_eq!((&swagger2["host"], &swagger2["basePath"]), (&json!("a.example"), &json!("/v1")));
        assert_eq!(operation["parameters"][0]["type"], "integer");
        assert_eq!(operation["parameters"][1]["collectionFormat"], "multi");
        assert_eq!(operation["parameters"][2]["schema"], json!({"$ref": "#/definitions/X"}));
        assert_eq!(operation["consumes"], json!(["application/json"]));
        assert_eq!(operation["responses"]["200"]["schema"], json!({"x-nullable": true}));
    }
}
