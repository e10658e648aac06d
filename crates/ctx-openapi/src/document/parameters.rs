//! Parameters of an operation: those of the path item and its own, which override them.

use super::names::UniqueNames;
use super::path::{PathTemplate, Placeholder, QueryValue};
use super::read::DescriptionReader;
use super::reference::DocumentNode;
use crate::operation::{Direction, Format, Parameter, ParameterLocation, ParameterStyle};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// Maximum number of parameters of one operation.
const PARAMETERS_MAX: usize = 1_000;

/// Headers that follow from body, response and credentials, whatever a document declares.
const RESERVED_HEADERS: [&str; 3] = ["accept", "content-type", "authorization"];

/// The parameters of an operation, and their schemas for callers.
#[derive(Default)]
pub(super) struct Parameters {
    pub(super) list: Vec<Parameter>,
    /// The schema of each, by argument.
    pub(super) properties: Map<String, Value>,
    pub(super) frozen: BTreeMap<String, Value>,
    pub(super) arguments: UniqueNames,
}

/// A parameter as the document declares it.
#[derive(Clone, Copy)]
pub(super) struct DeclaredParameter<'a> {
    pub(super) name: &'a str,
    /// The value of `in`: `path`, `query`, `body` and so on.
    pub(super) location: &'a str,
    pub(super) node: DocumentNode<'a>,
}

impl<'d> DescriptionReader<'d> {
    /// The declared parameters of an operation, each once. One whose `$ref` cannot be resolved is left out.
    pub(super) fn declared_parameters(
        &self,
        item: DocumentNode<'d>,
        operation: DocumentNode<'d>,
        template: &PathTemplate,
    ) -> Vec<DeclaredParameter<'d>> {
        let mut declared: Vec<DeclaredParameter<'d>> = Vec::new();
        let mut indices: HashMap<(&str, &str), usize> = HashMap::new();
        for owner in [item, operation] {
            let own_from = declared.len();
            for parameter in owner.get("parameters").into_iter().flat_map(DocumentNode::items) {
                let Some(one) = self.declared_parameter(parameter, template) else { continue };
                match indices.get(&(one.name, one.location)) {
                    // The first of a list counts, and the operation's own replaces that of the path item.
                    Some(index) if *index < own_from => {
                        if let Some(old) = declared.get_mut(*index) {
                            *old = one;
                        }
                    }
                    Some(_) => {}
                    None if declared.len() < PARAMETERS_MAX => {
                        indices.insert((one.name, one.location), declared.len());
                        declared.push(one);
                    }
                    None => {}
                }
            }
        }
        declared
    }

    fn declared_parameter(
        &self,
        parameter: DocumentNode<'d>,
        template: &PathTemplate,
    ) -> Option<DeclaredParameter<'d>> {
        let node = self.documents.follow(parameter).ok()?;
        let name = node.text("name")?;
        let is_placeholder = template.placeholders.iter().any(|placeholder| placeholder.name == name);
        let location = node.text("in").unwrap_or(if is_placeholder { "path" } else { "query" });
        Some(DeclaredParameter { name, location, node })
    }

    /// Converts declared parameters, and adds those that only the path template has.
    pub(super) fn parameters(
        &mut self,
        declared: &[DeclaredParameter<'d>],
        template: &PathTemplate,
    ) -> Parameters {
        let mut parameters = Parameters::default();
        let mut used_names: Vec<&str> = Vec::new();
        for one in declared {
            let placeholder = template.placeholders.iter().find(|placeholder| placeholder.name == one.name);
            let query_value = template
                .query
                .iter()
                .find(|(_, query_value)| *query_value == QueryValue::Placeholder(one.name.to_owned()));
            let (location, name) = match (one.location, placeholder, query_value) {
                ("path", Some(_), _) => (ParameterLocation::Path, one.name),
                ("path", None, Some((name, _))) => (ParameterLocation::Query, name.as_str()),
                ("query", ..) => (ParameterLocation::Query, one.name),
                ("header", ..) if !RESERVED_HEADERS.contains(&one.name.to_ascii_lowercase().as_str()) => {
                    (ParameterLocation::Header, one.name)
                }
                ("cookie", ..) => (ParameterLocation::Cookie, one.name),
                _ => continue,
            };
            used_names.push(one.name);
            self.add(&mut parameters, one.node, location, name, placeholder);
        }
        for placeholder in &template.placeholders {
            if !declared.iter().any(|one| one.location == "path" && one.name == placeholder.name) {
                parameters.add_undeclared(
                    &placeholder.name,
                    ParameterLocation::Path,
                    placeholder.is_reserved_allowed,
                );
            }
        }
        for (name, query_value) in &template.query {
            match query_value {
                QueryValue::Placeholder(placeholder) if !used_names.contains(&placeholder.as_str()) => {
                    parameters.add_undeclared(name, ParameterLocation::Query, false);
                }
                QueryValue::Placeholder(_) => {}
                QueryValue::Fixed(value) => parameters.freeze_query(name, value),
            }
        }
        parameters
    }

    fn add(
        &mut self,
        to: &mut Parameters,
        declared: DocumentNode<'d>,
        location: ParameterLocation,
        name: &str,
        placeholder: Option<&Placeholder>,
    ) {
        let required = location == ParameterLocation::Path || declared.is("required");
        let content = declared.get("content").and_then(|content| content.fields().next());
        let schema = match content {
            Some((_, media)) => media.get("schema").or_else(|| declared.get("schema")),
            None => declared.get("schema"),
        };
        let content_type = content.map(|(content_type, _)| content_type);
        // Swagger 2.0 has the schema keywords in the parameter itself.
        let is_inline = schema.is_none();
        let source = schema.unwrap_or(declared);
        let mut converted = match self.schemas.convert(source, Some(Direction::Request), required) {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        if !is_inline && let Some(description) = declared.text("description") {
            let default =
                source.get("default").and_then(|default| super::schema::default_text(default.value));
            converted.insert("description".to_owned(), description.into());
            if let Some(default) = default.filter(|_| !required) {
                super::schema::add_remark(&mut converted, &format!("Default: `{default}`."));
            }
        }
        if declared.is("deprecated") {
            converted.insert("deprecated".to_owned(), Value::Bool(true));
        }
        let mut format = match content_type {
            Some(content_type) => Format::Content(content_type.to_owned()),
            None => parameter_format(declared, location, self.is_swagger2),
        };
        if let (Format::Style { allow_reserved, .. }, Some(placeholder)) = (&mut format, placeholder) {
            *allow_reserved |= location == ParameterLocation::Path && placeholder.is_reserved_allowed;
        }
        let argument = to.argument(name, location);
        to.properties.insert(argument.clone(), Value::Object(converted));
        to.list.push(Parameter { argument, name: name.to_owned(), location, required, format });
    }
}

impl Parameters {
    /// A unique argument name for a parameter.
    fn argument(&mut self, name: &str, location: ParameterLocation) -> String {
        if !self.arguments.contains(name) {
            return self.arguments.take(name);
        }
        let location = match location {
            ParameterLocation::Path => "path",
            ParameterLocation::Query => "query",
            ParameterLocation::Header => "header",
            ParameterLocation::Cookie => "cookie",
        };
        self.arguments.take(&format!("{name}_{location}"))
    }

    /// Adds a parameter that the document does not declare: a required string.
    fn add_undeclared(&mut self, name: &str, location: ParameterLocation, allow_reserved: bool) {
        let argument = self.argument(name, location);
        self.properties.insert(argument.clone(), serde_json::json!({"type": "string"}));
        let format = Format::Style { style: default_style(location), explode: false, allow_reserved };
        self.list.push(Parameter { argument, name: name.to_owned(), location, required: true, format });
    }

    /// Adds a query parameter with a fixed value, or freezes a declared one.
    fn freeze_query(&mut self, name: &str, value: &str) {
        let known = self.list.iter().find(|one| one.location == ParameterLocation::Query && one.name == name);
        let argument = match known {
            Some(known) => known.argument.clone(),
            None => {
                self.add_undeclared(name, ParameterLocation::Query, false);
                self.list.last().map(|last| last.argument.clone()).unwrap_or_default()
            }
        };
        self.properties.shift_remove(&argument);
        self.frozen.insert(argument, value.into());
    }
}

fn default_style(location: ParameterLocation) -> ParameterStyle {
    match location {
        ParameterLocation::Path | ParameterLocation::Header => ParameterStyle::Simple,
        ParameterLocation::Query | ParameterLocation::Cookie => ParameterStyle::Form,
    }
}

/// How a parameter is serialized.
fn parameter_format(declared: DocumentNode<'_>, location: ParameterLocation, is_swagger2: bool) -> Format {
    if is_swagger2 {
        return swagger2_format(declared, location);
    }
    let style = declared
        .text("style")
        .and_then(|style| parse_style(style, location))
        .unwrap_or(default_style(location));
    Format::Style {
        style,
        explode: declared.flag("explode").unwrap_or(style == ParameterStyle::Form),
        allow_reserved: declared.is("allowReserved"),
    }
}

/// A style by its name, if it is valid in this location.
pub(super) fn parse_style(name: &str, location: ParameterLocation) -> Option<ParameterStyle> {
    match (name, location) {
        ("simple", ParameterLocation::Path | ParameterLocation::Header) => Some(ParameterStyle::Simple),
        ("label", ParameterLocation::Path) => Some(ParameterStyle::Label),
        ("matrix", ParameterLocation::Path) => Some(ParameterStyle::Matrix),
        ("form", ParameterLocation::Query | ParameterLocation::Cookie) => Some(ParameterStyle::Form),
        ("spaceDelimited", ParameterLocation::Query) => Some(ParameterStyle::SpaceDelimited),
        ("pipeDelimited", ParameterLocation::Query) => Some(ParameterStyle::PipeDelimited),
        ("deepObject", ParameterLocation::Query) => Some(ParameterStyle::DeepObject),
        _ => None,
    }
}

/// `collectionFormat` of Swagger 2.0; a parameter that is not a list is serialized as in OpenAPI 3.
pub(super) fn swagger2_format(declared: DocumentNode<'_>, location: ParameterLocation) -> Format {
    let default = default_style(location);
    let is_list = declared.text("type") == Some("array");
    let (style, explode) = match declared.text("collectionFormat") {
        _ if !is_list => (default, default == ParameterStyle::Form),
        Some("multi") => (default, true),
        Some("ssv") => (ParameterStyle::SpaceDelimited, false),
        Some("pipes") => (ParameterStyle::PipeDelimited, false),
        Some("tsv") => (ParameterStyle::TabDelimited, false),
        _ => (default, false),
    };
    Format::Style { style, explode, allow_reserved: false }
}
