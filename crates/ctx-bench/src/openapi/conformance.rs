//! Checks that the requests of `ctx-openapi` conform to the OpenAPI document, without its parser.

use ctx_openapi::SurveyedRequest;
use percent_encoding::percent_decode_str;
use serde_json::Value;

const METHODS: [&str; 9] = ["get", "put", "post", "delete", "options", "head", "patch", "trace", "query"];
/// Header parameters that need not be sent: OpenAPI ignores the first three, and the HTTP client sets the other headers
/// itself.
const EXEMPT_HEADERS: [&str; 7] =
    ["accept", "content-type", "authorization", "connection", "content-length", "host", "transfer-encoding"];
/// Maximum number of `$ref`s followed in a row.
const REFERENCES_MAX: usize = 32;
/// Keywords that give a schema a type.
const TYPE_KEYWORDS: [&str; 8] =
    ["type", "properties", "items", "allOf", "anyOf", "oneOf", "enum", "additionalProperties"];

/// An OpenAPI or Swagger 2.0 document as plain JSON.
pub(super) struct RawDocument<'a> {
    root: &'a Value,
    is_swagger2: bool,
}

/// An operation of a [`RawDocument`], and the path item that contains it.
pub(super) struct RawOperation<'a> {
    pub(super) method: String,
    pub(super) path: &'a str,
    path_item: &'a Value,
    operation: &'a Value,
}

impl<'a> RawDocument<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        Self { root, is_swagger2: root.get("swagger").is_some() }
    }

    /// All operations: every method of every path.
    pub(super) fn operations(&self) -> Vec<RawOperation<'a>> {
        let paths = self.root.get("paths").and_then(Value::as_object);
        let path_items = paths.into_iter().flatten().filter(|(path, _)| !path.starts_with("x-"));
        let mut all = Vec::new();
        for (path, path_item) in path_items {
            let path_item = self.follow(path_item);
            for (keyword, operation) in path_item.as_object().into_iter().flatten() {
                if METHODS.contains(&keyword.to_ascii_lowercase().as_str()) {
                    let operation = self.follow(operation);
                    all.push(RawOperation {
                        method: keyword.to_ascii_uppercase(),
                        path,
                        path_item,
                        operation,
                    });
                }
            }
        }
        all
    }

    /// The first requirement of the operation that a request violates; `None` if it conforms.
    pub(super) fn violation(
        &self,
        operation: &RawOperation<'a>,
        request: &SurveyedRequest,
    ) -> Option<&'static str> {
        if request.method != operation.method {
            return Some("another method is sent");
        }
        self.path_violation(operation, request)
            .or_else(|| self.parameter_violation(operation, request))
            .or_else(|| self.body_violation(operation, request))
            .or_else(|| self.security_violation(operation, request))
    }

    /// Whether the document has a schema for a JSON response with a 2xx status, and all such schemas have a type.
    pub(super) fn has_described_response(&self, operation: &RawOperation<'a>) -> bool {
        let responses = operation.operation.get("responses").and_then(Value::as_object);
        let successful = responses.into_iter().flatten().filter(|(status, _)| status.starts_with('2'));
        let produced = operation.operation.get("produces").or_else(|| self.root.get("produces"));
        let mut produced = produced.and_then(Value::as_array).into_iter().flatten().peekable();
        let is_json_produced =
            produced.peek().is_none() || produced.any(|name| name.as_str().is_some_and(is_json));
        let schemas = successful.filter_map(|(_, response)| {
            let response = self.follow(response);
            match response.get("content").and_then(Value::as_object) {
                Some(content) => {
                    content.iter().find(|(name, _)| is_json(name)).and_then(|(_, media)| media.get("schema"))
                }
                None => response.get("schema").filter(|_| is_json_produced),
            }
        });
        // If one of several schemas has no type, the result can be any value.
        let mut schemas = schemas.map(|schema| self.follow(schema)).peekable();
        schemas.peek().is_some()
            && schemas.all(|schema| {
                TYPE_KEYWORDS.iter().any(|keyword| schema.get(keyword).is_some_and(|value| !value.is_null()))
            })
    }

    fn path_violation(
        &self,
        operation: &RawOperation<'a>,
        request: &SurveyedRequest,
    ) -> Option<&'static str> {
        let parts = request.url.split_once("://").and_then(|(scheme, rest)| {
            let (host, path) = rest.split_once('/')?;
            Some((scheme, host, path))
        });
        let Some((scheme, host, path)) = parts else { return Some("its URL is not absolute") };
        if !matches!(scheme, "http" | "https") || host.is_empty() {
            return Some("its URL has no host, or is not HTTP");
        }
        let path = percent_decode(path.split(['?', '#']).next().unwrap_or_default());
        if path.contains(['{', '}']) {
            return Some("a part of the path is not filled in");
        }
        let template = operation.path.split(['?', '#']).next().unwrap_or_default();
        // The literal parts of the template must occur in the path, in order.
        let mut rest = path.as_str();
        for (index, part) in template.split('{').enumerate() {
            let literal =
                if index == 0 { part } else { part.split_once('}').map_or("", |(_, literal)| literal) };
            let literal = percent_decode(literal.trim_start_matches('/').trim());
            let Some(found) = rest.find(&literal) else { return Some("the path is another") };
            rest = rest.get(found + literal.len()..).unwrap_or_default();
        }
        None
    }

    fn parameter_violation(
        &self,
        operation: &RawOperation<'a>,
        request: &SurveyedRequest,
    ) -> Option<&'static str> {
        let query = request.url.split_once('?').map_or("", |(_, query)| query);
        let query_names: Vec<String> =
            query.split('&').map(|pair| percent_decode(pair.split('=').next().unwrap_or_default())).collect();
        let cookies = header(request, "cookie").unwrap_or_default();
        for parameter in self.parameters(operation) {
            let text = |keyword: &str| parameter.get(keyword).and_then(Value::as_str).unwrap_or_default();
            let name = text("name").trim();
            if parameter.get("required") != Some(&Value::Bool(true)) || self.may_be_absent(parameter) {
                continue;
            }
            let is_sent = match text("in") {
                "query" => query_names.iter().any(|sent| {
                    sent == name || sent.strip_prefix(name).is_some_and(|rest| rest.starts_with('['))
                }),
                "header" if EXEMPT_HEADERS.contains(&name.to_ascii_lowercase().as_str()) => true,
                "header" => header(request, &name.to_ascii_lowercase()).is_some(),
                "cookie" => cookies.contains(&format!("{name}=")),
                _ => true,
            };
            if !is_sent {
                return Some("a parameter that must be sent is not");
            }
        }
        None
    }

    /// Whether a required parameter can be absent from the request, since its type is not a primitive: objects may be
    /// serialized as their fields, and arrays can be empty.
    fn may_be_absent(&self, parameter: &'a Value) -> bool {
        let schema = self.follow(parameter.get("schema").unwrap_or(parameter));
        let is_primitive = matches!(
            schema.get("type").and_then(Value::as_str),
            Some("string" | "integer" | "number" | "boolean")
        );
        !is_primitive
    }

    fn body_violation(
        &self,
        operation: &RawOperation<'a>,
        request: &SurveyedRequest,
    ) -> Option<&'static str> {
        let (declared, required) = self.declared_body(operation);
        let Some(body) = &request.body else {
            return required.then_some("there is no body");
        };
        let Some(content_type) = header(request, "content-type") else {
            return Some("the body has no content type");
        };
        let essence = |name: &str| name.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let sent_type = essence(content_type);
        let is_declared = declared.is_empty()
            || declared.iter().any(|name| match essence(name).as_str() {
                name if !name.contains('/') || name.starts_with('*') => true,
                name if name.ends_with("/*") => sent_type.split('/').next() == name.split('/').next(),
                name => name == sent_type,
            });
        if !is_declared {
            return Some("the content type of the body is not declared");
        }
        let is_well_formed = match sent_type.as_str() {
            "multipart/form-data" => {
                let boundary = content_type.split_once("boundary=").map_or("", |(_, boundary)| boundary);
                !boundary.is_empty() && String::from_utf8_lossy(body).contains(&format!("--{boundary}--"))
            }
            name if is_json(name) => serde_json::from_slice::<Value>(body).is_ok(),
            _ => true,
        };
        (!is_well_formed).then_some("the body is malformed for its content type")
    }

    /// The declared media types of the body (none: any is allowed), and whether a body is required.
    fn declared_body(&self, operation: &RawOperation<'a>) -> (Vec<String>, bool) {
        if !self.is_swagger2 {
            let Some(body) = operation.operation.get("requestBody") else { return (Vec::new(), false) };
            let body = self.follow(body);
            let content = body.get("content").and_then(Value::as_object);
            let names = content.into_iter().flatten().map(|(name, _)| name.clone()).collect();
            return (names, body.get("required") == Some(&Value::Bool(true)));
        }
        let is_required = |location: &str| {
            self.parameters(operation).into_iter().any(|parameter| {
                parameter.get("in").and_then(Value::as_str) == Some(location)
                    && parameter.get("required") == Some(&Value::Bool(true))
            })
        };
        let consumes = operation.operation.get("consumes").or_else(|| self.root.get("consumes"));
        let mut names: Vec<String> = consumes
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect();
        if self
            .parameters(operation)
            .iter()
            .any(|parameter| parameter.get("in").and_then(Value::as_str) == Some("formData"))
        {
            // `formData` parameters may be sent as either kind of form, whatever `consumes` says.
            names.extend(["application/x-www-form-urlencoded", "multipart/form-data"].map(str::to_owned));
        }
        (names, is_required("body") || is_required("formData"))
    }

    fn security_violation(
        &self,
        operation: &RawOperation<'a>,
        request: &SurveyedRequest,
    ) -> Option<&'static str> {
        let operation_security = operation.operation.get("security").filter(|security| security.is_array());
        let alternatives = operation_security.or_else(|| self.root.get("security")).and_then(Value::as_array);
        let alternatives: Vec<&Value> =
            alternatives.into_iter().flatten().filter(|alternative| alternative.is_object()).collect();
        let is_satisfied = |alternative: &&Value| {
            alternative.as_object().into_iter().flatten().all(|(name, _)| self.has_credentials(name, request))
        };
        (!alternatives.is_empty() && !alternatives.iter().any(is_satisfied))
            .then_some("no credentials are sent")
    }

    /// Whether a request has the credentials of the security scheme with this name.
    fn has_credentials(&self, name: &str, request: &SurveyedRequest) -> bool {
        let openapi3_schemes =
            self.root.get("components").and_then(|components| components.get("securitySchemes"));
        let schemes = openapi3_schemes.or_else(|| self.root.get("securityDefinitions"));
        let Some(scheme) = schemes.and_then(|schemes| schemes.get(name)) else { return false };
        let scheme = self.follow(scheme);
        let text = |keyword: &str| scheme.get(keyword).and_then(Value::as_str).unwrap_or_default().to_owned();
        let authorization = header(request, "authorization").unwrap_or_default();
        let key = text("name");
        match (text("type").to_ascii_lowercase().as_str(), text("scheme").to_ascii_lowercase().as_str()) {
            ("basic", _) | ("http", "basic") => authorization.starts_with("Basic "),
            ("http", "bearer") | ("oauth2" | "openidconnect", _) => authorization.starts_with("Bearer "),
            ("apikey", _) => match text("in").as_str() {
                "header" => header(request, &key.to_ascii_lowercase()).is_some(),
                "query" => percent_decode(&request.url).contains(&format!("{key}=")),
                "cookie" => {
                    header(request, "cookie").is_some_and(|cookies| cookies.contains(&format!("{key}=")))
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// The parameters of an operation and of its path item; those of the operation take precedence.
    fn parameters(&self, operation: &RawOperation<'a>) -> Vec<&'a Value> {
        let lists = [operation.operation, operation.path_item]
            .map(|owner| owner.get("parameters").and_then(Value::as_array));
        let mut all: Vec<&Value> = Vec::new();
        for parameter in lists.into_iter().flatten().flatten() {
            let parameter = self.follow(parameter);
            let is_same = |known: &&Value| {
                ["name", "in"].iter().all(|keyword| known.get(keyword) == parameter.get(keyword))
            };
            if !all.iter().any(is_same) {
                all.push(parameter);
            }
        }
        all
    }

    /// Follows `$ref`s within the document; returns any other value as it is.
    fn follow(&self, mut value: &'a Value) -> &'a Value {
        for _ in 0..REFERENCES_MAX {
            let reference = value.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
            let target = reference.and_then(|pointer| {
                self.root.pointer(pointer).or_else(|| self.root.pointer(&percent_decode(pointer)))
            });
            match target {
                Some(target) => value = target,
                None => return value,
            }
        }
        value
    }
}

fn header<'s>(request: &'s SurveyedRequest, name: &str) -> Option<&'s str> {
    request.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

fn is_json(content_type: &str) -> bool {
    let name = content_type.split(';').next().unwrap_or_default().trim();
    name == "application/json" || name.ends_with("+json")
}

/// Decodes percent-encoding; invalid UTF-8 is replaced.
fn percent_decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
