//! The request body of an operation: its media types, its schema, and the encoding of its fields.

use super::media::{Files, Kind, file_schema, files, is_file, kind, sendable};
use super::names::Unique;
use super::parameters::{Said, second_format, style_of};
use super::read::Reader;
use super::reference::{Node, reference_of};
use crate::operation::{Body, Format, Media, MediaKind, Part, Place, Style, Way};
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
pub(super) struct Sent {
    pub(super) body: Body,
    pub(super) schema: Value,
}

/// One media type of a body, as the document declares it.
struct Offer<'a> {
    content_type: String,
    kind: Kind,
    schema: Option<Node<'a>>,
    encoding: Option<Node<'a>>,
    files: Vec<(&'a str, Files)>,
}

/// Whether a body can be an object, and with which fields.
struct Shape {
    is_table: bool,
    /// The names of its fields, if it is an object.
    fields: Vec<String>,
}

impl Shape {
    fn anything() -> Self {
        Self { is_table: true, fields: Vec::new() }
    }
}

impl<'d> Reader<'d> {
    /// The request body of an operation, if it has one.
    pub(super) fn body(
        &mut self,
        operation: Node<'d>,
        said: &[Said<'d>],
        taken: &mut Unique,
    ) -> Option<Sent> {
        if let Some(body) = operation.get("requestBody") {
            return self.third_body(body, taken);
        }
        if let Some(body) = said.iter().find(|one| one.place == "body") {
            let kinds = self.consumes(operation);
            let schema = body.node.get("schema");
            let offers = kinds.into_iter().map(|kind| self.offer(kind, schema, None)).collect();
            let description = body.node.text("description");
            return Some(self.sent(offers, body.node.is("required"), description, taken));
        }
        let form: Vec<Said<'d>> = said.iter().filter(|one| one.place == "formData").copied().collect();
        if form.is_empty() { None } else { Some(self.second_form(operation, &form, taken)) }
    }

    fn third_body(&mut self, body: Node<'d>, taken: &mut Unique) -> Option<Sent> {
        // A body whose `$ref` cannot be resolved still takes any value.
        let followed = self.documents.follow(body).ok();
        let content = followed.and_then(|body| body.get("content"));
        let media = content.into_iter().flat_map(Node::fields).take(MEDIA_MAX);
        let offers: Vec<Offer<'d>> = media
            .map(|(content_type, media)| {
                let media = self.documents.follow(media).unwrap_or(media);
                self.offer(content_type.to_owned(), media.get("schema"), media.get("encoding"))
            })
            .collect();
        let required = followed.is_some_and(|body| body.is("required"));
        let is_nothing = offers.is_empty() && followed.is_some() && !required;
        let description = followed.and_then(|body| body.text("description"));
        (!is_nothing).then(|| self.sent(offers, required, description, taken))
    }

    /// Converts the `formData` parameters of Swagger 2.0 into one request body.
    fn second_form(&mut self, operation: Node<'d>, form: &[Said<'d>], taken: &mut Unique) -> Sent {
        let has_files = form.iter().any(|one| one.node.text("type") == Some("file"));
        let is_multipart = |name: &String| kind(name) == Kind::Multipart;
        let consumes = self.consumes(operation);
        let content_type = match consumes.iter().find(|name| has_files && is_multipart(name)) {
            Some(name) => name.clone(),
            None if has_files => "multipart/form-data".to_owned(),
            None if consumes.iter().any(|name| kind(name) == Kind::Form) => {
                sendable("application/x-www-form-urlencoded")
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
                self.schemas.schema(one.node, Way::Request)
            };
            properties.insert(one.name.to_owned(), schema);
            let is_list = one.node.text("type") == Some("array");
            let format = is_list.then(|| second_format(one.node, Place::Query));
            if is_file || format.is_some() {
                parts.insert(one.name.to_owned(), Part { content_type: None, is_file, format });
            }
            if one.node.is("required") {
                required.push(one.name.to_owned());
            }
        }
        let kind = match kind(&content_type) {
            Kind::Multipart => MediaKind::Multipart(parts),
            _ => MediaKind::Form(parts),
        };
        let fields: Vec<String> = properties.keys().cloned().collect();
        let mut schema = json!({"type": "object", "properties": properties});
        let is_required = !required.is_empty();
        if let (Value::Object(schema), true) = (&mut schema, is_required) {
            schema.insert("required".to_owned(), required.into());
        }
        let media = vec![Media { content_type, kind }];
        let shape = Shape { is_table: true, fields };
        Sent { body: body(shape, is_required, media, taken), schema }
    }

    /// The media types that an operation of Swagger 2.0 consumes.
    fn consumes(&self, operation: Node<'d>) -> Vec<String> {
        let own = operation.get("consumes").or_else(|| self.root.get("consumes"));
        let names = own.into_iter().flat_map(Node::items).filter_map(|name| name.value.as_str());
        let names: Vec<String> = names.take(MEDIA_MAX).map(str::to_owned).collect();
        if names.is_empty() { vec!["application/json".to_owned()] } else { names }
    }

    fn offer(&self, content_type: String, schema: Option<Node<'d>>, encoding: Option<Node<'d>>) -> Offer<'d> {
        let mut kind = kind(&content_type);
        let is_range = content_type.contains('*');
        if is_range && kind == Kind::Json && schema.is_some_and(|schema| is_file(self.documents, schema)) {
            kind = Kind::Binary;
        }
        // A form whose schema is a string: the caller passes it encoded.
        let is_text = |schema: Node<'d>| {
            self.documents.follow(schema).is_ok_and(|schema| schema.text("type") == Some("string"))
        };
        if kind == Kind::Form && schema.is_some_and(is_text) {
            kind = Kind::Text;
        }
        let content_type = match kind {
            Kind::Binary if is_range => "application/octet-stream".to_owned(),
            _ => sendable(&content_type),
        };
        let properties = schema.map(|schema| self.fields_of(schema)).unwrap_or_default();
        let files = properties.into_iter().filter_map(|(name, field)| {
            let encoding = encoding.and_then(|encoding| encoding.get(name));
            let content_type = encoding.and_then(|encoding| encoding.text("contentType"));
            Some((name, files(self.documents, field, content_type)?))
        });
        let files = files.collect();
        Offer { content_type, kind, schema, encoding, files }
    }

    fn sent(
        &mut self,
        mut offers: Vec<Offer<'d>>,
        required: bool,
        about: Option<&str>,
        taken: &mut Unique,
    ) -> Sent {
        if offers.is_empty() {
            offers.push(self.offer("application/json".to_owned(), None, None));
        }
        // A multipart media type with files goes first: only multipart can carry files.
        offers.sort_by_key(|offer| (offer.kind != Kind::Multipart || offer.files.is_empty(), offer.kind));
        let mut media: Vec<Media> = Vec::new();
        for offer in &offers {
            if media.iter().all(|known| known.content_type != offer.content_type) {
                media.push(Media { content_type: offer.content_type.clone(), kind: self.media_kind(offer) });
            }
        }
        let (mut schema, shape) = match offers.first() {
            Some(best) => (self.body_schema(best), self.shape(best)),
            None => (json!({}), Shape::anything()),
        };
        if let (Value::Object(schema), Some(about)) = (&mut schema, about)
            && !schema.contains_key("description")
        {
            schema.insert("description".to_owned(), about.into());
        }
        Sent { body: body(shape, required, media, taken), schema }
    }

    fn media_kind(&self, offer: &Offer<'d>) -> MediaKind {
        match offer.kind {
            Kind::Json => MediaKind::Json,
            Kind::Form => MediaKind::Form(self.parts(offer)),
            Kind::Multipart => MediaKind::Multipart(self.parts(offer)),
            Kind::Text => MediaKind::Text,
            Kind::Binary => MediaKind::Binary,
        }
    }

    /// The fields that are files, or that have an `encoding` of their own.
    fn parts(&self, offer: &Offer<'d>) -> BTreeMap<String, Part> {
        let mut parts: BTreeMap<String, Part> = BTreeMap::new();
        for (name, _) in &offer.files {
            parts.entry((*name).to_owned()).or_default().is_file = true;
        }
        for (name, encoding) in offer.encoding.into_iter().flat_map(Node::fields) {
            let part = parts.entry(name.to_owned()).or_default();
            part.content_type = encoding.text("contentType").map(str::to_owned);
            let is_styled =
                ["style", "explode", "allowReserved"].iter().any(|word| encoding.get(word).is_some());
            if is_styled {
                let style = encoding.text("style").and_then(|style| style_of(style, Place::Query));
                let style = style.unwrap_or(Style::Form);
                let explode = encoding.flag("explode").unwrap_or(style == Style::Form);
                let allow_reserved = encoding.is("allowReserved");
                part.format = Some(Format::Style { style, explode, allow_reserved });
            }
        }
        parts
    }

    /// The schema of a body with one media type.
    fn body_schema(&mut self, offer: &Offer<'d>) -> Value {
        let Some(schema) = offer.schema else {
            return match offer.kind {
                Kind::Text => json!({"type": "string"}),
                Kind::Binary => file_schema(None),
                Kind::Json => json!({}),
                Kind::Form | Kind::Multipart => json!({"type": "object"}),
            };
        };
        match offer.kind {
            Kind::Binary => return file_schema(schema.text("description")),
            Kind::Text => {
                let followed = self.documents.follow(schema).unwrap_or(schema);
                return match followed.text("type") == Some("string") {
                    true => self.schemas.schema(schema, Way::Request),
                    false => json!({"type": "string"}),
                };
            }
            Kind::Json | Kind::Form | Kind::Multipart => {}
        }
        if !offer.files.is_empty() && offer.kind == Kind::Multipart {
            let mut converted = self.in_place(schema, 0);
            for (name, files) in &offer.files {
                make_file(&mut converted, name, *files);
            }
            converted
        } else {
            self.schemas.schema(schema, Way::Request)
        }
    }

    /// A schema with its `allOf` parts inlined, so that fields in them can be changed to files. A shared
    /// definition cannot be changed: the same field is text for other media types.
    fn in_place(&mut self, schema: Node<'d>, depth: usize) -> Value {
        let followed = self.documents.follow(schema).unwrap_or(schema);
        let mut converted = self.schemas.schema(followed, Way::Request);
        if depth < DEPTH_MAX
            && let Some(Value::Array(parts)) = converted.get_mut("allOf")
        {
            let nodes = followed.get("allOf").into_iter().flat_map(Node::items);
            for (part, node) in parts.iter_mut().zip(nodes) {
                *part = self.in_place(node, depth + 1);
            }
        }
        converted
    }

    /// Whether a value of one media type can be an object, and with which fields.
    fn shape(&self, offer: &Offer<'d>) -> Shape {
        let mut shape = Shape::anything();
        match (offer.kind, offer.schema) {
            (Kind::Text, _) => shape.is_table = false,
            (Kind::Binary, _) | (_, None) => {}
            (_, Some(schema)) => {
                shape.is_table = self.can_be_table(schema, 0, &mut SCHEMAS_MAX.clone(), &mut shape.fields);
            }
        }
        shape
    }

    /// Whether a value can be an object, according to its schema and all combined schemas; adds the names of
    /// its fields.
    fn can_be_table(
        &self,
        schema: Node<'d>,
        depth: usize,
        schemas_left: &mut usize,
        names: &mut Vec<String>,
    ) -> bool {
        let Ok(schema) = self.documents.follow(schema) else { return true };
        if depth > DEPTH_MAX || *schemas_left == 0 {
            return true;
        }
        *schemas_left -= 1;
        for (name, field) in schema.get("properties").into_iter().flat_map(Node::fields) {
            let is_new = names.len() < FIELDS_MAX && !names.iter().any(|known| known == name);
            if is_new && !self.is_read_only(field) {
                names.push(name.to_owned());
            }
        }
        let is_object = |kind: &Value| kind.as_str() == Some("object");
        let is_said = match schema.value.get("type") {
            Some(Value::Array(kinds)) => kinds.iter().any(is_object),
            Some(kind) => is_object(kind),
            None => schema.get("items").is_none() || schema.get("properties").is_some(),
        };
        let mut inside = |word: &str| -> Vec<bool> {
            let parts = schema.get(word).into_iter().flat_map(Node::items);
            parts.map(|part| self.can_be_table(part, depth + 1, schemas_left, names)).collect()
        };
        let (all, any, one) = (inside("allOf"), inside("anyOf"), inside("oneOf"));
        let is_one = |parts: &[bool]| parts.is_empty() || parts.contains(&true);
        is_said && !all.contains(&false) && is_one(&any) && is_one(&one)
    }

    fn is_read_only(&self, field: Node<'d>) -> bool {
        let is_reference = field.value.as_object().and_then(reference_of).is_some();
        let target = if is_reference { self.documents.follow(field).ok() } else { None };
        field.is("readOnly") || target.is_some_and(|target| target.is("readOnly"))
    }

    /// The fields of an object that callers can set; empty if the schema has alternatives.
    fn fields_of(&self, schema: Node<'d>) -> Vec<(&'d str, Node<'d>)> {
        let mut fields = Vec::new();
        let is_plain = self.gather_fields(schema, 0, &mut fields);
        let mut known = HashSet::new();
        fields.retain(|(name, _)| known.insert(*name));
        if is_plain && fields.len() <= FIELDS_MAX { fields } else { Vec::new() }
    }

    fn gather_fields(&self, schema: Node<'d>, depth: usize, fields: &mut Vec<(&'d str, Node<'d>)>) -> bool {
        let Ok(schema) = self.documents.follow(schema) else { return false };
        let is_table = matches!(schema.text("type"), None | Some("object"));
        let has_alternatives = ["oneOf", "anyOf"].iter().any(|word| schema.get(word).is_some());
        if !is_table || has_alternatives || depth > DEPTH_MAX || fields.len() > FIELDS_MAX {
            return false;
        }
        let properties = schema.get("properties").into_iter().flat_map(Node::fields);
        fields.extend(properties.filter(|(_, field)| !self.is_read_only(*field)));
        let mut parts = schema.get("allOf").into_iter().flat_map(Node::items);
        parts.all(|part| self.gather_fields(part, depth + 1, fields))
    }
}

/// Replaces the schema of a field by that of a file or a list of files, wherever a schema declares the field.
fn make_file(schema: &mut Value, name: &str, files: Files) {
    let Value::Object(fields) = schema else { return };
    let property = fields.get_mut("properties").and_then(|properties| properties.get_mut(name));
    if let Some(property) = property {
        let description = property.get("description").and_then(Value::as_str).map(str::to_owned);
        *property = files.schema(description.as_deref());
    }
    for part in fields.get_mut("allOf").and_then(Value::as_array_mut).into_iter().flatten() {
        make_file(part, name, files);
    }
}

/// Name of the body among the arguments.
const BODY: &str = "body";
/// Its name if a parameter or one of its own fields is called `body`: fields may be passed beside parameters.
const OTHER_BODY: &str = "request_body";

fn body(shape: Shape, required: bool, media: Vec<Media>, taken: &mut Unique) -> Body {
    let Shape { is_table: has_fields, fields } = shape;
    let is_taken = taken.has(BODY) || fields.iter().any(|field| field == BODY);
    let argument = taken.take(if is_taken { OTHER_BODY } else { BODY });
    Body { argument, required, has_fields, fields, media }
}
