//! Parameters of an operation: those of the path item and its own, which override them.

use super::names::Unique;
use super::path::{Piece, Slot, Template};
use super::read::Reader;
use super::reference::Node;
use crate::operation::{Format, Parameter, Place, Style, Way};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// Maximum number of parameters of one operation.
const PARAMETERS_MAX: usize = 1_000;

/// Headers that follow from body, response and credentials, whatever a document declares.
const OWN_HEADERS: [&str; 3] = ["accept", "content-type", "authorization"];

/// The parameters of an operation, and their schemas for callers.
#[derive(Default)]
pub(super) struct Parameters {
    pub(super) list: Vec<Parameter>,
    /// The schema of each, by argument.
    pub(super) properties: Map<String, Value>,
    pub(super) frozen: BTreeMap<String, Value>,
    pub(super) arguments: Unique,
}

/// A parameter as the document declares it.
#[derive(Clone, Copy)]
pub(super) struct Said<'a> {
    pub(super) name: &'a str,
    /// The value of `in`: `path`, `query`, `body` and so on.
    pub(super) place: &'a str,
    pub(super) node: Node<'a>,
}

impl<'d> Reader<'d> {
    /// The declared parameters of an operation, each once. One whose `$ref` cannot be resolved is left out.
    pub(super) fn said(&self, item: Node<'d>, operation: Node<'d>, template: &Template) -> Vec<Said<'d>> {
        let mut said: Vec<Said<'d>> = Vec::new();
        let mut places: HashMap<(&str, &str), usize> = HashMap::new();
        for owner in [item, operation] {
            let own_from = said.len();
            for parameter in owner.get("parameters").into_iter().flat_map(Node::items) {
                let Some(one) = self.one(parameter, template) else { continue };
                match places.get(&(one.name, one.place)) {
                    // The first of a list counts, and the operation's own replaces that of the path item.
                    Some(place) if *place < own_from => {
                        if let Some(old) = said.get_mut(*place) {
                            *old = one;
                        }
                    }
                    Some(_) => {}
                    None if said.len() < PARAMETERS_MAX => {
                        places.insert((one.name, one.place), said.len());
                        said.push(one);
                    }
                    None => {}
                }
            }
        }
        said
    }

    fn one(&self, parameter: Node<'d>, template: &Template) -> Option<Said<'d>> {
        let node = self.documents.follow(parameter).ok()?;
        let name = node.text("name")?;
        let is_slot = template.slots.iter().any(|slot| slot.name == name);
        let place = node.text("in").unwrap_or(if is_slot { "path" } else { "query" });
        Some(Said { name, place, node })
    }

    /// Converts declared parameters, and adds those that only the path template has.
    pub(super) fn parameters(&mut self, said: &[Said<'d>], template: &Template) -> Parameters {
        let mut parameters = Parameters::default();
        let mut bound: Vec<&str> = Vec::new();
        for one in said {
            let slot = template.slots.iter().find(|slot| slot.name == one.name);
            let piece = template.query.iter().find(|(_, piece)| *piece == Piece::Slot(one.name.to_owned()));
            let (place, name) = match (one.place, slot, piece) {
                ("path", Some(_), _) => (Place::Path, one.name),
                ("path", None, Some((name, _))) => (Place::Query, name.as_str()),
                ("query", ..) => (Place::Query, one.name),
                ("header", ..) if !OWN_HEADERS.contains(&one.name.to_ascii_lowercase().as_str()) => {
                    (Place::Header, one.name)
                }
                ("cookie", ..) => (Place::Cookie, one.name),
                _ => continue,
            };
            bound.push(one.name);
            self.add(&mut parameters, one.node, place, name, slot);
        }
        for slot in &template.slots {
            if !said.iter().any(|one| one.place == "path" && one.name == slot.name) {
                parameters.add_plain(&slot.name, Place::Path, slot.is_reserved_allowed);
            }
        }
        for (name, piece) in &template.query {
            match piece {
                Piece::Slot(slot) if !bound.contains(&slot.as_str()) => {
                    parameters.add_plain(name, Place::Query, false);
                }
                Piece::Slot(_) => {}
                Piece::Fixed(value) => parameters.fix(name, value),
            }
        }
        parameters
    }

    fn add(&mut self, to: &mut Parameters, said: Node<'d>, place: Place, name: &str, slot: Option<&Slot>) {
        let required = place == Place::Path || said.is("required");
        let content = said.get("content").and_then(|content| content.fields().next());
        let schema = match content {
            Some((_, media)) => media.get("schema").or_else(|| said.get("schema")),
            None => said.get("schema"),
        };
        let content_type = content.map(|(content_type, _)| content_type);
        // Swagger 2.0 has the schema keywords in the parameter itself.
        let is_inline = schema.is_none();
        let source = schema.unwrap_or(said);
        let mut described = match self.schemas.convert(source, Some(Way::Request), required) {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        if !is_inline && let Some(description) = said.text("description") {
            let default = source.get("default").and_then(|default| super::schema::told(default.value));
            described.insert("description".to_owned(), description.into());
            if let Some(default) = default.filter(|_| !required) {
                super::schema::add_remark(&mut described, &format!("Default: `{default}`."));
            }
        }
        if said.is("deprecated") {
            described.insert("deprecated".to_owned(), Value::Bool(true));
        }
        let mut format = match content_type {
            Some(content_type) => Format::Content(content_type.to_owned()),
            None => format(said, place, self.is_second),
        };
        if let (Format::Style { allow_reserved, .. }, Some(slot)) = (&mut format, slot) {
            *allow_reserved |= place == Place::Path && slot.is_reserved_allowed;
        }
        let argument = to.argument(name, place);
        to.properties.insert(argument.clone(), Value::Object(described));
        to.list.push(Parameter { argument, name: name.to_owned(), place, required, format });
    }
}

impl Parameters {
    /// A unique argument name for a parameter.
    fn argument(&mut self, name: &str, place: Place) -> String {
        if !self.arguments.has(name) {
            return self.arguments.take(name);
        }
        let place = match place {
            Place::Path => "path",
            Place::Query => "query",
            Place::Header => "header",
            Place::Cookie => "cookie",
        };
        self.arguments.take(&format!("{name}_{place}"))
    }

    /// Adds a parameter that the document does not declare: a required string.
    fn add_plain(&mut self, name: &str, place: Place, allow_reserved: bool) {
        let argument = self.argument(name, place);
        self.properties.insert(argument.clone(), serde_json::json!({"type": "string"}));
        let format = Format::Style { style: usual_style(place), explode: false, allow_reserved };
        self.list.push(Parameter { argument, name: name.to_owned(), place, required: true, format });
    }

    /// Adds a query parameter with a fixed value, or freezes a declared one.
    fn fix(&mut self, name: &str, value: &str) {
        let known = self.list.iter().find(|one| one.place == Place::Query && one.name == name);
        let argument = match known {
            Some(known) => known.argument.clone(),
            None => {
                self.add_plain(name, Place::Query, false);
                self.list.last().map(|last| last.argument.clone()).unwrap_or_default()
            }
        };
        self.properties.shift_remove(&argument);
        self.frozen.insert(argument, value.into());
    }
}

fn usual_style(place: Place) -> Style {
    match place {
        Place::Path | Place::Header => Style::Simple,
        Place::Query | Place::Cookie => Style::Form,
    }
}

/// How a parameter is serialized.
fn format(said: Node<'_>, place: Place, is_second: bool) -> Format {
    if is_second {
        return second_format(said, place);
    }
    let style = said.text("style").and_then(|style| style_of(style, place)).unwrap_or(usual_style(place));
    Format::Style {
        style,
        explode: said.flag("explode").unwrap_or(style == Style::Form),
        allow_reserved: said.is("allowReserved"),
    }
}

/// A style by its name, if it is valid in this location.
pub(super) fn style_of(name: &str, place: Place) -> Option<Style> {
    match (name, place) {
        ("simple", Place::Path | Place::Header) => Some(Style::Simple),
        ("label", Place::Path) => Some(Style::Label),
        ("matrix", Place::Path) => Some(Style::Matrix),
        ("form", Place::Query | Place::Cookie) => Some(Style::Form),
        ("spaceDelimited", Place::Query) => Some(Style::SpaceDelimited),
        ("pipeDelimited", Place::Query) => Some(Style::PipeDelimited),
        ("deepObject", Place::Query) => Some(Style::DeepObject),
        _ => None,
    }
}

/// `collectionFormat` of Swagger 2.0; a parameter that is not a list is serialized as in OpenAPI 3.
pub(super) fn second_format(said: Node<'_>, place: Place) -> Format {
    let usual = usual_style(place);
    let is_list = said.text("type") == Some("array");
    let (style, explode) = match said.text("collectionFormat") {
        _ if !is_list => (usual, usual == Style::Form),
        Some("multi") => (usual, true),
        Some("ssv") => (Style::SpaceDelimited, false),
        Some("pipes") => (Style::PipeDelimited, false),
        Some("tsv") => (Style::TabDelimited, false),
        _ => (usual, false),
    };
    Format::Style { style, explode, allow_reserved: false }
}
