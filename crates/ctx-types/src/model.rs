//! What a type is: the shapes that JSON Schema and Luau have in common.

use std::collections::HashMap;

/// Fields kept of one table.
pub(crate) const FIELDS_MAX: usize = 256;

/// A Luau type, with what Luau cannot say but a check can use.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Nothing is known, or nothing is demanded.
    Any,
    /// No value fits.
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
    /// One value only.
    Exactly(Constant),
    /// A list whose items are all of one type.
    List(Box<Type>),
    /// A list of fixed order, and the type of what follows; Luau writes it as a list of either.
    Tuple(Vec<Type>, Box<Type>),
    /// A table with named fields.
    Table(Table),
    /// One of [`Types`].
    Named(String),
    /// Any of them.
    Union(Vec<Type>),
    /// All of them at once.
    Intersection(Vec<Type>),
    /// It, or `nil`.
    Optional(Box<Type>),
}

/// A single value that a schema names.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// A string.
    Text(String),
    /// A number; Luau has no type for one and writes `number`.
    Number(f64),
    /// A boolean.
    Boolean(bool),
}

/// A table with named fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Its fields, as the schema orders them.
    pub fields: Vec<Field>,
    /// What other fields may be.
    pub rest: Rest,
    /// How many fields were too many to keep.
    pub left_out: usize,
}

/// What fields may be that a table does not name.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Rest {
    /// There are none.
    Closed,
    /// The schema does not say: they are let through, and are most often a mistake.
    #[default]
    Unsaid,
    /// They are of this type.
    Of(Box<Type>),
}

/// One field of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name, which need not be an identifier.
    pub name: String,
    /// What it is.
    pub of: Type,
    /// Whether it must be given; never where there is a default.
    pub required: bool,
    /// What is said of it besides.
    pub notes: Notes,
}

/// What a schema says of a value besides its type; each text is one line of bounded length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notes {
    /// What it is for.
    pub description: Option<String>,
    /// What it is when it is left out, as JSON.
    pub default: Option<String>,
    /// Whether it should no longer be used.
    pub deprecated: bool,
    /// What Luau's types cannot say: formats, numbers to choose from, the order of a tuple.
    pub remarks: Vec<String>,
}

/// A type with a name of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedType {
    /// Its name: an identifier, and no other type's.
    pub name: String,
    /// What it is.
    pub of: Type,
    /// What is said of it.
    pub notes: Notes,
}

/// The named types that a function reaches, nearest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Types {
    all: Vec<NamedType>,
    places: HashMap<String, usize>,
}

impl Types {
    pub(crate) fn new(all: Vec<NamedType>) -> Self {
        let places = all.iter().enumerate().map(|(place, named)| (named.name.clone(), place)).collect();
        Self { all, places }
    }

    /// The type of this name.
    pub fn get(&self, name: &str) -> Option<&NamedType> {
        self.places.get(name).and_then(|place| self.all.get(*place))
    }

    /// All of them, nearest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &NamedType> {
        self.all.iter()
    }

    /// What a type is once its name is looked up.
    pub fn resolve<'a>(&'a self, of: &'a Type) -> &'a Type {
        let mut resolved = of;
        // A chain cannot be longer than there are types.
        for _ in 0..=self.all.len() {
            let Type::Named(name) = resolved else { return resolved };
            let Some(named) = self.get(name) else { return &Type::Any };
            resolved = &named.of;
        }
        &Type::Any
    }
}
