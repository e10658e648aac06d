//! Runs a script as its kind requires: calls its function and converts the result.

use crate::engine::protocol::{JobFailure, ScriptEntry};
use crate::value::{WriteOptions, write, write_fields};
use crate::vm::explain;
use crate::vm::machine::Execution;
use crate::vm::scan::emit_scan_result;
use mlua::{Function, Lua, LuaString, Table, Value};

/// The kinds of script: the global that each defines, the function that it must have, and that function's
/// signature.
const SCRIPT_KINDS: &[(&str, &str, &str)] = &[
    ("tool", "execute", "tool.execute(params, context)"),
    ("connector", "scan", "connector.scan(config, cursor)"),
    ("agent", "resolve", "agent.resolve(args, config, context)"),
];
/// The fields of a definition. All others in the table of a script are its own.
const DEFINITION_FIELDS: &[&str] = &[
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
const TWO_RESULTS: &str = "the script called result(value) and also returned a value: use only one of them";

/// Hint for `return a, b`.
const ONE_RESULT: &str = "return one, as in `return { a, b }`; `return (f())` returns the first of several";

/// Runs the chunk, then the function of the script's kind; returns the result as JSON.
pub(super) fn execute(
    execution: &Execution<'_>,
    environment: &Table,
    chunk: &Function,
) -> Result<Vec<u8>, JobFailure> {
    let returned =
        execution.call(chunk, Vec::new()).map_err(|failure| execution.await_promises_after(failure))?;
    execution.await_promises()?;
    match execution.job.entry {
        ScriptEntry::Describe => describe(execution, environment),
        ScriptEntry::Tool => {
            let execute = entry_function(execution, environment, "tool")?;
            let returned = execution.call(&execute, read_arguments(execution, 1, true)?)?;
            write_result(execution, returned.first())
        }
        ScriptEntry::Agent => {
            let resolve = entry_function(execution, environment, "agent")?;
            let returned = execution.call(&resolve, read_arguments(execution, 2, true)?)?;
            write_result(execution, returned.first())
        }
        ScriptEntry::Connector => {
            let scan = entry_function(execution, environment, "connector")?;
            let returned = execution.call(&scan, read_arguments(execution, 2, false)?)?;
            emit_scan_result(execution, &returned)
        }
        ScriptEntry::Chunk if returned.len() > 1 => Err(execution
            .contract_failure(&format!("the script returned {} values: {ONE_RESULT}", returned.len()))),
        ScriptEntry::Chunk => {
            let passed_result = execution.run.result.take();
            match (passed_result, returned.first()) {
                (Some(_), Some(_)) => Err(execution.contract_failure(TWO_RESULTS)),
                (Some(json), None) => Ok(json),
                (None, Some(value)) => write_result(execution, Some(value)),
                (None, None) => Err(match explain::shadowed_result_hint(&execution.source_text()) {
                    Some(hint) => execution.contract_failure(&format!("{NO_RESULT} ({hint})")),
                    None => execution.contract_failure(NO_RESULT),
                }),
            }
        }
    }
}

/// The first `count` arguments of the job, and `context` for the kinds that get it.
fn read_arguments(execution: &Execution<'_>, count: usize, context: bool) -> Result<Vec<Value>, JobFailure> {
    let mut arguments = Vec::with_capacity(count + 1);
    for index in 0..count {
        let value = match execution.job.arguments.get(index) {
            Some(json) => {
                execution.read(json.get().as_bytes()).map_err(|error| execution.vm_failure(&error))?
            }
            None => Value::Nil,
        };
        arguments.push(value);
    }
    if context {
        arguments.push(execution.context());
    }
    Ok(arguments)
}

fn write_result(execution: &Execution<'_>, value: Option<&Value>) -> Result<Vec<u8>, JobFailure> {
    let options = WriteOptions { name: "result", bytes_max: execution.job.bounds.result_bytes };
    write(&execution.globals.bridge, value.unwrap_or(&Value::Nil), options)
        .map_err(|error| execution.result_failure(error))
}

fn read_global(environment: &Table, name: &str) -> Value {
    environment.raw_get(name).unwrap_or(Value::Nil)
}

fn entry_function(
    execution: &Execution<'_>,
    environment: &Table,
    kind: &str,
) -> Result<Function, JobFailure> {
    let signature =
        SCRIPT_KINDS.iter().find(|(name, ..)| *name == kind).map_or(kind, |(_, _, signature)| signature);
    let field = SCRIPT_KINDS.iter().find(|(name, ..)| *name == kind).map_or(kind, |(_, field, _)| field);
    let table = match read_global(environment, kind) {
        Value::Table(table) => table,
        Value::Nil => {
            let local = format!("local {kind} ");
            let hint = if execution.source_text().contains(&local) { "; it must not be `local`" } else { "" };
            return Err(execution
                .contract_failure(&format!("the script must define the global table `{kind}`{hint}")));
        }
        other => {
            let other = other.type_name();
            return Err(execution.contract_failure(&format!("`{kind}` must be a table, it is a {other}")));
        }
    };
    match table.raw_get(field) {
        Ok(Value::Function(function)) => Ok(function),
        _ => Err(execution.contract_failure(&format!("the script must define the function {signature}"))),
    }
}

fn describe(execution: &Execution<'_>, environment: &Table) -> Result<Vec<u8>, JobFailure> {
    let found = SCRIPT_KINDS.iter().find_map(|(kind, ..)| match read_global(environment, kind) {
        Value::Table(table) => Some((*kind, table)),
        _ => None,
    });
    let Some((kind, table)) = found else {
        return Err(execution
            .contract_failure("the script must define the global table `tool`, `connector` or `agent`"));
    };
    let definition =
        definition_fields(&execution.globals.lua, &table).map_err(|error| execution.vm_failure(&error))?;
    let options = WriteOptions { name: kind, bytes_max: execution.job.bounds.result_bytes };
    let (fields, functions) = write_fields(&execution.globals.bridge, &definition, options)
        .map_err(|error| execution.result_failure(error))?;
    let functions = serde_json::to_vec(&functions).unwrap_or_default();
    let mut description = format!("{{\"kind\":\"{kind}\",\"table\":").into_bytes();
    description.extend(fields);
    description.extend_from_slice(b",\"functions\":");
    description.extend(functions);
    description.push(b'}');
    Ok(description)
}

/// The fields of the definition, and the functions in the table.
fn definition_fields(lua: &Lua, table: &Table) -> mlua::Result<Table> {
    let definition = lua.create_table()?;
    table.for_each(|name: Value, value: Value| {
        let is_definition_field =
            |name: &LuaString| DEFINITION_FIELDS.iter().any(|known| name.as_bytes() == known.as_bytes());
        match &name {
            Value::String(text) if value.is_function() || is_definition_field(text) => {
                definition.raw_set(name, value)
            }
            _ => Ok(()),
        }
    })?;
    Ok(definition)
}
