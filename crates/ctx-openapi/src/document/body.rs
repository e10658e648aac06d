//! What an operation sends: which kinds of content, and what it is made of.

use super::media::{Files, Kind, file_schema, files, is_file, kind, sendable};
use super::names::Unique;
use super::parameters::{Said, second_format, style_of};
use super::read::Reader;
use super::reference::{Node, reference_of};
use crate::operation::{Body, Format, Media, MediaKind, Part, Place, Style, Way};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashSet};

/// Kinds of content of one body.
const MEDIA_MAX: usize = 32;

/// Fields of a body that may be given beside the parameters.
const FIELDS_MAX: usize = 256;

/// How deep `allOf` is looked into for them.
const DEPTH_MAX: usize = 8;

/// What an operation sends, and the schema of it.
pub(super) struct Sent {
    pub(super) body: Body,
    pub(super) schema: Value,
    /// Fields that must be there; where there are none, neither need the body.
    pub(super) required_fields: Vec<String>,
}

/// One kind of content as the document has it.
struct Offer<'a> {
    content_type: String,
    kind: Kind,
    schema: Option<Node<'a>>,
    encoding: Option<Node<'a>>,
    files: Vec<(&'a str, Files)>,
}

impl<'d> Reader<'d> {
    /// The body of an operation, if it has one.
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
        // One that cannot be found can still be given as anything.
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

    /// Fields of a form as the second version has them, as one body of the third.
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
        if let (Value::Object(schema), false) = (&mut schema, required.is_empty()) {
            schema.insert("required".to_owned(), required.clone().into());
        }
        let fields = beside(fields, taken);
        let argument = argument(taken);
        let media = vec![Media { content_type, kind }];
        let body = Body { argument, required: !required.is_empty(), fields, media };
        Sent { body, schema, required_fields: required }
    }

    /// The kinds of content that an operation of the second version takes.
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
        // A form that is one text is written by whoever gives it.
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
        let properties = schema.map(|schema| self.fields_of(schema).0).unwrap_or_default();
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
        // Files go only into parts.
        offers.sort_by_key(|offer| (offer.kind != Kind::Multipart || offer.files.is_empty(), offer.kind));
        let mut media: Vec<Media> = Vec::new();
        for offer in &offers {
            if media.iter().all(|known| known.content_type != offer.content_type) {
                media.push(Media { content_type: offer.content_type.clone(), kind: self.media_kind(offer) });
            }
        }
        let (mut schema, fields, mut required_fields) = match offers.first() {
            Some(best) => self.body_schema(best),
            None => (json!({}), Vec::new(), Vec::new()),
        };
        if let (Value::Object(schema), Some(about)) = (&mut schema, about)
            && !schema.contains_key("description")
        {
            schema.insert("description".to_owned(), about.into());
        }
        let fields = beside(fields, taken);
        required_fields.retain(|name| fields.contains(name));
        let argument = argument(taken);
        Sent { body: Body { argument, required, fields, media }, schema, required_fields }
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

    /// The fields that are files, or of which the document says how they are written.
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

    /// The schema of the best kind, the fields it has, and those that must be there.
    fn body_schema(&mut self, offer: &Offer<'d>) -> (Value, Vec<String>, Vec<String>) {
        let Some(schema) = offer.schema else {
            let schema = match offer.kind {
                Kind::Text => json!({"type": "string"}),
                Kind::Binary => file_schema(None),
                Kind::Json => json!({}),
                Kind::Form | Kind::Multipart => json!({"type": "object"}),
            };
            return (schema, Vec::new(), Vec::new());
        };
        match offer.kind {
            Kind::Binary => return (file_schema(schema.text("description")), Vec::new(), Vec::new()),
            Kind::Text => {
                let followed = self.documents.follow(schema).unwrap_or(schema);
                let is_text = followed.text("type") == Some("string");
                let schema = if is_text {
                    self.schemas.schema(schema, Way::Request)
                } else {
                    json!({"type": "string"})
                };
                return (schema, Vec::new(), Vec::new());
            }
            Kind::Json | Kind::Form | Kind::Multipart => {}
        }
        let (properties, required) = self.fields_of(schema);
        let converted = if !offer.files.is_empty() && offer.kind == Kind::Multipart {
            let mut converted = self.in_place(schema, 0);
            for (name, files) in &offer.files {
                make_file(&mut converted, name, *files);
            }
            converted
        } else {
            self.schemas.schema(schema, Way::Request)
        };
        let fields = properties.iter().map(|(name, _)| (*name).to_owned()).collect();
        (converted, fields, required.into_iter().map(str::to_owned).collect())
    }

    /// A schema with all that it is put together from in place. What the document names is a text there, and may
    /// be a file here.
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

    /// The fields of an object that can be given, and the names of those that must be; none where there are
    /// alternatives.
    fn fields_of(&self, schema: Node<'d>) -> (Vec<(&'d str, Node<'d>)>, Vec<&'d str>) {
        let mut fields = Vec::new();
        let mut required = Vec::new();
        let is_plain = self.gather_fields(schema, 0, &mut fields, &mut required);
        let mut known = HashSet::new();
        fields.retain(|(name, _)| known.insert(*name));
        let mut needed = HashSet::new();
        required.retain(|name| known.contains(name) && needed.insert(*name));
        if is_plain && fields.len() <= FIELDS_MAX { (fields, required) } else { (Vec::new(), Vec::new()) }
    }

    fn gather_fields(
        &self,
        schema: Node<'d>,
        depth: usize,
        fields: &mut Vec<(&'d str, Node<'d>)>,
        required: &mut Vec<&'d str>,
    ) -> bool {
        let Ok(schema) = self.documents.follow(schema) else { return false };
        let is_table = matches!(schema.text("type"), None | Some("object"));
        let has_alternatives = ["oneOf", "anyOf"].iter().any(|word| schema.get(word).is_some());
        if !is_table || has_alternatives || depth > DEPTH_MAX || fields.len() > FIELDS_MAX {
            return false;
        }
        let properties = schema.get("properties").into_iter().flat_map(Node::fields);
        fields.extend(properties.filter(|(_, field)| {
            let is_reference = field.value.as_object().and_then(reference_of).is_some();
            let target = if is_reference { self.documents.follow(*field).ok() } else { None };
            !field.is("readOnly") && !target.is_some_and(|target| target.is("readOnly"))
        }));
        required.extend(
            schema.get("required").into_iter().flat_map(Node::items).filter_map(|name| name.value.as_str()),
        );
        let mut parts = schema.get("allOf").into_iter().flat_map(Node::items);
        parts.all(|part| self.gather_fields(part, depth + 1, fields, required))
    }
}

/// Makes a field a file, or a list of files, where a schema has it.
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

/// The fields, unless one is called like an argument, or like the body itself.
fn beside(fields: Vec<String>, taken: &Unique) -> Vec<String> {
    let is_clash = |name: &String| taken.has(name) || name == BODY || name == OTHER_BODY;
    if fields.iter().any(is_clash) { Vec::new() } else { fields }
}

/// What the body is called among the arguments.
const BODY: &str = "body";
/// What it is called where a parameter is `body`.
const OTHER_BODY: &str = "request_body";

fn argument(taken: &mut Unique) -> String {
    let name = if taken.has(BODY) { OTHER_BODY } else { BODY };
    taken.take(name)
}
