//! One function as a script sees it: what it takes, what it answers, how that is written.

use crate::model::{Field, Notes, Rest, Table, Type, Types};
use crate::outline::Names;
use crate::read::{Read, read, type_name};
use crate::settle::settle;
use ctx_core::{Schema, ToolName, ToolSpec};
use serde_json::Value;

/// The parameter that [`Form::Body`] sets apart.
const BODY: &str = "body";

/// How a function takes what its schema describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// All in one table: `(params)`, or `()` where there is nothing to give.
    Params,
    /// The parameter `body` is an argument of its own: `(body)` or `(params, body)`.
    Body,
}

/// One argument of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// `params` or `body`.
    pub name: &'static str,
    /// What it is.
    pub of: Type,
    /// Whether it must be given.
    pub required: bool,
    /// What is said of it.
    pub notes: Notes,
}

/// One function as a script sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub(crate) name: ToolName,
    pub(crate) description: String,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) parameters: Vec<Field>,
    /// What parameters may be that have no name here.
    pub(crate) rest: Rest,
    pub(crate) result: Type,
    pub(crate) result_notes: Notes,
    pub(crate) types: Types,
    /// How many schemas were too many or too deep to read.
    pub(crate) left_out: usize,
}

impl Function {
    /// A tool as a function of one table.
    pub fn of(name: &ToolName, spec: &ToolSpec) -> Self {
        Self::with_form(name, spec, Form::Params)
    }

    /// A tool as a function that takes its parameters in this form.
    pub fn with_form(name: &ToolName, spec: &ToolSpec, form: Form) -> Self {
        let own_name = pascal_case(name.tool().as_str());
        let input = read(&spec.input_schema.get(), &format!("{own_name}Params"));
        let output_schema = spec.output_schema.as_ref().map(Schema::get);
        let output = match &output_schema {
            Some(schema) => read(schema, &format!("{own_name}Result")),
            None => Read { of: Type::Any, types: Vec::new(), left_out: 0 },
        };
        let left_out = input.left_out + output.left_out;
        let (given, result, types) = settle((input.of, input.types), (output.of, output.types));
        let outline = types.outline(&given);
        let parameters = outline.as_ref().map(|table| table.fields.clone()).unwrap_or_default();
        let rest = outline.as_ref().map(|table| table.rest.clone()).unwrap_or_default();
        let notes = |schema: &Value| {
            let notes = schema.as_object().map(|fields| Notes::of(fields, None));
            Notes { description: notes.and_then(|notes| notes.description), ..Notes::default() }
        };
        Self {
            name: name.clone(),
            description: spec.description.clone(),
            arguments: arguments(given, outline, form),
            parameters,
            rest,
            result,
            result_notes: output_schema.as_deref().map(notes).unwrap_or_default(),
            types,
            left_out,
        }
    }

    /// Its full name.
    pub fn name(&self) -> &ToolName {
        &self.name
    }

    /// What it does.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// What stands between its parentheses.
    pub fn arguments(&self) -> &[Argument] {
        &self.arguments
    }

    /// Everything that can be given by name, wherever it stands.
    pub fn parameters(&self) -> &[Field] {
        &self.parameters
    }

    /// What it answers.
    pub fn result(&self) -> &Type {
        &self.result
    }

    /// The named types that it mentions, nearest first.
    pub fn types(&self) -> &Types {
        &self.types
    }

    /// Whether `()` is a call that can succeed.
    pub fn needs_nothing(&self) -> bool {
        self.arguments.iter().all(|argument| !argument.required)
    }

    /// The names of its types and of all their fields, each once, for a search to know.
    pub fn names(&self) -> Vec<&str> {
        let mut names = Names::new();
        self.parameters.iter().for_each(|parameter| names.add(&parameter.name));
        self.arguments.iter().for_each(|argument| names.add_fields(&argument.of));
        names.add_fields(&self.result);
        for named in self.types.iter() {
            names.add(&named.name);
            names.add_fields(&named.of);
        }
        names.all
    }
}

fn arguments(given: Type, outline: Option<Table>, form: Form) -> Vec<Argument> {
    let Some(mut table) = outline else {
        let required = !matches!(given, Type::Any | Type::Nil | Type::Optional(_));
        return vec![Argument { name: "params", of: given, required, notes: Notes::default() }];
    };
    let apart = match form {
        Form::Params => None,
        Form::Body => table.fields.iter().position(|field| field.name == BODY),
    };
    let body = apart.map(|place| table.fields.remove(place));
    let mut arguments = Vec::new();
    let is_empty = table.fields.is_empty() && table.left_out == 0 && !matches!(table.rest, Rest::Of(_));
    if !is_empty {
        let required = table.fields.iter().any(|field| field.required);
        let of = match given {
            Type::Optional(inner) if body.is_none() => *inner,
            given if body.is_none() => given,
            _ => Type::Table(table),
        };
        arguments.push(Argument { name: "params", of, required, notes: Notes::default() });
    }
    if let Some(Field { of, required, notes, .. }) = body {
        arguments.push(Argument { name: BODY, of, required, notes });
    }
    arguments
}

/// `create_issue` as types are called: `CreateIssue`.
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
