//! The test of a script (`ctx tool test` and the like): the environment it runs in, its arguments, and the report of
//! the steps that passed and the one that failed.

use crate::cli::Global;
use crate::config::Config;
use crate::error::{CommandError, CommandResult};
use crate::output::Output;
use crate::scripts::{self, Runner};
use crate::workspace::{Workspace, connector_settings};
use ctx_core::{Call, Caller, Catalog, Peer, Provider, ToolError, nearest};
use ctx_luau::{Described, ScriptSettings, Scripts};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// The environment in which a script is tested: the workspace if there is one, else only the script itself.
pub(super) struct Bench {
    workspace: Option<Workspace>,
    config: Config,
    runner: Arc<Runner>,
}

impl Bench {
    /// Opens the workspace around a script that the user named on the command line. The script itself needs no trust;
    /// its section, which holds the values for `context.config`, does.
    pub(super) fn open(global: &Global, group: &str) -> CommandResult<Self> {
        let config = global.load_and_settle(&[group], || global.load_any())?;
        let workspace = match config.path {
            Some(_) => Some(global.open()?),
            None => None,
        };
        let runner = match &workspace {
            Some(workspace) => workspace.runner().clone(),
            None => Arc::new(Runner::new(&config).map_err(failed)?),
        };
        Ok(Self { workspace, config, runner })
    }

    pub(super) fn scripts(&self) -> CommandResult<&Scripts> {
        self.runner.scripts().map_err(failed)
    }

    pub(super) fn workspace(&self) -> Option<&Workspace> {
        self.workspace.as_ref()
    }

    /// The settings of a script: those of the section `source`, else of the section whose `path` it is, else empty
    /// ones.
    pub(super) fn settings(
        &self,
        group: &str,
        file: &Path,
        source: Option<&str>,
    ) -> CommandResult<ScriptSettings> {
        let path = file.canonicalize().map_err(|error| {
            CommandError::usage(format!("there is no script {}: {error}", file.display()))
        })?;
        let sections = self.sections(group);
        let named = |settings: &&ScriptSettings| match source {
            Some(source) => settings.name == source,
            None => settings.path.canonicalize().is_ok_and(|other| other == path),
        };
        let section = sections.iter().find(named).cloned();
        if let (Some(source), None) = (source, &section) {
            let error = CommandError::usage(format!("there is no section [{group}.script.{source}]"));
            return Err(match nearest(source, sections.iter().map(|section| section.name.as_str())) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error,
            });
        }
        let alone = || scripts::script(&self.config, String::new(), file, Map::new());
        let settings = section.unwrap_or_else(alone);
        Ok(ScriptSettings { path, shown: file.display().to_string(), ..settings })
    }

    fn sections(&self, group: &str) -> Vec<ScriptSettings> {
        if group == "connectors" {
            let sections = self.config.settings.script_connectors().into_iter();
            return sections.map(|(section, _)| connector_settings(&self.config, section)).collect();
        }
        let callable = scripts::configured(&self.config);
        let of_group = callable.into_iter().filter(|script| script.section().starts_with(group));
        of_group.map(|script| script.settings).collect()
    }

    /// A call, not recorded as a run, on a catalog with the built-in tools, the tested script and the upstreams.
    pub(super) fn call(&self, own: Arc<dyn Provider>, output: Output) -> Call {
        let catalog = match &self.workspace {
            Some(workspace) => {
                let mut providers = vec![own];
                providers.extend(workspace.start_upstreams().providers());
                workspace.catalog_with(providers)
            }
            None => Catalog::builder()
                .provider(own)
                .limits(self.config.settings.limits())
                .redactor(self.runner.redactor().clone())
                .build(),
        };
        Call::new(catalog, Caller::Cli).with_peer(Arc::new(Terminal(output)))
    }
}

fn failed(problem: ctx_luau::ScriptProblem) -> CommandError {
    CommandError::new(problem.message)
}

/// Prints the log lines of a script as they come, unless the log of the program shows them already.
pub(super) struct Terminal(pub(super) Output);

impl Peer for Terminal {
    fn log(&self, level: tracing::Level, message: &str) {
        let is_logged = match level {
            tracing::Level::ERROR => tracing::enabled!(target: "script", tracing::Level::ERROR),
            tracing::Level::WARN => tracing::enabled!(target: "script", tracing::Level::WARN),
            tracing::Level::INFO => tracing::enabled!(target: "script", tracing::Level::INFO),
            _ => tracing::enabled!(target: "script", tracing::Level::DEBUG),
        };
        if !is_logged {
            self.0.log(level, message);
        }
    }
}

/// The report of a test: a line per step, printed as the step ends.
pub(super) struct Report {
    what: &'static str,
    output: Output,
    heading: String,
    steps: Vec<Value>,
}

impl Report {
    pub(super) fn new(what: &'static str, output: Output) -> Self {
        Self { what, output, heading: String::new(), steps: Vec::new() }
    }

    fn line(&self, text: &str) -> CommandResult {
        if self.output.json { Ok(()) } else { self.output.print(text) }
    }

    pub(super) fn passed(&mut self, step: &str) -> CommandResult {
        self.steps.push(json!({"ok": true, "step": step}));
        self.line(&format!("  ✓ {step}"))
    }

    /// Loads the script. A script without a section takes the name that it declares. `None` after a reported failure.
    pub(super) async fn describe(
        &mut self,
        scripts: &Scripts,
        settings: &mut ScriptSettings,
    ) -> CommandResult<Option<Described>> {
        let described = scripts.describe(settings).await;
        if settings.name.is_empty()
            && let Ok(described) = &described
        {
            settings.name = described.name.clone().unwrap_or_default();
        }
        self.heading = match settings.name.as_str() {
            "" => settings.shown.clone(),
            name => format!("{name} ({})", settings.shown),
        };
        self.line(&format!("Testing {}: {}", self.what, self.heading))?;
        match described {
            Ok(described) => {
                self.passed("Script loaded")?;
                Ok(Some(described))
            }
            Err(problem) => {
                self.note_failure(&problem.message)?;
                Ok(None)
            }
        }
    }

    /// Reports that a function of the script is about to be called.
    pub(super) fn calling(&mut self, function: &str, given: &Value) -> CommandResult {
        self.passed(&format!("Calling {function}({})...", shown(given)))
    }

    fn note_failure(&mut self, reason: &str) -> CommandResult {
        self.steps.push(json!({"ok": false, "step": reason}));
        self.line(&format!("  ✗ {reason}"))
    }

    /// Reports a failed step with this reason, and ends the test.
    pub(super) fn refuse(mut self, reason: &str) -> CommandResult {
        self.note_failure(reason)?;
        self.fail()
    }

    /// Ends a failed test whose reason was already reported.
    pub(super) fn fail(self) -> CommandResult {
        self.answer(&json!({"ok": false, "steps": self.steps}))?;
        Err(CommandError::new(format!("the test of {} failed", self.heading)))
    }

    fn answer(&self, answer: &Value) -> CommandResult {
        if self.output.json { self.output.answer(answer, String::new) } else { Ok(()) }
    }

    /// Runs the function of the script, and ends the test with its result or error.
    pub(super) async fn run(
        mut self,
        noun: &str,
        work: impl Future<Output = Result<Value, ToolError>>,
    ) -> CommandResult {
        let started = Instant::now();
        let done = work.await;
        let took = started.elapsed();
        match done {
            Ok(value) => {
                self.passed(&format!("Returned {noun} in {:.1}s", took.as_secs_f64()))?;
                self.result(noun, &value, took.as_millis())
            }
            Err(error) => self.refuse(error.message()),
        }
    }

    /// Ends a successful test with this result.
    pub(super) fn result(self, noun: &str, value: &Value, milliseconds: u128) -> CommandResult {
        let steps = &self.steps;
        self.answer(&json!({"ok": true, "steps": steps, "duration_ms": milliseconds as u64, noun: value}))?;
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        let mut heading = noun.to_owned();
        heading[..1].make_ascii_uppercase();
        self.line(&format!("\n{heading}:\n  {}", text.replace('\n', "\n  ")))
    }
}

/// Arguments as they are printed: `{title: "Test ticket"}`.
fn shown(given: &Value) -> String {
    match given.as_object() {
        Some(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name}: {value}");
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        None => given.to_string(),
    }
}

/// Parses `name=value`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}

/// The arguments of a script: a JSON object, overridden by single values.
pub(super) fn arguments(
    whole: Option<&str>,
    single: Vec<(String, String)>,
    schema: &Value,
) -> CommandResult<Value> {
    let mut given = match whole.map(serde_json::from_str::<Map<String, Value>>) {
        None => Map::new(),
        Some(Ok(given)) => given,
        Some(Err(error)) => return Err(CommandError::usage(format!("that is no JSON object: {error}"))),
    };
    for (name, text) in single {
        let value = coerced(&text, &schema["properties"][&name]["type"]);
        given.insert(name, value);
    }
    Ok(Value::Object(given))
}

/// Converts a text to a value of the declared type. A text that is no such value stays a string, which the validation
/// by the schema then rejects.
fn coerced(text: &str, declared: &Value) -> Value {
    let is = |kind: &str| match declared {
        Value::String(one) => one == kind,
        Value::Array(several) => several.iter().any(|one| one == kind),
        _ => false,
    };
    if declared.is_null() || is("string") {
        return text.into();
    }
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_what_the_tool_declares() {
        let schema = json!({"properties": {
            "title": {"type": "string"}, "limit": {"type": "integer"}, "on": {"type": ["boolean", "null"]},
            "tags": {"type": "array"}, "free": {},
        }});
        let single = [
            ("title", "5"),
            ("limit", "5"),
            ("on", "true"),
            ("tags", r#"["a"]"#),
            ("free", "7"),
            ("unknown", "7"),
        ];
        let single = single.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let given = arguments(Some(r#"{"title": "old", "kept": 1}"#), single, &schema).unwrap();
        let expected = json!({"title": "5", "kept": 1, "limit": 5, "on": true, "tags": ["a"], "free": "7",
            "unknown": "7"});
        assert_eq!(given, expected);
        assert_eq!(coerced("many", &json!("integer")), "many");
    }

    #[test]
    fn a_pair_is_split_at_the_first_sign() {
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(pair("a").is_err() && pair("=b").is_err());
    }
}
