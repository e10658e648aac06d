//! Runs a script as its kind requires: calls its function and converts the result.

use crate::engine::protocol::{Entry, Failure};
use crate::value::{Writing, write, write_fields};
use crate::vm::explain;
use crate::vm::machine::Scene;
use crate::vm::scan::scanned;
use mlua::{Function, Lua, LuaString, Table, Value};

/// The kinds of script: the global that each defines, the function that it must have, and that function's
/// signature.
const KINDS: &[(&str, &str, &str)] = &[
    ("tool", "execute", "tool.execute(params, context)"),
    ("connector", "scan", "connector.scan(config, cursor)"),
    ("agent", "resolve", "agent.resolve(args, config, context)"),
];
/// The fields of a definition. All others in the table of a script are its own.
const SAYINGS: &[&str] = &[
    "annotations",
    "arguments",
    "complete",
    "description",
    "name",
    "outputSchema",
    "output_schema",
    "parameters",
    "schema",
    "tags",
    "title",
    "tools",
    "version",
];
/// Error of an `execute` script without a result.
const NO_RESULT: &str = "the script ended without a result: call result(value) once or return a value";
/// Error of an `execute` script with two results.
const TWO_RESULTS: &str = "the script called result(value) and also returned a value: do one of them";

/// Hint for `return a, b`.
const ONE_RESULT: &str = "return one, as in `return { a, b }`; `return (f())` returns the first of several";

/// Runs the chunk, then the function of the script's kind; returns the result as JSON.
pub(super) fn play(scene: &Scene<'_>, environment: &Table, chunk: &Function) -> Result<Vec<u8>, Failure> {
    let returned = scene.call(chunk, Vec::new()).map_err(|failure| scene.await_promises_after(failure))?;
    scene.await_promises()?;
    match scene.job.entry {
        Entry::Describe => describe(scene, environment),
        Entry::Tool => {
            let execute = function(scene, environment, "tool")?;
            let returned = scene.call(&execute, arguments(scene, 1, true)?)?;
            result(scene, returned.first())
        }
        Entry::Agent => {
            let resolve = function(scene, environment, "agent")?;
            let returned = scene.call(&resolve, arguments(scene, 2, true)?)?;
            result(scene, returned.first())
        }
        Entry::Connector => {
            let scan = function(scene, environment, "connector")?;
            let returned = scene.call(&scan, arguments(scene, 2, false)?)?;
            scanned(scene, &returned)
        }
        Entry::Chunk if returned.len() > 1 => {
            Err(scene.contract(&format!("the script returned {} values: {ONE_RESULT}", returned.len())))
        }
        Entry::Chunk => {
            let told = scene.run.result.take();
            match (told, returned.first()) {
                (Some(_), Some(_)) => Err(scene.contract(TWO_RESULTS)),
                (Some(json), None) => Ok(json),
                (None, Some(value)) => result(scene, Some(value)),
                (None, None) => Err(match explain::result_hidden(&scene.source_text()) {
                    Some(hint) => scene.contract(&format!("{NO_RESULT} ({hint})")),
                    None => scene.contract(NO_RESULT),
                }),
            }
        }
    }
}

/// The first `count` arguments of the job, and `context` for the kinds that get it.
fn arguments(scene: &Scene<'_>, count: usize, context: bool) -> Result<Vec<Value>, Failure> {
    let mut arguments = Vec::with_capacity(count + 1);
    for place in 0..count {
        let value = match scene.job.arguments.get(place) {
            Some(json) => scene.read(json.get().as_bytes()).map_err(|error| scene.failed(&error))?,
            None => Value::Nil,
        };
        arguments.push(value);
    }
    if context {
        arguments.push(scene.context());
    }
    Ok(arguments)
}

fn result(scene: &Scene<'_>, value: Option<&Value>) -> Result<Vec<u8>, Failure> {
    let how = Writing { name: "result", bytes_max: scene.job.bounds.result_bytes };
    write(&scene.globals.marks, value.unwrap_or(&Value::Nil), how).map_err(|error| scene.unfit(error))
}

fn global(environment: &Table, name: &str) -> Value {
    environment.raw_get(name).unwrap_or(Value::Nil)
}

fn function(scene: &Scene<'_>, environment: &Table, kind: &str) -> Result<Function, Failure> {
    let signature = KINDS.iter().find(|(name, ..)| *name == kind).map_or(kind, |(_, _, signature)| signature);
    let field = KINDS.iter().find(|(name, ..)| *name == kind).map_or(kind, |(_, field, _)| field);
    let table = match global(environment, kind) {
        Value::Table(table) => table,
        Value::Nil => {
            let local = format!("local {kind} ");
            let hint = if scene.source_text().contains(&local) { "; it must not be `local`" } else { "" };
            return Err(scene.contract(&format!("the script must define the global table `{kind}`{hint}")));
        }
        other => {
            let other = other.type_name();
            return Err(scene.contract(&format!("`{kind}` must be a table, it is a {other}")));
        }
    };
    match table.raw_get(field) {
        Ok(Value::Function(function)) => Ok(function),
        _ => Err(scene.contract(&format!("the script must define the function {signature}"))),
    }
}

fn describe(scene: &Scene<'_>, environment: &Table) -> Result<Vec<u8>, Failure> {
    let found = KINDS.iter().find_map(|(kind, ..)| match global(environment, kind) {
        Value::Table(table) => Some((*kind, table)),
        _ => None,
    });
    let Some((kind, table)) = found else {
        return Err(scene.contract("the script must define the global table `tool`, `connector` or `agent`"));
    };
    let said = sayings(&scene.globals.lua, &table).map_err(|error| scene.failed(&error))?;
    let how = Writing { name: kind, bytes_max: scene.job.bounds.result_bytes };
    let (fields, functions) =
        write_fields(&scene.globals.marks, &said, how).map_err(|error| scene.unfit(error))?;
    let functions = serde_json::to_vec(&functions).unwrap_or_default();
    let mut answer = format!("{{\"kind\":\"{kind}\",\"table\":").into_bytes();
    answer.extend(fields);
    answer.extend_from_slice(b",\"functions\":");
    answer.extend(functions);
    answer.push(b'}');
    Ok(answer)
}

/// The fields of the definition, and the functions in the table.
fn sayings(lua: &Lua, table: &Table) -> mlua::Result<Table> {
    let said = lua.create_table()?;
    table.for_each(|name: Value, value: Value| {
        let is_said = |name: &LuaString| SAYINGS.iter().any(|known| name.as_bytes() == known.as_bytes());
        match &name {
            Value::String(text) if value.is_function() || is_said(text) => said.raw_set(name, value),
            _ => Ok(()),
        }
    })?;
    Ok(said)
}
