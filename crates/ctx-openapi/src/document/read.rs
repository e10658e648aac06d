//! Builds the operations of a description, each by itself: an invalid one does not affect the others.

use super::body::RequestBody;
use super::documents::Documents;
use super::names::{UniqueNames, operation_name};
use super::parameters::Parameters;
use super::path::parse_template;
use super::reference::{DocumentNode, shorten};
use super::schema::SchemaConverter;
use super::text::DescriptionError;
use crate::operation::{Description, Operation, SkippedOperation};
use ctx_core::ToolSpec;
use serde_json::{Map, Value};

/// Maximum number of operations of one description.
const OPERATIONS_MAX: usize = 50_000;

/// Skipped operations that are listed.
const SKIPPED_MAX: usize = 10_000;

/// Bytes of the description text of an operation.
const DESCRIPTION_BYTES_MAX: usize = 16 << 10;

/// Bytes of a title.
const TITLE_BYTES_MAX: usize = 200;

/// HTTP methods, which are the operations of a path item; its other fields apply to all of them.
const METHODS: [&str; 9] = ["get", "put", "post", "delete", "options", "head", "patch", "trace", "query"];

/// Builds operations from documents that are gathered and parsed.
pub(super) struct DescriptionReader<'d> {
    pub(super) documents: &'d Documents,
    pub(super) root: DocumentNode<'d>,
    /// Whether the description is Swagger 2.0.
    pub(super) is_swagger2: bool,
    pub(super) schemas: SchemaConverter<'d>,
    names: UniqueNames,
}

/// Builds the operations of the gathered documents.
pub(super) fn read_description(documents: &Documents) -> Result<Description, DescriptionError> {
    let root = DocumentNode { document: 0, value: documents.root() };
    let is_swagger2 = is_swagger2(root)?;
    let schemas = SchemaConverter::new(documents);
    let mut reader =
        DescriptionReader { documents, root, is_swagger2, schemas, names: UniqueNames::default() };
    let title = root.get("info").and_then(|info| info.text("title")).unwrap_or_default();
    let mut description = Description {
        title: truncate(title, TITLE_BYTES_MAX).to_owned(),
        schemes: reader.security_schemes(),
        ..Description::default()
    };
    for (path, item) in root.get("paths").into_iter().flat_map(DocumentNode::fields) {
        if !path.starts_with("x-") {
            reader.read_path_item(path, item, &mut description);
        }
    }
    description.definitions = reader.schemas.into_definitions();
    Ok(description)
}

/// Whether a description is Swagger 2.0, else OpenAPI 3; the error says why it is neither.
fn is_swagger2(root: DocumentNode<'_>) -> Result<bool, DescriptionError> {
    let invalid = |why: &str| Err(DescriptionError::NotADescription(why.to_owned()));
    if !root.value.is_object() {
        return invalid("it is not an OpenAPI description: it is not an object");
    }
    let version = |keyword: &str| match root.value.get(keyword) {
        Some(Value::String(text)) => Some(text.trim().to_owned()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    match (version("openapi"), version("swagger").or_else(|| version("swaggerVersion"))) {
        (Some(version), _) if version.starts_with('2') => Ok(true),
        (Some(_), _) => Ok(false),
        (None, Some(version)) if version.starts_with('1') => {
            invalid("it is a Swagger description of version 1; convert it to OpenAPI 3 first")
        }
        (None, Some(version)) => Ok(!version.starts_with('3')),
        (None, None) if root.get("paths").is_some_and(|paths| paths.value.is_object()) => {
            Ok(["definitions", "host", "basePath"].iter().any(|keyword| root.get(keyword).is_some()))
        }
        (None, None) => invalid("it is not an OpenAPI description: it has neither `openapi` nor `swagger`"),
    }
}

impl<'d> DescriptionReader<'d> {
    fn read_path_item(&mut self, path: &str, item: DocumentNode<'d>, description: &mut Description) {
        let mut skip = |name: String, reason: String| {
            if description.skipped.len() < SKIPPED_MAX {
                description.skipped.push(SkippedOperation { name: shorten(&name), reason });
            }
        };
        let target = match self.documents.follow(item) {
            Ok(target) => target,
            Err(why) => return skip(path.to_owned(), format!("it {why}")),
        };
        if !target.value.is_object() {
            return skip(path.to_owned(), "it is not an object".to_owned());
        }
        for (keyword, operation) in target.fields() {
            let method = keyword.to_ascii_lowercase();
            if !METHODS.contains(&method.as_str()) {
                continue;
            }
            let name = || format!("{} {path}", method.to_ascii_uppercase());
            if description.operations.len() >= OPERATIONS_MAX {
                skip(name(), format!("it exceeds the limit of {OPERATIONS_MAX} operations"));
                continue;
            }
            let followed = self.documents.follow(operation).map_err(|why| format!("it {why}"));
            let operation = followed.and_then(|operation| {
                Ok((operation, self.read_operation(&method, path, target, operation)?))
            });
            match operation {
                Ok((node, mut operation)) => {
                    operation.security = self.security_requirements(node, &mut description.schemes);
                    description.operations.push(operation);
                }
                Err(why) => skip(name(), why),
            }
        }
    }

    fn read_operation(
        &mut self,
        method: &str,
        path: &str,
        item: DocumentNode<'d>,
        operation: DocumentNode<'d>,
    ) -> Result<Operation, String> {
        if !operation.value.is_object() {
            return Err("it is not an object".to_owned());
        }
        let template = parse_template(path)?;
        let declared = self.declared_parameters(item, operation, &template);
        let mut parameters = self.parameters(&declared, &template);
        let request_body = self.request_body(operation, &declared, &mut parameters.arguments);
        let (response, output_schema) = self.response(operation);
        let name = operation_name(&mut self.names, operation.text("operationId"), method, path);
        let deprecated = operation.is("deprecated");
        let method = method.to_ascii_uppercase();
        let tags = operation.get("tags").into_iter().flat_map(DocumentNode::items);
        let tags =
            tags.filter_map(|tag| tag.value.as_str()).map(str::trim).filter(|tag| ToolSpec::is_tag(tag));
        Ok(Operation {
            name,
            servers: self.servers(item, operation),
            title: operation.text("summary").map(|title| truncate(title, TITLE_BYTES_MAX).to_owned()),
            description: description_text(operation, deprecated, &format!("{method} {}", template.path)),
            tags: tags.map(str::to_owned).take(ToolSpec::TAGS_MAX).collect(),
            deprecated,
            response,
            security: Vec::new(),
            input_schema: input_schema(&mut parameters, request_body.as_ref()).into(),
            output_schema: output_schema.map(Into::into),
            parameters: parameters.list,
            body: request_body.map(|request_body| request_body.body),
            frozen: parameters.frozen,
            path: template.path,
            method,
        })
    }
}

/// Summary and description of an operation, or `otherwise` if it has neither.
fn description_text(operation: DocumentNode<'_>, deprecated: bool, otherwise: &str) -> String {
    let text = match (operation.text("summary"), operation.text("description")) {
        (Some(summary), Some(description)) if description.starts_with(summary) => description.to_owned(),
        (Some(summary), Some(description)) => format!("{summary}\n\n{description}"),
        (Some(text), None) | (None, Some(text)) => text.to_owned(),
        (None, None) => otherwise.to_owned(),
    };
    let text = truncate(&text, DESCRIPTION_BYTES_MAX);
    if deprecated { format!("{text}\n\nDeprecated.") } else { text.to_owned() }
}

/// The beginning of a text, of at most so many bytes.
fn truncate(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or(text)
}

/// The schema of all arguments: the parameters and the body.
fn input_schema(parameters: &mut Parameters, request_body: Option<&RequestBody>) -> Value {
    let mut properties = std::mem::take(&mut parameters.properties);
    let is_visible = |argument: &String| !parameters.frozen.contains_key(argument);
    let required = parameters.list.iter().filter(|one| one.required).map(|one| &one.argument);
    let mut required: Vec<&String> = required.filter(|argument| is_visible(argument)).collect();
    if let Some(RequestBody { body, schema }) = request_body {
        required.extend(Some(&body.argument).filter(|_| body.required));
        properties.insert(body.argument.clone(), schema.clone());
    }
    let mut schema = Map::from_iter([
        ("type".to_owned(), Value::from("object")),
        ("properties".to_owned(), Value::Object(properties)),
    ]);
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into_iter().map(String::as_str).collect());
    }
    schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    Value::Object(schema)
}
