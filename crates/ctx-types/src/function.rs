//! A function as a script sees it: its arguments and its result, with Luau types.

use crate::merge::merge_types;
use crate::model::{AdditionalFields, Field, Notes, Table, Type, Types};
use crate::outline::FieldNames;
use crate::schema_reader::{NAMED_TYPES_MAX, SchemaTypes, read_schema, type_name};
use ctx_core::{BodyArgument, Identifier, Schema, ToolName, ToolSpec};
use serde_json::Value;

/// Maximum number of named types that [`Function::with_nearest_types`] reads, for the arguments and for the result.
const NEAREST_TYPES_MAX: usize = 16;

/// One argument of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// `params`, or the name of the body.
    pub name: String,
    /// Its type.
    pub luau_type: Type,
    /// Whether it is required.
    pub required: bool,
    /// Its description and other notes.
    pub notes: Notes,
    /// Whether it is the request body, and not the table of all other parameters.
    pub is_body: bool,
}

/// A tool as a script sees it: a function with Luau types.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub(crate) name: ToolName,
    pub(crate) description: String,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) parameters: Vec<Field>,
    /// The table of the parameters without the body, if they are known.
    pub(crate) params: Option<Table>,
    pub(crate) body: Option<BodyArgument>,
    pub(crate) result: Type,
    pub(crate) result_notes: Notes,
    pub(crate) types: Types,
    /// Number of schemas that were omitted, because they are too many or too deep.
    pub(crate) left_out: usize,
}

impl Function {
    /// Reads a tool as a function of one table, or of a table and a body.
    pub fn of(name: &ToolName, spec: &ToolSpec) -> Self {
        Self::read_with(name, spec, spec.output_schema.as_ref(), NAMED_TYPES_MAX)
    }

    /// Like [`Function::of`], but with only the nearest named types; all others are `any`. For listings of all
    /// functions, and for the check of literals, which are never deep.
    pub fn with_nearest_types(name: &ToolName, spec: &ToolSpec) -> Self {
        Self::read_with(name, spec, spec.output_schema.as_ref(), NEAREST_TYPES_MAX)
    }

    /// Like [`Function::with_nearest_types`], but with a result of any type: often most of a function's types are those
    /// of its result.
    pub fn with_nearest_parameters(name: &ToolName, spec: &ToolSpec) -> Self {
        Self::read_with(name, spec, None, NEAREST_TYPES_MAX)
    }

    fn read_with(name: &ToolName, spec: &ToolSpec, output_schema: Option<&Schema>, named_max: usize) -> Self {
        let own_name = pascal_case(name.tool().as_str());
        // The reader limits itself, but a generated schema must be limited when it is generated.
        let definitions_max = if named_max < NAMED_TYPES_MAX { named_max } else { usize::MAX };
        let input = spec.input_schema.with_definitions_max(definitions_max);
        let input = read_schema(&input, &format!("{own_name}Params"), named_max);
        let output_schema = output_schema.map(|schema| schema.with_definitions_max(definitions_max));
        let output = match &output_schema {
            Some(schema) => read_schema(schema, &format!("{own_name}Result"), named_max),
            None => SchemaTypes { of: Type::Any, types: Vec::new(), left_out: 0 },
        };
        let left_out = input.left_out + output.left_out;
        let (input_type, result, types) = merge_types((input.of, input.types), (output.of, output.types));
        let mut params = types.outline(&input_type);
        let is_body = |field: &Field| spec.body.as_ref().is_some_and(|body| field.name == body.name);
        let body_field = params.as_mut().and_then(|table| {
            let place = table.fields.iter().position(is_body)?;
            Some(table.fields.remove(place))
        });
        let notes = |schema: &Value| {
            let notes = schema.as_object().map(|fields| Notes::of(fields, None)).unwrap_or_default();
            Notes { description: notes.description, remarks: notes.remarks, ..Notes::default() }
        };
        Self {
            name: name.clone(),
            description: spec.description.clone(),
            parameters: parameters(&types, params.as_ref(), body_field.as_ref(), spec.body.as_ref()),
            arguments: arguments(input_type, params.as_ref(), body_field),
            params,
            body: spec.body.clone(),
            result,
            result_notes: output_schema.as_deref().map(notes).unwrap_or_default(),
            types,
            left_out,
        }
    }

    /// Full name.
    pub fn name(&self) -> &ToolName {
        &self.name
    }

    /// Description.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Its positional arguments.
    pub fn arguments(&self) -> &[Argument] {
        &self.arguments
    }

    /// Everything that can be passed by name in one table, with the fields of a body instead of the body if it has any.
    pub fn parameters(&self) -> &[Field] {
        &self.parameters
    }

    /// Type of the result.
    pub fn result(&self) -> &Type {
        &self.result
    }

    /// The named types that it refers to, nearest first.
    pub fn types(&self) -> &Types {
        &self.types
    }

    /// Whether it can be called without arguments.
    pub fn has_no_required_arguments(&self) -> bool {
        self.arguments.iter().all(|argument| !argument.required)
    }

    /// The names of its parameters, its types and their fields, without duplicates, for a search index.
    pub fn names(&self) -> Vec<&str> {
        let mut names = FieldNames::new();
        self.parameters.iter().for_each(|parameter| names.add(&parameter.name));
        self.arguments.iter().for_each(|argument| names.add_fields(&argument.luau_type));
        names.add_fields(&self.result);
        for named in self.types.iter() {
            names.add(&named.name);
            names.add_fields(&named.luau_type);
        }
        names.all
    }
}

fn arguments(input_type: Type, params: Option<&Table>, body: Option<Field>) -> Vec<Argument> {
    let argument = |of, required| Argument {
        name: "params".to_owned(),
        luau_type: of,
        required,
        notes: Notes::default(),
        is_body: false,
    };
    let Some(table) = params else {
        let required = !matches!(input_type, Type::Any | Type::Nil | Type::Optional(_));
        return vec![argument(input_type, required)];
    };
    let mut arguments = Vec::new();
    let is_empty =
        table.fields.is_empty() && table.left_out == 0 && !matches!(table.rest, AdditionalFields::Of(_));
    if !is_empty {
        let of = match input_type {
            Type::Optional(inner) if body.is_none() => *inner,
            input_type if body.is_none() => input_type,
            _ => Type::Table(table.clone()),
        };
        arguments.push(argument(of, table.fields.iter().any(|field| field.required)));
    }
    arguments.extend(body.map(|Field { name, luau_type: of, required, notes }| Argument {
        name: Identifier::sanitize(&name).to_string(),
        luau_type: of,
        required,
        notes,
        is_body: true,
    }));
    arguments
}

/// The parameters by name, with the fields of the body instead of the body if it has any.
fn parameters(
    types: &Types,
    params: Option<&Table>,
    body: Option<&Field>,
    spec: Option<&BodyArgument>,
) -> Vec<Field> {
    let mut parameters = params.map(|table| table.fields.clone()).unwrap_or_default();
    let Some(body) = body else { return parameters };
    let has_fields = spec.is_some_and(|spec| spec.has_fields);
    let inside = if has_fields { types.outline(&body.luau_type) } else { None };
    let inside = inside.map(|table| table.fields).unwrap_or_default();
    if inside.is_empty() {
        parameters.push(body.clone());
        return parameters;
    }
    for mut field in inside {
        // The name of a parameter is never taken for a field of the body.
        if !parameters.iter().any(|known| known.name == field.name) {
            field.required &= body.required;
            parameters.push(field);
        }
    }
    parameters
}

/// A type name from a function name: `create_issue` becomes `CreateIssue`.
fn pascal_case(name: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
            .unwrap_or_default()
    };
    type_name(&name.split('_').map(capital).collect::<String>())
}
