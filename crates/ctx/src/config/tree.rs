//! The content of configuration files: tables and values, each with its position in a file.

use super::{ConfigError, apis};
use ctx_core::{Redactor, Secret};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A parsed file.
pub(super) struct ConfigLayer {
    pub(super) table: ConfigTable,
}

/// A table of nodes by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigTable {
    pub(super) entries: BTreeMap<String, ConfigNode>,
    /// The position of its header, if it has one.
    pub(super) origin: Option<SettingOrigin>,
}

/// A table or a value.
#[derive(Clone, Debug)]
pub(super) enum ConfigNode {
    Table(ConfigTable),
    Leaf(ConfigLeaf),
}

impl ConfigNode {
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
pub(super) struct ConfigLeaf {
    pub(super) value: Value,
    pub(super) origin: SettingOrigin,
    /// The names of environment variables that were expanded in it.
    pub(super) variables: Vec<String>,
}

/// The position of a value: file and line, or the command line option that set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SettingOrigin {
    pub(super) file: String,
    /// From 1; 0 if there is no line, as for defaults and command line options.
    pub(super) line: usize,
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 { f.write_str(&self.file) } else { write!(f, "{}:{}", self.file, self.line) }
    }
}

impl ConfigLayer {
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        let lines = LineIndex::new(name, text);
        let root = DeTable::parse(text).map_err(|error| {
            let at = lines.origin(error.span().map_or(0, |span| span.start));
            ConfigError::one(format!("{at}: {}", error.message().trim()))
        })?;
        Ok(Self { table: table(root.get_ref(), &lines, None)? })
    }
}

impl ConfigTable {
    /// Merges `over` over this table; values in `over` win.
    pub(super) fn merge(&mut self, over: ConfigTable) {
        self.origin = over.origin.or(self.origin.take());
        for (key, node) in over.entries {
            match (self.entries.get_mut(&key), node) {
                (Some(ConfigNode::Table(below)), ConfigNode::Table(over)) => below.merge(over),
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
    pub(super) fn set(&mut self, path: &[&str], node: Option<ConfigNode>) {
        let Some((first, rest)) = path.split_first() else { return };
        if !rest.is_empty() {
            let entry = self.entries.entry((*first).to_owned());
            if let ConfigNode::Table(table) =
                entry.or_insert_with(|| ConfigNode::Table(ConfigTable::default()))
            {
                table.set(rest, node);
            }
            return;
        }
        match node {
            Some(node) => self.entries.insert((*first).to_owned(), node),
            None => self.entries.remove(*first),
        };
    }

    /// The position of the value at this path, or of the nearest table above it.
    pub(super) fn origin_of(&self, path: &[String]) -> Option<&SettingOrigin> {
        let (first, rest) = path.split_first()?;
        match self.entries.get(first) {
            Some(ConfigNode::Table(table)) => table.origin_of(rest).or(table.origin.as_ref()),
            Some(ConfigNode::Leaf(leaf)) => Some(&leaf.origin),
            None => self.origin.as_ref(),
        }
    }

    /// The node at this path.
    pub(super) fn at(&self, path: &[&str]) -> Option<&ConfigNode> {
        let (first, rest) = path.split_first()?;
        match self.entries.get(*first)? {
            ConfigNode::Table(table) if !rest.is_empty() => table.at(rest),
            node => rest.is_empty().then_some(node),
        }
    }

    /// The node at this path, mutable.
    pub(super) fn at_mut(&mut self, path: &[&str]) -> Option<&mut ConfigNode> {
        let (first, rest) = path.split_first()?;
        let node = self.entries.get_mut(*first)?;
        if rest.is_empty() {
            return Some(node);
        }
        match node {
            ConfigNode::Table(table) => table.at_mut(rest),
            ConfigNode::Leaf(_) => None,
        }
    }

    /// Whether there is a table at this path.
    pub(super) fn has_table(&self, path: &[&str]) -> bool {
        let Some((first, rest)) = path.split_first() else { return true };
        matches!(self.entries.get(*first), Some(ConfigNode::Table(table)) if table.has_table(rest))
    }

    /// Every value with its path.
    pub(super) fn leaves(&self) -> Vec<(Vec<String>, &ConfigLeaf)> {
        let mut found = Vec::new();
        for (key, node) in &self.entries {
            match node {
                ConfigNode::Leaf(leaf) => found.push((vec![key.clone()], leaf)),
                ConfigNode::Table(table) => {
                    found.extend(table.leaves().into_iter().map(|(mut path, leaf)| {
                        path.insert(0, key.clone());
                        (path, leaf)
                    }))
                }
            }
        }
        found
    }

    /// Whether the value at this path is secret.
    pub(super) fn is_secret(&self, path: &[String], leaf: &ConfigLeaf) -> bool {
        path.last().is_some_and(|key| Redactor::is_secret_key(key)) || apis::is_secret(self, path, leaf)
    }

    pub(super) fn secrets(&self) -> Vec<Secret> {
        let mut secrets = Vec::new();
        for (path, leaf) in self.leaves() {
            let strings = strings(&leaf.value);
            match self.is_secret(&path, leaf) {
                // Servers may repeat the token of an `Authorization` header without its scheme.
                true => secrets
                    .extend(strings.into_iter().flat_map(|text| [Some(text), authorization_token(text)])),
                false => secrets.extend(strings.into_iter().map(url_password)),
            }
        }
        secrets.into_iter().flatten().map(Secret::new).collect()
    }
}

/// Every string in a value.
fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(strings).collect(),
        Value::Object(fields) => fields.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

/// The token of an `Authorization` header: the part after the scheme, as in `Bearer …`.
fn authorization_token(text: &str) -> Option<&str> {
    let (scheme, token) = text.split_once(' ')?;
    ["basic", "bearer", "token"].contains(&scheme.to_ascii_lowercase().as_str()).then(|| token.trim())
}

/// The password of an HTTP URL, or its user name if there is no password: it may be a token.
fn url_password(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
    let login = rest.split(['/', '?', '#']).next()?.rsplit_once('@')?.0;
    Some(login.split_once(':').map_or(login, |(_, password)| password))
}

/// Converts byte offsets to line numbers.
struct LineIndex<'a> {
    file: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    fn new(file: &'a str, text: &str) -> Self {
        let starts = text.match_indices('\n').map(|(index, _)| index + 1).collect();
        Self { file, starts }
    }

    fn origin(&self, offset: usize) -> SettingOrigin {
        let line = self.starts.partition_point(|start| *start <= offset) + 1;
        SettingOrigin { file: self.file.to_owned(), line: if self.file == "default" { 0 } else { line } }
    }
}

fn table(
    source: &DeTable<'_>,
    lines: &LineIndex<'_>,
    origin: Option<SettingOrigin>,
) -> Result<ConfigTable, ConfigError> {
    let mut entries = BTreeMap::new();
    for (key, value) in source.iter() {
        let origin = lines.origin(key.span().start);
        let node = match value.get_ref() {
            DeValue::Table(inner) => ConfigNode::Table(table(inner, lines, Some(origin))?),
            _ => ConfigNode::Leaf(ConfigLeaf { value: json(value, lines)?, origin, variables: Vec::new() }),
        };
        entries.insert(key.get_ref().to_string(), node);
    }
    Ok(ConfigTable { entries, origin })
}

fn json(value: &Spanned<DeValue<'_>>, lines: &LineIndex<'_>) -> Result<Value, ConfigError> {
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
