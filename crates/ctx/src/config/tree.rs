//! The content of configuration files: tables and values, each with its position in a file.

use super::{ConfigError, apis};
use ctx_core::{Redactor, Secret};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A parsed file.
pub(super) struct Layer {
    pub(super) table: Table,
}

/// A table of nodes by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(super) entries: BTreeMap<String, Node>,
    /// The position of its header, if it has one.
    pub(super) origin: Option<Origin>,
}

/// A table or a value.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Table(Table),
    Leaf(Leaf),
}

impl Node {
    /// The node as JSON.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Table(table) => table.to_json(),
            Self::Leaf(leaf) => leaf.value.clone(),
        }
    }
}

/// A value with its position.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) value: Value,
    pub(super) origin: Origin,
    /// The names of environment variables that were expanded in it.
    pub(super) variables: Vec<String>,
}

/// The position of a value: file and line, or the command line option that set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) file: String,
    /// From 1; 0 if there is no line, as for defaults and command line options.
    pub(super) line: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 { f.write_str(&self.file) } else { write!(f, "{}:{}", self.file, self.line) }
    }
}

impl Layer {
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        let lines = Lines::new(name, text);
        let root = DeTable::parse(text).map_err(|error| {
            let at = lines.origin(error.span().map_or(0, |span| span.start));
            ConfigError::one(format!("{at}: {}", error.message().trim()))
        })?;
        Ok(Self { table: table(root.get_ref(), &lines, None)? })
    }
}

impl Table {
    /// Merges `over` over this table; values in `over` win.
    pub(super) fn merge(&mut self, over: Table) {
        self.origin = over.origin.or(self.origin.take());
        for (key, node) in over.entries {
            match (self.entries.get_mut(&key), node) {
                (Some(Node::Table(below)), Node::Table(over)) => below.merge(over),
                (_, node) => {
                    self.entries.insert(key, node);
                }
            }
        }
    }

    /// The table as JSON.
    pub(super) fn to_json(&self) -> Value {
        Value::Object(self.entries.iter().map(|(key, node)| (key.clone(), node.to_json())).collect())
    }

    /// Replaces or removes the node at this path; creates missing tables on the way.
    pub(super) fn put(&mut self, path: &[&str], node: Option<Node>) {
        let Some((first, rest)) = path.split_first() else { return };
        if !rest.is_empty() {
            let entry = self.entries.entry((*first).to_owned());
            if let Node::Table(table) = entry.or_insert_with(|| Node::Table(Table::default())) {
                table.put(rest, node);
            }
            return;
        }
        match node {
            Some(node) => self.entries.insert((*first).to_owned(), node),
            None => self.entries.remove(*first),
        };
    }

    /// The position of the value at this path, or of the nearest table above it.
    pub(super) fn origin_of(&self, path: &[String]) -> Option<&Origin> {
        let (first, rest) = path.split_first()?;
        match self.entries.get(first) {
            Some(Node::Table(table)) => table.origin_of(rest).or(table.origin.as_ref()),
            Some(Node::Leaf(leaf)) => Some(&leaf.origin),
            None => self.origin.as_ref(),
        }
    }

    /// The node at this path.
    pub(super) fn at(&self, path: &[&str]) -> Option<&Node> {
        let (first, rest) = path.split_first()?;
        match self.entries.get(*first)? {
            Node::Table(table) if !rest.is_empty() => table.at(rest),
            node => rest.is_empty().then_some(node),
        }
    }

    /// The node at this path, mutable.
    pub(super) fn at_mut(&mut self, path: &[&str]) -> Option<&mut Node> {
        let (first, rest) = path.split_first()?;
        let node = self.entries.get_mut(*first)?;
        if rest.is_empty() {
            return Some(node);
        }
        match node {
            Node::Table(table) => table.at_mut(rest),
            Node::Leaf(_) => None,
        }
    }

    /// Whether there is a table at this path.
    pub(super) fn has_table(&self, path: &[&str]) -> bool {
        let Some((first, rest)) = path.split_first() else { return true };
        matches!(self.entries.get(*first), Some(Node::Table(table)) if table.has_table(rest))
    }

    /// Every value with its path.
    pub(super) fn leaves(&self) -> Vec<(Vec<String>, &Leaf)> {
        let mut found = Vec::new();
        for (key, node) in &self.entries {
            match node {
                Node::Leaf(leaf) => found.push((vec![key.clone()], leaf)),
                Node::Table(table) => found.extend(table.leaves().into_iter().map(|(mut path, leaf)| {
                    path.insert(0, key.clone());
                    (path, leaf)
                })),
            }
        }
        found
    }

    /// Whether the value at this path is secret.
    pub(super) fn is_secret(&self, path: &[String], leaf: &Leaf) -> bool {
        path.last().is_some_and(|key| Redactor::is_secret_key(key)) || apis::is_secret(self, path, leaf)
    }

    pub(super) fn secrets(&self) -> Vec<Secret> {
        let mut secrets = Vec::new();
        for (path, leaf) in self.leaves() {
            let texts = texts(&leaf.value);
            match self.is_secret(&path, leaf) {
                // Servers may repeat the token of an `Authorization` header without its scheme.
                true => secrets.extend(texts.into_iter().flat_map(|text| [Some(text), token(text)])),
                false => secrets.extend(texts.into_iter().map(login)),
            }
        }
        secrets.into_iter().flatten().map(Secret::new).collect()
    }
}

/// Every string in a value.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

/// The token of an `Authorization` header: the part after the scheme, as in `Bearer …`.
fn token(text: &str) -> Option<&str> {
    let (scheme, token) = text.split_once(' ')?;
    ["basic", "bearer", "token"].contains(&scheme.to_ascii_lowercase().as_str()).then(|| token.trim())
}

/// The password of an HTTP URL, or its user name if there is no password: it may be a token.
fn login(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
    let login = rest.split(['/', '?', '#']).next()?.rsplit_once('@')?.0;
    Some(login.split_once(':').map_or(login, |(_, password)| password))
}

/// Converts byte offsets to line numbers.
struct Lines<'a> {
    file: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(file: &'a str, text: &str) -> Self {
        let starts = text.match_indices('\n').map(|(index, _)| index + 1).collect();
        Self { file, starts }
    }

    fn origin(&self, offset: usize) -> Origin {
        let line = self.starts.partition_point(|start| *start <= offset) + 1;
        Origin { file: self.file.to_owned(), line: if self.file == "default" { 0 } else { line } }
    }
}

fn table(source: &DeTable<'_>, lines: &Lines<'_>, origin: Option<Origin>) -> Result<Table, ConfigError> {
    let mut entries = BTreeMap::new();
    for (key, value) in source.iter() {
        let origin = lines.origin(key.span().start);
        let node = match value.get_ref() {
            DeValue::Table(inner) => Node::Table(table(inner, lines, Some(origin))?),
            _ => Node::Leaf(Leaf { value: json(value, lines)?, origin, variables: Vec::new() }),
        };
        entries.insert(key.get_ref().to_string(), node);
    }
    Ok(Table { entries, origin })
}

fn json(value: &Spanned<DeValue<'_>>, lines: &Lines<'_>) -> Result<Value, ConfigError> {
    let out_of_range =
        || ConfigError::one(format!("{}: the number is out of range", lines.origin(value.span().start)));
    Ok(match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(yes) => Value::Bool(*yes),
        DeValue::Integer(integer) => {
            i64::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| out_of_range())?.into()
        }
        DeValue::Float(float) => {
            let number: f64 = float.as_str().parse().map_err(|_| out_of_range())?;
            serde_json::Number::from_f64(number).map(Value::Number).ok_or_else(out_of_range)?
        }
        DeValue::Datetime(time) => Value::String(time.to_string()),
        DeValue::Array(items) => {
            Value::Array(items.iter().map(|item| json(item, lines)).collect::<Result<_, _>>()?)
        }
        DeValue::Table(inner) => table(inner, lines, None)?.to_json(),
    })
}
