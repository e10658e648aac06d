//! Writes Lua values as JSON text.

use super::{JsonBridge, NODES_MAX, TABLES_DEEP_MAX, ValueError, utf8_text};
use mlua::{LuaString, Table, Value};
use std::ffi::c_void;

/// Options of [`write`].
#[derive(Clone, Copy)]
pub(crate) struct WriteOptions<'a> {
    /// The name of the value in errors; if it is empty, paths in errors begin at the value's fields.
    pub(crate) name: &'a str,
    /// Maximum size of the text.
    pub(crate) bytes_max: usize,
}

/// Writes one value.
pub(crate) fn write(
    bridge: &JsonBridge,
    value: &Value,
    options: WriteOptions<'_>,
) -> Result<Vec<u8>, ValueError> {
    let mut writer = JsonWriter::new(bridge, options);
    writer.write_value(value).map_err(|error| error.into_value_error(options.name))?;
    Ok(writer.out)
}

/// Writes a table as an object without its functions; returns the text and the names of the functions.
pub(crate) fn write_fields(
    bridge: &JsonBridge,
    table: &Table,
    options: WriteOptions<'_>,
) -> Result<(Vec<u8>, Vec<String>), ValueError> {
    let mut writer = JsonWriter::new(bridge, options);
    let mut functions = Vec::new();
    let mut fields = writer.fields(table).map_err(|error| error.into_value_error(options.name))?;
    fields.retain(|(name, value)| {
        let is_function = matches!(value, Value::Function(_));
        if is_function {
            functions.extend(utf8_text(name));
        }
        !is_function
    });
    writer.write_object(&fields).map_err(|error| error.into_value_error(options.name))?;
    Ok((writer.out, functions))
}

/// An error, and the path of the value that caused it, innermost step first.
struct WriteError {
    kind: WriteErrorKind,
    path: Vec<String>,
}

enum WriteErrorKind {
    Unrepresentable(String),
    TooLarge(String),
    Lua(mlua::Error),
}

impl WriteError {
    fn unrepresentable(message: impl Into<String>) -> Self {
        Self { kind: WriteErrorKind::Unrepresentable(message.into()), path: Vec::new() }
    }

    fn too_large(message: String) -> Self {
        Self { kind: WriteErrorKind::TooLarge(message), path: Vec::new() }
    }

    fn within(mut self, step: impl FnOnce() -> String) -> Self {
        if !matches!(self.kind, WriteErrorKind::TooLarge(_)) {
            self.path.push(step());
        }
        self
    }

    fn into_value_error(self, name: &str) -> ValueError {
        let place = self.path.iter().rev().fold(name.to_owned(), |path, step| path + step);
        let located = |place: &str, message: &str| match place.strip_prefix('.').unwrap_or(place) {
            "" => message.to_owned(),
            place => format!("{place}: {message}"),
        };
        match &self.kind {
            WriteErrorKind::Unrepresentable(message) => ValueError::Unrepresentable(located(&place, message)),
            WriteErrorKind::TooLarge(message) => ValueError::TooLarge(located(name, message)),
            WriteErrorKind::Lua(error) => ValueError::Lua(error.clone()),
        }
    }
}

impl From<mlua::Error> for WriteError {
    fn from(error: mlua::Error) -> Self {
        Self { kind: WriteErrorKind::Lua(error), path: Vec::new() }
    }
}

struct JsonWriter<'a> {
    bridge: &'a JsonBridge,
    out: Vec<u8>,
    bytes_max: usize,
    nodes: usize,
    /// The tables around the current value, to bound nesting and detect cycles.
    open_tables: Vec<*const c_void>,
}

impl<'a> JsonWriter<'a> {
    fn new(bridge: &'a JsonBridge, options: WriteOptions<'_>) -> Self {
        Self { bridge, out: Vec::new(), bytes_max: options.bytes_max, nodes: 0, open_tables: Vec::new() }
    }

    fn write_value(&mut self, value: &Value) -> Result<(), WriteError> {
        self.count_node()?;
        match value {
            Value::Nil => self.write_raw("null"),
            Value::LightUserData(_) if *value == Value::NULL => self.write_raw("null"),
            Value::Boolean(value) => self.write_raw(if *value { "true" } else { "false" }),
            Value::Integer(integer) => self.write_raw(&integer.to_string()),
            Value::Number(number) if number.is_finite() => {
                serde_json::to_writer(&mut self.out, number)
                    .map_err(|error| WriteError::unrepresentable(error.to_string()))?;
                self.check_size(0)
            }
            Value::Number(number) => {
                Err(WriteError::unrepresentable(format!("JSON has no {}", not_finite(*number))))
            }
            Value::String(string) => self.write_string(string),
            Value::Table(table) => self.write_table(table),
            Value::UserData(_) => match self.bridge.await_value(value)? {
                other @ Value::UserData(_) => {
                    Err(WriteError::unrepresentable(format!("JSON has no {}", type_noun(&other))))
                }
                awaited => self.write_value(&awaited),
            },
            other => Err(WriteError::unrepresentable(format!("JSON has no {}", type_noun(other)))),
        }
    }

    fn count_node(&mut self) -> Result<(), WriteError> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(WriteError::too_large(format!("more than {NODES_MAX} values")));
        }
        Ok(())
    }

    fn check_size(&self, more: usize) -> Result<(), WriteError> {
        if self.out.len() + more > self.bytes_max {
            return Err(WriteError::too_large(format!("more than {} bytes as JSON", self.bytes_max)));
        }
        Ok(())
    }

    fn write_raw(&mut self, text: &str) -> Result<(), WriteError> {
        self.check_size(text.len())?;
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn write_string(&mut self, string: &LuaString) -> Result<(), WriteError> {
        let bytes = string.as_bytes();
        self.check_size(bytes.len() + 2)?;
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            WriteError::unrepresentable(format!(
                "not UTF-8 at byte {}; encode it with base64.encode",
                error.valid_up_to() + 1
            ))
        })?;
        serde_json::to_writer(&mut self.out, text)
            .map_err(|error| WriteError::unrepresentable(error.to_string()))?;
        self.check_size(0)
    }

    fn write_table(&mut self, table: &Table) -> Result<(), WriteError> {
        let place = table.to_pointer();
        if self.open_tables.contains(&place) {
            return Err(WriteError::unrepresentable("the table contains itself"));
        }
        if self.open_tables.len() == TABLES_DEEP_MAX {
            return Err(WriteError::unrepresentable(format!(
                "nested deeper than {} levels",
                TABLES_DEEP_MAX + 1
            )));
        }
        self.open_tables.push(place);
        let result = self.write_table_content(table);
        self.open_tables.pop();
        result
    }

    fn write_table_content(&mut self, table: &Table) -> Result<(), WriteError> {
        let marked = self.bridge.is_array(table);
        if table.is_empty() {
            return self.write_raw(if marked { "[]" } else { "{}" });
        }
        if marked || table.raw_len() > 0 {
            return self.write_array(table);
        }
        let fields = self.fields(table)?;
        self.write_object(&fields)
    }

    /// Writes items in the order of iteration. That is the order of their positions, unless the table was
    /// filled in an unusual order, for which the items are then sorted.
    fn write_array(&mut self, table: &Table) -> Result<(), WriteError> {
        let start = self.out.len();
        let nodes = self.nodes;
        let mut expected = 1;
        let mut error = None;
        let mut in_order = true;
        self.write_raw("[")?;
        table.for_each(|key: Value, item: Value| {
            if error.is_some() || !in_order {
                return Ok(());
            }
            if key != Value::Integer(expected) {
                in_order = false;
                return Ok(());
            }
            let comma = if expected > 1 { self.write_raw(",") } else { Ok(()) };
            let result = comma.and_then(|()| self.write_value(&item));
            error = result.err().map(|error| error.within(|| format!("[{expected}]")));
            expected += 1;
            Ok(())
        })?;
        if let Some(error) = error {
            return Err(error);
        }
        if in_order {
            return self.write_raw("]");
        }
        self.out.truncate(start);
        self.nodes = nodes;
        self.write_sorted_array(table)
    }

    fn write_sorted_array(&mut self, table: &Table) -> Result<(), WriteError> {
        let mut items: Vec<(i64, Value)> = Vec::new();
        let mut invalid_key = None;
        let nodes_left = NODES_MAX - self.nodes.min(NODES_MAX);
        table.for_each(|key: Value, item: Value| {
            match key {
                Value::Integer(index) if items.len() <= nodes_left => items.push((index, item)),
                Value::Integer(_) => {}
                other => invalid_key = Some(other),
            }
            Ok(())
        })?;
        if items.len() > nodes_left {
            return Err(WriteError::too_large(format!("more than {NODES_MAX} values")));
        }
        if let Some(key) = invalid_key {
            let key = key_text(&key);
            return Err(WriteError::unrepresentable(format!(
                "has both list items and the key {key}; in JSON it must be an array or an object"
            )));
        }
        items.sort_by_key(|(index, _)| *index);
        self.write_raw("[")?;
        for (position, (index, item)) in items.iter().enumerate() {
            let expected = position as i64 + 1;
            if *index < 1 {
                return Err(WriteError::unrepresentable(format!("has the key {index}; indexes start at 1")));
            }
            if *index != expected {
                let hint = "use json.null for missing items, or string keys";
                return Err(WriteError::unrepresentable(format!(
                    "has an item {index} but no item {expected}; {hint}"
                )));
            }
            if position > 0 {
                self.write_raw(",")?;
            }
            self.write_value(item).map_err(|error| error.within(|| format!("[{index}]")))?;
        }
        self.write_raw("]")
    }

    /// The fields sorted by name, so that equal tables give equal text.
    fn fields(&mut self, table: &Table) -> Result<Vec<(LuaString, Value)>, WriteError> {
        let mut fields = Vec::new();
        let mut invalid_key = None;
        let nodes_left = NODES_MAX - self.nodes.min(NODES_MAX);
        table.for_each(|key: Value, value: Value| {
            match key {
                Value::String(name) if fields.len() <= nodes_left => fields.push((name, value)),
                Value::String(_) => {}
                other => invalid_key = Some(other),
            }
            Ok(())
        })?;
        if fields.len() > nodes_left {
            return Err(WriteError::too_large(format!("more than {NODES_MAX} values")));
        }
        match invalid_key {
            Some(Value::Integer(index)) if fields.is_empty() => {
                let hint = "use json.null for missing items, or string keys";
                Err(WriteError::unrepresentable(format!("has an item {index} but no item 1; {hint}")))
            }
            Some(key) => {
                let key = key_text(&key);
                Err(WriteError::unrepresentable(format!(
                    "has the key {key}; keys of a JSON object are strings"
                )))
            }
            None => {
                fields.sort_by(|(a, _), (b, _)| a.as_bytes().as_ref().cmp(b.as_bytes().as_ref()));
                Ok(fields)
            }
        }
    }

    fn write_object(&mut self, fields: &[(LuaString, Value)]) -> Result<(), WriteError> {
        self.write_raw("{")?;
        for (position, (name, value)) in fields.iter().enumerate() {
            if position > 0 {
                self.write_raw(",")?;
            }
            self.write_string(name).map_err(|error| error.within(|| ".<a key>".to_owned()))?;
            self.write_raw(":")?;
            self.write_value(value).map_err(|error| error.within(|| step(name)))?;
        }
        self.write_raw("}")
    }
}

/// One step of a path: `.name`, or `["a name"]`.
fn step(name: &LuaString) -> String {
    const SHOWN_MAX: usize = 64;
    let name = name.to_string_lossy();
    let identifier = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty();
    let shortened: String = name.chars().take(SHOWN_MAX).collect();
    if identifier { format!(".{shortened}") } else { format!("[{shortened:?}]") }
}

fn key_text(key: &Value) -> String {
    match key {
        Value::String(name) => format!("\"{}\"", name.to_string_lossy().chars().take(64).collect::<String>()),
        Value::Integer(integer) => integer.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Boolean(value) => value.to_string(),
        other => type_noun(other).to_owned(),
    }
}

fn not_finite(number: f64) -> &'static str {
    if number.is_nan() { "NaN" } else { "infinity" }
}

fn type_noun(value: &Value) -> &'static str {
    match value {
        Value::Function(_) => "functions",
        Value::Thread(_) => "coroutines",
        Value::Buffer(_) => "buffers",
        Value::Vector(_) => "vectors",
        Value::Error(_) => "errors",
        _ => "such values",
    }
}
