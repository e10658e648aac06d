//! Writes Lua values as JSON text.

use super::{Marks, NODES_MAX, TABLES_DEEP_MAX, ValueError, text};
use mlua::{LuaString, Table, Value};
use std::ffi::c_void;

/// Options of [`write`].
#[derive(Clone, Copy)]
pub(crate) struct Writing<'a> {
    /// The name of the value in errors; if it is empty, paths in errors begin at the value's fields.
    pub(crate) name: &'a str,
    /// Maximum size of the text.
    pub(crate) bytes_max: usize,
}

/// Writes one value.
pub(crate) fn write(marks: &Marks, value: &Value, how: Writing<'_>) -> Result<Vec<u8>, ValueError> {
    let mut writer = Writer::new(marks, how);
    writer.value(value).map_err(|trouble| trouble.told(how.name))?;
    Ok(writer.out)
}

/// Writes a table as an object without its functions; returns the text and the names of the functions.
pub(crate) fn write_fields(
    marks: &Marks,
    table: &Table,
    how: Writing<'_>,
) -> Result<(Vec<u8>, Vec<String>), ValueError> {
    let mut writer = Writer::new(marks, how);
    let mut functions = Vec::new();
    let mut fields = writer.fields(table).map_err(|trouble| trouble.told(how.name))?;
    fields.retain(|(name, value)| {
        let is_function = matches!(value, Value::Function(_));
        if is_function {
            functions.extend(text(name));
        }
        !is_function
    });
    writer.object(&fields).map_err(|trouble| trouble.told(how.name))?;
    Ok((writer.out, functions))
}

/// An error, and the path of the value that caused it, innermost step first.
struct Trouble {
    what: What,
    path: Vec<String>,
}

enum What {
    Unfit(String),
    TooLarge(String),
    Lua(mlua::Error),
}

impl Trouble {
    fn unfit(what: impl Into<String>) -> Self {
        Self { what: What::Unfit(what.into()), path: Vec::new() }
    }

    fn too_large(what: String) -> Self {
        Self { what: What::TooLarge(what), path: Vec::new() }
    }

    fn within(mut self, step: impl FnOnce() -> String) -> Self {
        if !matches!(self.what, What::TooLarge(_)) {
            self.path.push(step());
        }
        self
    }

    fn told(self, name: &str) -> ValueError {
        let place = self.path.iter().rev().fold(name.to_owned(), |path, step| path + step);
        let told = |place: &str, what: &str| match place.strip_prefix('.').unwrap_or(place) {
            "" => what.to_owned(),
            place => format!("{place}: {what}"),
        };
        match &self.what {
            What::Unfit(what) => ValueError::Unfit(told(&place, what)),
            What::TooLarge(what) => ValueError::TooLarge(told(name, what)),
            What::Lua(error) => ValueError::Lua(error.clone()),
        }
    }
}

impl From<mlua::Error> for Trouble {
    fn from(error: mlua::Error) -> Self {
        Self { what: What::Lua(error), path: Vec::new() }
    }
}

struct Writer<'a> {
    marks: &'a Marks,
    out: Vec<u8>,
    bytes_max: usize,
    nodes: usize,
    /// The tables around the current value, to bound nesting and detect cycles.
    around: Vec<*const c_void>,
}

impl<'a> Writer<'a> {
    fn new(marks: &'a Marks, how: Writing<'_>) -> Self {
        Self { marks, out: Vec::new(), bytes_max: how.bytes_max, nodes: 0, around: Vec::new() }
    }

    fn value(&mut self, value: &Value) -> Result<(), Trouble> {
        self.visit()?;
        match value {
            Value::Nil => self.plain("null"),
            Value::LightUserData(_) if *value == Value::NULL => self.plain("null"),
            Value::Boolean(value) => self.plain(if *value { "true" } else { "false" }),
            Value::Integer(integer) => self.plain(&integer.to_string()),
            Value::Number(number) if number.is_finite() => {
                serde_json::to_writer(&mut self.out, number)
                    .map_err(|error| Trouble::unfit(error.to_string()))?;
                self.room(0)
            }
            Value::Number(number) => Err(Trouble::unfit(format!("JSON has no {}", not_finite(*number)))),
            Value::String(string) => self.string(string),
            Value::Table(table) => self.table(table),
            Value::UserData(_) => match self.marks.settled(value)? {
                other @ Value::UserData(_) => Err(Trouble::unfit(format!("JSON has no {}", kind(&other)))),
                settled => self.value(&settled),
            },
            other => Err(Trouble::unfit(format!("JSON has no {}", kind(other)))),
        }
    }

    fn visit(&mut self) -> Result<(), Trouble> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(Trouble::too_large(format!("more than {NODES_MAX} values")));
        }
        Ok(())
    }

    fn room(&self, more: usize) -> Result<(), Trouble> {
        if self.out.len() + more > self.bytes_max {
            return Err(Trouble::too_large(format!("more than {} bytes as JSON", self.bytes_max)));
        }
        Ok(())
    }

    fn plain(&mut self, text: &str) -> Result<(), Trouble> {
        self.room(text.len())?;
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn string(&mut self, string: &LuaString) -> Result<(), Trouble> {
        let bytes = string.as_bytes();
        self.room(bytes.len() + 2)?;
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            Trouble::unfit(format!(
                "not UTF-8 at byte {}; base64.encode can carry it",
                error.valid_up_to() + 1
            ))
        })?;
        serde_json::to_writer(&mut self.out, text).map_err(|error| Trouble::unfit(error.to_string()))?;
        self.room(0)
    }

    fn table(&mut self, table: &Table) -> Result<(), Trouble> {
        let place = table.to_pointer();
        if self.around.contains(&place) {
            return Err(Trouble::unfit("the table contains itself"));
        }
        if self.around.len() == TABLES_DEEP_MAX {
            return Err(Trouble::unfit(format!("nested deeper than {} levels", TABLES_DEEP_MAX + 1)));
        }
        self.around.push(place);
        let written = self.table_within(table);
        self.around.pop();
        written
    }

    fn table_within(&mut self, table: &Table) -> Result<(), Trouble> {
        let marked = self.marks.is_array(table);
        if table.is_empty() {
            return self.plain(if marked { "[]" } else { "{}" });
        }
        if marked || table.raw_len() > 0 {
            return self.array(table);
        }
        let fields = self.fields(table)?;
        self.object(&fields)
    }

    /// Writes items in the order of iteration. That is the order of their positions, unless the table was
    /// filled in an unusual order, for which the items are then sorted.
    fn array(&mut self, table: &Table) -> Result<(), Trouble> {
        let start = self.out.len();
        let nodes = self.nodes;
        let mut expected = 1;
        let mut trouble = None;
        let mut in_order = true;
        self.plain("[")?;
        table.for_each(|key: Value, item: Value| {
            if trouble.is_some() || !in_order {
                return Ok(());
            }
            if key != Value::Integer(expected) {
                in_order = false;
                return Ok(());
            }
            let comma = if expected > 1 { self.plain(",") } else { Ok(()) };
            let written = comma.and_then(|()| self.value(&item));
            trouble = written.err().map(|trouble| trouble.within(|| format!("[{expected}]")));
            expected += 1;
            Ok(())
        })?;
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        if in_order {
            return self.plain("]");
        }
        self.out.truncate(start);
        self.nodes = nodes;
        self.array_in_any_order(table)
    }

    fn array_in_any_order(&mut self, table: &Table) -> Result<(), Trouble> {
        let mut items: Vec<(i64, Value)> = Vec::new();
        let mut strange = None;
        let left = NODES_MAX - self.nodes.min(NODES_MAX);
        table.for_each(|key: Value, item: Value| {
            match key {
                Value::Integer(index) if items.len() <= left => items.push((index, item)),
                Value::Integer(_) => {}
                other => strange = Some(other),
            }
            Ok(())
        })?;
        if items.len() > left {
            return Err(Trouble::too_large(format!("more than {NODES_MAX} values")));
        }
        if let Some(key) = strange {
            let key = key_text(&key);
            return Err(Trouble::unfit(format!(
                "has items by position and also the key {key}; JSON has no such mix"
            )));
        }
        items.sort_by_key(|(index, _)| *index);
        self.plain("[")?;
        for (position, (index, item)) in items.iter().enumerate() {
            let expected = position as i64 + 1;
            if *index < 1 {
                return Err(Trouble::unfit(format!("has the key {index}; positions begin at 1")));
            }
            if *index != expected {
                let hint = "use json.null for what is absent, or keys that are strings";
                return Err(Trouble::unfit(format!("has an item {index} but no item {expected}; {hint}")));
            }
            if position > 0 {
                self.plain(",")?;
            }
            self.value(item).map_err(|trouble| trouble.within(|| format!("[{index}]")))?;
        }
        self.plain("]")
    }

    /// The fields sorted by name, so that equal tables give equal text.
    fn fields(&mut self, table: &Table) -> Result<Vec<(LuaString, Value)>, Trouble> {
        let mut fields = Vec::new();
        let mut strange = None;
        let left = NODES_MAX - self.nodes.min(NODES_MAX);
        table.for_each(|key: Value, value: Value| {
            match key {
                Value::String(name) if fields.len() <= left => fields.push((name, value)),
                Value::String(_) => {}
                other => strange = Some(other),
            }
            Ok(())
        })?;
        if fields.len() > left {
            return Err(Trouble::too_large(format!("more than {NODES_MAX} values")));
        }
        match strange {
            Some(Value::Integer(index)) if fields.is_empty() => {
                let hint = "use json.null for what is absent, or keys that are strings";
                Err(Trouble::unfit(format!("has an item {index} but no item 1; {hint}")))
            }
            Some(key) => {
                let key = key_text(&key);
                Err(Trouble::unfit(format!("has the key {key}; keys of a JSON object are strings")))
            }
            None => {
                fields.sort_by(|(a, _), (b, _)| a.as_bytes().as_ref().cmp(b.as_bytes().as_ref()));
                Ok(fields)
            }
        }
    }

    fn object(&mut self, fields: &[(LuaString, Value)]) -> Result<(), Trouble> {
        self.plain("{")?;
        for (position, (name, value)) in fields.iter().enumerate() {
            if position > 0 {
                self.plain(",")?;
            }
            self.string(name).map_err(|trouble| trouble.within(|| ".<a key>".to_owned()))?;
            self.plain(":")?;
            self.value(value).map_err(|trouble| trouble.within(|| step(name)))?;
        }
        self.plain("}")
    }
}

/// One step of a path: `.name`, or `["a name"]`.
fn step(name: &LuaString) -> String {
    const SHOWN_MAX: usize = 64;
    let name = name.to_string_lossy();
    let identifier = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty();
    let shown: String = name.chars().take(SHOWN_MAX).collect();
    if identifier { format!(".{shown}") } else { format!("[{shown:?}]") }
}

fn key_text(key: &Value) -> String {
    match key {
        Value::String(name) => format!("\"{}\"", name.to_string_lossy().chars().take(64).collect::<String>()),
        Value::Integer(integer) => integer.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Boolean(value) => value.to_string(),
        other => kind(other).to_owned(),
    }
}

fn not_finite(number: f64) -> &'static str {
    if number.is_nan() { "NaN" } else { "infinity" }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Function(_) => "functions",
        Value::Thread(_) => "coroutines",
        Value::Buffer(_) => "buffers",
        Value::Vector(_) => "vectors",
        Value::Error(_) => "errors",
        _ => "such values",
    }
}
