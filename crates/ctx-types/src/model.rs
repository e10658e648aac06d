//! The type model: what the types of JSON Schema and of Luau have in common.

use std::collections::HashMap;

/// Maximum number of fields of one table.
pub(crate) const FIELDS_MAX: usize = 256;

/// A Luau type, with details that Luau cannot express but a check can use.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Any value: nothing is known, or nothing is required.
    Any,
    /// No value.
    Never,
    /// Only `nil`.
    Nil,
    /// `true` or `false`.
    Boolean,
    /// Any number.
    Number,
    /// A whole number; Luau writes it `number`.
    Integer,
    /// Any string.
    String,
    /// A single value.
    Exactly(Constant),
    /// A list whose items are all of one type.
    List(Box<Type>),
    /// A list with types by position, and the type of further items; Luau writes it as a list of their union.
    Tuple(Vec<Type>, Box<Type>),
    /// A table with named fields.
    Table(Table),
    /// A reference to a type in [`Types`].
    Named(String),
    /// Any of these types.
    Union(Vec<Type>),
    /// All of these types at once.
    Intersection(Vec<Type>),
    /// This type or `nil`.
    Optional(Box<Type>),
}

/// A constant of a schema.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// A string.
    Text(String),
    /// A number; Luau has no type for a single number and writes `number`.
    Number(f64),
    /// A boolean.
    Boolean(bool),
}

/// A table with named fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Its fields, in the order of the schema.
    pub fields: Vec<Field>,
    /// The fields that `fields` does not name.
    pub rest: AdditionalFields,
    /// Number of fields that were omitted.
    pub left_out: usize,
}

/// The fields that a table does not name (`additionalProperties`).
#[derive(Clone, Debug, Default, PartialEq)]
pub enum AdditionalFields {
    /// There are no other fields.
    Forbidden,
    /// The schema does not say. Other fields are accepted, but most often they are mistakes.
    #[default]
    Unspecified,
    /// They have this type.
    Of(Box<Type>),
}

/// One field of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name, which need not be an identifier.
    pub name: String,
    /// Its type.
    pub luau_type: Type,
    /// Whether it is required; never if it has a default.
    pub required: bool,
    /// Other information about it.
    pub notes: Notes,
}

/// Information of a schema besides the type; each text is one line of bounded length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notes {
    /// Description.
    pub description: Option<String>,
    /// Default value, as JSON.
    pub default: Option<String>,
    /// Whether it is deprecated.
    pub deprecated: bool,
    /// Details that Luau types cannot express: formats, numbers to choose from, the order of a tuple.
    pub remarks: Vec<String>,
}

/// A type with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedType {
    /// Its name: a unique identifier.
    pub name: String,
    /// The type.
    pub luau_type: Type,
    /// Other information about it.
    pub notes: Notes,
}

/// The named types that a function refers to, nearest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Types {
    all: Vec<NamedType>,
    indexes: HashMap<String, usize>,
}

impl Types {
    pub(crate) fn new(all: Vec<NamedType>) -> Self {
        let indexes = all.iter().enumerate().map(|(index, named)| (named.name.clone(), index)).collect();
        Self { all, indexes }
    }

    /// The type with this name.
    pub fn get(&self, name: &str) -> Option<&NamedType> {
        self.indexes.get(name).and_then(|index| self.all.get(*index))
    }

    /// All types, nearest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &NamedType> {
        self.all.iter()
    }

    /// The type behind a name, and behind a chain of names; `any` if there is none.
    pub fn resolve<'a>(&'a self, of: &'a Type) -> &'a Type {
        let mut resolved = of;
        // A chain cannot be longer than there are types.
        for _ in 0..=self.all.len() {
            let Type::Named(name) = resolved else { return resolved };
            let Some(named) = self.get(name) else { return &Type::Any };
            resolved = &named.luau_type;
        }
        &Type::Any
    }
}
