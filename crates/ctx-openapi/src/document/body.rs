//! The request body of an operation: its media types, its schema, and the encoding of its fields.

use super::media::{FileField, MediaKind, file_field, file_schema, is_file, media_kind, sendable_type};
use super::names::UniqueNames;
use super::parameters::{DeclaredParameter, parse_style, swagger2_format};
use super::read::DescriptionReader;
use super::reference::{DocumentNode, reference_of};
use crate::operation::{
    Body, BodyEncoding, Direction, Format, MediaType, ParameterLocation, ParameterStyle, PartEncoding,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashSet};

/// Maximum number of media types of one body.
const MEDIA_MAX: usize = 32;

/// Fields of a body that are examined.
const FIELDS_MAX: usize = 256;

/// Nesting depth of combined schemas that are searched for fields.
const DEPTH_MAX: usize = 8;

/// Schemas that are examined to find out whether a body can be an object.
const SCHEMAS_MAX: usize = 1_000;

/// The request body of an operation, and its schema.
pub(super) struct RequestBody {
    pub(super) body: Body,
    pub(super) schema: Value,
}

/// One media type of a body, as the document declares it.
struct MediaDeclaration<'a> {
    content_type: String,
    kind: MediaKind,
    schema: Option<DocumentNode<'a>>,
    encoding: Option<DocumentNode<'a>>,
    files: Vec<(&'a str, FileField)>,
}

/// Whether a body can be an object, and with which fields.
struct BodyShape {
    can_be_object: bool,
    /// The names of its fields, if it is an object.
    fields: Vec<String>,
}

impl BodyShape {
    fn anything() -> Self {
        Self { can_be_object: true, fields: Vec::new() }
    }
}

impl<'d> DescriptionReader<'d> {
    /// The request body of an operation, if it has one.
    pub(super) fn request_body(
        &mut self,
        operation: DocumentNode<'d>,
        declared: &[DeclaredParameter<'d>],
        taken: &mut UniqueNames,
    ) -> Option<RequestBody> {
        if let Some(body) = operation.get("requestBody") {
            return self.openapi3_body(body, taken);
        }
        if let Some(body) = declared.iter().find(|one| one.location == "body") {
            let media_types = self.consumes(operation);
            let schema = body.node.get("schema");
            let declarations =
                media_types.into_iter().map(|name| self.declare_media(name, schema, None)).collect();
            let description = body.node.text("description");
            return Some(self.build_body(declarations, body.node.is("required"), description, taken));
        }
        let form: Vec<DeclaredParameter<'d>> =
            declared.iter().filter(|one| one.location == "formData").copied().collect();
        if form.is_empty() { None } else { Some(self.swagger2_form(operation, &form, taken)) }
    }

    fn openapi3_body(&mut self, body: DocumentNode<'d>, taken: &mut UniqueNames) -> Option<RequestBody> {
        // A body whose `$ref` cannot be resolved still takes any value.
        let followed = self.documents.follow(body).ok();
        let content = followed.and_then(|body| body.get("content"));
        let media = content.into_iter().flat_map(DocumentNode::fields).take(MEDIA_MAX);
        let declarations: Vec<MediaDeclaration<'d>> = media
            .map(|(content_type, media)| {
                let media = self.documents.follow(media).unwrap_or(media);
                self.declare_media(content_type.to_owned(), media.get("schema"), media.get("encoding"))
            })
            .collect();
        let required = followed.is_some_and(|body| body.is("required"));
        let is_absent = declarations.is_empty() && followed.is_some() && !required;
        let description = followed.and_then(|body| body.text("description"));
        (!is_absent).then(|| self.build_body(declarations, required, description, taken))
    }

    /// Converts the `formData` parameters of Swagger 2.0 into one request body.
    fn swagger2_form(
        &mut self,
        operation: DocumentNode<'d>,
        form: &[DeclaredParameter<'d>],
        taken: &mut UniqueNames,
    ) -> RequestBody {
        let has_files = form.iter().any(|one| one.node.text("type") == Some("file"));
        let is_multipart = |name: &String| media_kind(name) == MediaKind::Multipart;
        let consumes = self.consumes(operation);
        let content_type = match consumes.iter().find(|name| has_files && is_multipart(name)) {
            Some(name) => name.clone(),
            None if has_files => "multipart/form-data".to_owned(),
            None if consumes.iter().any(|name| media_kind(name) == MediaKind::Form) => {
                sendable_type("application/x-www-form-urlencoded")
            }
            None => consumes
                .into_iter()
                .find(is_multipart)
                .unwrap_or_else(|| "application/x-www-form-urlencoded".to_owned()),
        };
        let mut properties = Map::new();
        let mut parts = BTreeMap::new();
        let mut required = Vec::new();
        for one in form {
            let is_file = one.node.text("type") == Some("file");
            let schema = if is_file {
                file_schema(one.node.text("description"))
            } else {
                self.schemas.convert_for(one.node, Direction::Request)
            };
            properties.insert(one.name.to_owned(), schema);
            let is_list = one.node.text("type") == Some("array");
            let format = is_list.then(|| swagger2_format(one.node, ParameterLocation::Query));
            if is_file || format.is_some() {
                parts.insert(one.name.to_owned(), PartEncoding { content_type: None, is_file, format });
            }
            if one.node.is("required") {
                required.push(one.name.to_owned());
            }
        }
        let encoding = match media_kind(&content_type) {
            MediaKind::Multipart => BodyEncoding::Multipart(parts),
            _ => BodyEncoding::Form(parts),
        };
        let fields: Vec<String> = properties.keys().cloned().collect();
        let mut schema = json!({"type": "object", "properties": properties});
        let is_required = !required.is_empty();
        if let (Value::Object(schema), true) = (&mut schema, is_required) {
            schema.insert("required".to_owned(), required.into());
        }
        let media = vec![MediaType { content_type, encoding }];
        let shape = BodyShape { can_be_object: true, fields };
        RequestBody { body: named_body(shape, is_required, media, taken), schema }
    }

    /// The media types that an operation of Swagger 2.0 consumes.
    fn consumes(&self, operation: DocumentNode<'d>) -> Vec<String> {
        let own = operation.get("consumes").or_else(|| self.root.get("consumes"));
        let names = own.into_iter().flat_map(DocumentNode::items).filter_map(|name| name.value.as_str());
        let names: Vec<String> = names.take(MEDIA_MAX).map(str::to_owned).collect();
        if names.is_empty() { vec!["application/json".to_owned()] } else { names }
    }

    fn declare_media(
        &self,
        content_type: String,
        schema: Option<DocumentNode<'d>>,
        encoding: Option<DocumentNode<'d>>,
    ) -> MediaDeclaration<'d> {
        let mut kind = media_kind(&content_type);
        let is_range = content_type.contains('*');
        if is_range && kind == MediaKind::Json && schema.is_some_and(|schema| is_file(self.documents, schema))
        {
            kind = MediaKind::Binary;
        }
        // A form whose schema is a string: the caller passes it encoded.
        let is_text = |schema: DocumentNode<'d>| {
            self.documents.follow(schema).is_ok_and(|schema| schema.text("type") == Some("string"))
        };
        if kind == MediaKind::Form && schema.is_some_and(is_text) {
            kind = MediaKind::Text;
        }
        let content_type = match kind {
            MediaKind::Binary if is_range => "application/octet-stream".to_owned(),
            _ => sendable_type(&content_type),
        };
        let properties = schema.map(|schema| self.fields_of(schema)).unwrap_or_default();
        let files = properties.into_iter().filter_map(|(name, field)| {
            let encoding = encoding.and_then(|encoding| encoding.get(name));
            let content_type = encoding.and_then(|encoding| encoding.text("contentType"));
            Some((name, file_field(self.documents, field, content_type)?))
        });
        let files = files.collect();
        MediaDeclaration { content_type, kind, schema, encoding, files }
    }

    fn build_body(
        &mut self,
        mut declarations: Vec<MediaDeclaration<'d>>,
        required: bool,
        description: Option<&str>,
        taken: &mut UniqueNames,
    ) -> RequestBody {
        if declarations.is_empty() {
            declarations.push(self.declare_media("application/json".to_owned(), None, None));
        }
        // A multipart media type with files goes first: only multipart can carry files.
        declarations.sort_by_key(|declaration| {
            (declaration.kind != MediaKind::Multipart || declaration.files.is_empty(), declaration.kind)
        });
        let mut media: Vec<MediaType> = Vec::new();
        for declaration in &declarations {
            if media.iter().all(|known| known.content_type != declaration.content_type) {
                media.push(MediaType {
                    content_type: declaration.content_type.clone(),
                    encoding: self.body_encoding(declaration),
                });
            }
        }
        let (mut schema, shape) = match declarations.first() {
            Some(best) => (self.body_schema(best), self.body_shape(best)),
            None => (json!({}), BodyShape::anything()),
        };
        if let (Value::Object(schema), Some(description)) = (&mut schema, description)
            && !schema.contains_key("description")
        {
            schema.insert("description".to_owned(), description.into());
        }
        RequestBody { body: named_body(shape, required, media, taken), schema }
    }

    fn body_encoding(&self, declaration: &MediaDeclaration<'d>) -> BodyEncoding {
        match declaration.kind {
            MediaKind::Json => BodyEncoding::Json,
            MediaKind::Form => BodyEncoding::Form(self.parts(declaration)),
            MediaKind::Multipart => BodyEncoding::Multipart(self.parts(declaration)),
            MediaKind::Text => BodyEncoding::Text,
            MediaKind::Binary => BodyEncoding::Binary,
        }
    }

    /// The fields that are files, or that have an `encoding` of their own.
    fn parts(&self, declaration: &MediaDeclaration<'d>) -> BTreeMap<String, PartEncoding> {
        let mut parts: BTreeMap<String, PartEncoding> = BTreeMap::new();
        for (name, _) in &declaration.files {
            parts.entry((*name).to_owned()).or_default().is_file = true;
        }
        for (name, encoding) in declaration.encoding.into_iter().flat_map(DocumentNode::fields) {
            let part = parts.entry(name.to_owned()).or_default();
            part.content_type = encoding.text("contentType").map(str::to_owned);
            let is_styled =
                ["style", "explode", "allowReserved"].iter().any(|keyword| encoding.get(keyword).is_some());
            if is_styled {
                let style =
                    encoding.text("style").and_then(|style| parse_style(style, ParameterLocation::Query));
                let style = style.unwrap_or(ParameterStyle::Form);
                let explode = encoding.flag("explode").unwrap_or(style == ParameterStyle::Form);
                let allow_reserved = encoding.is("allowReserved");
                part.format = Some(Format::Style { style, explode, allow_reserved });
            }
        }
        parts
    }

    /// The schema of a body with one media type.
    fn body_schema(&mut self, declaration: &MediaDeclaration<'d>) -> Value {
        let Some(schema) = declaration.schema else {
            return match declaration.kind {
                MediaKind::Text => json!({"type": "string"}),
                MediaKind::Binary => file_schema(None),
                MediaKind::Json => json!({}),
                MediaKind::Form | MediaKind::Multipart => json!({"type": "object"}),
            };
        };
        match declaration.kind {
            MediaKind::Binary => return file_schema(schema.text("description")),
            MediaKind::Text => {
                let followed = self.documents.follow(schema).unwrap_or(schema);
                return match followed.text("type") == Some("string") {
                    true => self.schemas.convert_for(schema, Direction::Request),
                    false => json!({"type": "string"}),
                };
            }
            MediaKind::Json | MediaKind::Form | MediaKind::Multipart => {}
        }
        if !declaration.files.is_empty() && declaration.kind == MediaKind::Multipart {
            let mut converted = self.inline_all_of(schema, 0);
            for (name, file_field) in &declaration.files {
                set_file_schema(&mut converted, name, *file_field);
            }
            converted
        } else {
            self.schemas.convert_for(schema, Direction::Request)
        }
    }

    /// A schema with its `allOf` parts inlined, so that fields in them can be changed to files. A shared
    /// definition cannot be changed: the same field is text for other media types.
    fn inline_all_of(&mut self, schema: DocumentNode<'d>, depth: usize) -> Value {
        let followed = self.documents.follow(schema).unwrap_or(schema);
        let mut converted = self.schemas.convert_for(followed, Direction::Request);
        if depth < DEPTH_MAX
            && let Some(Value::Array(parts)) = converted.get_mut("allOf")
        {
            let nodes = followed.get("allOf").into_iter().flat_map(DocumentNode::items);
            for (part, node) in parts.iter_mut().zip(nodes) {
                *part = self.inline_all_of(node, depth + 1);
            }
        }
        converted
    }

    /// Whether a value of one media type can be an object, and with which fields.
    fn body_shape(&self, declaration: &MediaDeclaration<'d>) -> BodyShape {
        let mut shape = BodyShape::anything();
        match (declaration.kind, declaration.schema) {
            (MediaKind::Text, _) => shape.can_be_object = false,
            (MediaKind::Binary, _) | (_, None) => {}
            (_, Some(schema)) => {
                shape.can_be_object =
                    self.can_be_object(schema, 0, &mut SCHEMAS_MAX.clone(), &mut shape.fields);
            }
        }
        shape
    }

    /// Whether a value can be an object, according to its schema and all combined schemas; adds the names of
    /// its fields.
    fn can_be_object(
        &self,
        schema: DocumentNode<'d>,
        depth: usize,
        schemas_left: &mut usize,
        names: &mut Vec<String>,
    ) -> bool {
        let Ok(schema) = self.documents.follow(schema) else { return true };
        if depth > DEPTH_MAX || *schemas_left == 0 {
            return true;
        }
        *schemas_left -= 1;
        for (name, field) in schema.get("properties").into_iter().flat_map(DocumentNode::fields) {
            let is_new = names.len() < FIELDS_MAX && !names.iter().any(|known| known == name);
            if is_new && !self.is_read_only(field) {
                names.push(name.to_owned());
            }
        }
        let is_object = |kind: &Value| kind.as_str() == Some("object");
        let type_allows_object = match schema.value.get("type") {
            Some(Value::Array(kinds)) => kinds.iter().any(is_object),
            Some(kind) => is_object(kind),
            None => schema.get("items").is_none() || schema.get("properties").is_some(),
        };
        let mut inside = |keyword: &str| -> Vec<bool> {
            let parts = schema.get(keyword).into_iter().flat_map(DocumentNode::items);
            parts.map(|part| self.can_be_object(part, depth + 1, schemas_left, names)).collect()
        };
        let (all, any, one) = (inside("allOf"), inside("anyOf"), inside("oneOf"));
        let any_allows = |parts: &[bool]| parts.is_empty() || parts.contains(&true);
        type_allows_object && !all.contains(&false) && any_allows(&any) && any_allows(&one)
    }

    fn is_read_only(&self, field: DocumentNode<'d>) -> bool {
        let is_reference = field.value.as_object().and_then(reference_of).is_some();
        let target = if is_reference { self.documents.follow(field).ok() } else { None };
        field.is("readOnly") || target.is_some_and(|target| target.is("readOnly"))
    }

    /// The fields of an object that callers can set; empty if the schema has alternatives.
    fn fields_of(&self, schema: DocumentNode<'d>) -> Vec<(&'d str, DocumentNode<'d>)> {
        let mut fields = Vec::new();
        let is_plain = self.collect_fields(schema, 0, &mut fields);
        let mut known = HashSet::new();
        fields.retain(|(name, _)| known.insert(*name));
        if is_plain && fields.len() <= FIELDS_MAX { fields } else { Vec::new() }
    }

    fn collect_fields(
        &self,
        schema: DocumentNode<'d>,
        depth: usize,
        fields: &mut Vec<(&'d str, DocumentNode<'d>)>,
    ) -> bool {
        let Ok(schema) = self.documents.follow(schema) else { return false };
        let can_be_object = matches!(schema.text("type"), None | Some("object"));
        let has_alternatives = ["oneOf", "anyOf"].iter().any(|keyword| schema.get(keyword).is_some());
        if !can_be_object || has_alternatives || depth > DEPTH_MAX || fields.len() > FIELDS_MAX {
            return false;
        }
        let properties = schema.get("properties").into_iter().flat_map(DocumentNode::fields);
        fields.extend(properties.filter(|(_, field)| !self.is_read_only(*field)));
        let mut parts = schema.get("allOf").into_iter().flat_map(DocumentNode::items);
        parts.all(|part| self.collect_fields(part, depth + 1, fields))
    }
}

/// Replaces the schema of a field by that of a file or a list of files, wherever a schema declares the field.
fn set_file_schema(schema: &mut Value, name: &str, file_field: FileField) {
    let Value::Object(fields) = schema else { return };
    let property = fields.get_mut("properties").and_then(|properties| properties.get_mut(name));
    if let Some(property) = property {
        let description = property.get("description").and_then(Value::as_str).map(str::to_owned);
        *property = file_field.schema(description.as_deref());
    }
    for part in fields.get_mut("allOf").and_then(Value::as_array_mut).into_iter().flatten() {
        set_file_schema(part, name, file_field);
    }
}

/// Name of the body among the arguments.
const BODY: &str = "body";
/// Its name if a parameter or one of its own fields is called `body`: fields may be passed beside parameters.
const ALTERNATIVE_BODY: &str = "request_body";

fn named_body(shape: BodyShape, required: bool, media: Vec<MediaType>, taken: &mut UniqueNames) -> Body {
    let BodyShape { can_be_object: has_fields, fields } = shape;
    let is_taken = taken.contains(BODY) || fields.iter().any(|field| field == BODY);
    let argument = taken.take(if is_taken { ALTERNATIVE_BODY } else { BODY });
    Body { argument, required, has_fields, fields, media }
}
