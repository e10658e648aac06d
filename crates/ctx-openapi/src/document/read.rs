//! Builds the operations of a description, each by itself: an invalid one does not affect the others.

use super::body::Sent;
use super::names::{Unique, operation_name};
use super::parameters::Parameters;
use super::path::template;
use super::reference::{Node, shortened};
use super::schema::Schemas;
use super::sources::Documents;
use super::text::Unreadable;
use crate::operation::{Description, Operation, Skipped};
use ctx_core::ToolSpec;
use serde_json::{Map, Value};

/// Maximum number of operations of one description.
const OPERATIONS_MAX: usize = 50_000;

/// Skipped operations that are listed.
const SKIPPED_MAX: usize = 10_000;

/// Bytes of the description text of an operation.
const WORDS_MAX: usize = 16 << 10;

/// Bytes of a title.
const TITLE_MAX: usize = 200;

/// HTTP methods, which are the operations of a path item; its other fields apply to all of them.
const METHODS: [&str; 9] = ["get", "put", "post", "delete", "options", "head", "patch", "trace", "query"];

/// Builds operations from documents that are gathered and parsed.
pub(super) struct Reader<'d> {
    pub(super) documents: &'d Documents,
    pub(super) root: Node<'d>,
    /// Whether the description is Swagger 2.0.
    pub(super) is_second: bool,
    pub(super) schemas: Schemas<'d>,
    names: Unique,
}

/// Builds the operations of the gathered documents.
pub(super) fn read(documents: &Documents) -> Result<Description, Unreadable> {
    let root = Node { document: 0, value: documents.root() };
    let is_second = is_second(root)?;
    let schemas = Schemas::new(documents);
    let mut reader = Reader { documents, root, is_second, schemas, names: Unique::default() };
    let title = root.get("info").and_then(|info| info.text("title")).unwrap_or_default();
    let mut description = Description {
        title: cut(title, TITLE_MAX).to_owned(),
        schemes: reader.schemes(),
        ..Description::default()
    };
    for (path, item) in root.get("paths").into_iter().flat_map(Node::fields) {
        if !path.starts_with("x-") {
            reader.path(path, item, &mut description);
        }
    }
    description.definitions = reader.schemas.into_definitions();
    Ok(description)
}

/// Whether a description is Swagger 2.0, else OpenAPI 3; the error says why it is neither.
fn is_second(root: Node<'_>) -> Result<bool, Unreadable> {
    let neither = |why: &str| Err(Unreadable::NotADescription(why.to_owned()));
    if !root.value.is_object() {
        return neither("it is not an OpenAPI description: it is not an object");
    }
    let version = |word: &str| match root.value.get(word) {
        Some(Value::String(text)) => Some(text.trim().to_owned()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    match (version("openapi"), version("swagger").or_else(|| version("swaggerVersion"))) {
        (Some(version), _) if version.starts_with('2') => Ok(true),
        (Some(_), _) => Ok(false),
        (None, Some(version)) if version.starts_with('1') => {
            neither("it is a Swagger description of version 1; convert it to OpenAPI 3 first")
        }
        (None, Some(version)) => Ok(!version.starts_with('3')),
        (None, None) if root.get("paths").is_some_and(|paths| paths.value.is_object()) => {
            Ok(["definitions", "host", "basePath"].iter().any(|word| root.get(word).is_some()))
        }
        (None, None) => neither("it is not an OpenAPI description: it has neither `openapi` nor `swagger`"),
    }
}

impl<'d> Reader<'d> {
    fn path(&mut self, path: &str, item: Node<'d>, description: &mut Description) {
        let mut skip = |what: String, why: String| {
            if description.skipped.len() < SKIPPED_MAX {
                description.skipped.push(Skipped { what: shortened(&what), why });
            }
        };
        let target = match self.documents.follow(item) {
            Ok(target) => target,
            Err(why) => return skip(path.to_owned(), format!("it {why}")),
        };
        if !target.value.is_object() {
            return skip(path.to_owned(), "it is not an object".to_owned());
        }
        for (word, operation) in target.fields() {
            let method = word.to_ascii_lowercase();
            if !METHODS.contains(&method.as_str()) {
                continue;
            }
            let what = || format!("{} {path}", method.to_ascii_uppercase());
            if description.operations.len() >= OPERATIONS_MAX {
                skip(what(), format!("it is one operation more than {OPERATIONS_MAX}"));
                continue;
            }
            let followed = self.documents.follow(operation).map_err(|why| format!("it {why}"));
            let read = followed
                .and_then(|operation| Ok((operation, self.operation(&method, path, target, operation)?)));
            match read {
                Ok((operation, mut read)) => {
                    read.security = self.security(operation, &mut description.schemes);
                    description.operations.push(read);
                }
                Err(why) => skip(what(), why),
            }
        }
    }

    fn operation(
        &mut self,
        method: &str,
        path: &str,
        item: Node<'d>,
        operation: Node<'d>,
    ) -> Result<Operation, String> {
        if !operation.value.is_object() {
            return Err("it is not an object".to_owned());
        }
        let template = template(path)?;
        let said = self.said(item, operation, &template);
        let mut parameters = self.parameters(&said, &template);
        let sent = self.body(operation, &said, &mut parameters.arguments);
        let (answer, output_schema) = self.answer(operation);
        let name = operation_name(&mut self.names, operation.text("operationId"), method, path);
        let deprecated = operation.is("deprecated");
        let method = method.to_ascii_uppercase();
        let tags = operation.get("tags").into_iter().flat_map(Node::items);
        let tags =
            tags.filter_map(|tag| tag.value.as_str()).map(str::trim).filter(|tag| ToolSpec::is_tag(tag));
        Ok(Operation {
            name,
            servers: self.servers(item, operation),
            title: operation.text("summary").map(|title| cut(title, TITLE_MAX).to_owned()),
            description: words(operation, deprecated, &format!("{method} {}", template.path)),
            tags: tags.map(str::to_owned).take(ToolSpec::TAGS_MAX).collect(),
            deprecated,
            answer,
            security: Vec::new(),
            input_schema: input_schema(&mut parameters, sent.as_ref()).into(),
            output_schema: output_schema.map(Into::into),
            parameters: parameters.list,
            body: sent.map(|sent| sent.body),
            frozen: parameters.frozen,
            path: template.path,
            method,
        })
    }
}

/// Summary and description of an operation, or `otherwise` if it has neither.
fn words(operation: Node<'_>, deprecated: bool, otherwise: &str) -> String {
    let said = match (operation.text("summary"), operation.text("description")) {
        (Some(summary), Some(description)) if description.starts_with(summary) => description.to_owned(),
        (Some(summary), Some(description)) => format!("{summary}\n\n{description}"),
        (Some(words), None) | (None, Some(words)) => words.to_owned(),
        (None, None) => otherwise.to_owned(),
    };
    let said = cut(&said, WORDS_MAX);
    if deprecated { format!("{said}\n\nDeprecated.") } else { said.to_owned() }
}

/// The beginning of a text, of at most so many bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or(text)
}

/// The schema of all arguments: the parameters and the body.
fn input_schema(parameters: &mut Parameters, sent: Option<&Sent>) -> Value {
    let mut properties = std::mem::take(&mut parameters.properties);
    let is_needed = |argument: &String| !parameters.frozen.contains_key(argument);
    let required = parameters.list.iter().filter(|one| one.required).map(|one| &one.argument);
    let mut required: Vec<&String> = required.filter(|argument| is_needed(argument)).collect();
    if let Some(Sent { body, schema }) = sent {
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
