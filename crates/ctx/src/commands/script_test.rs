//! The test of a script (`ctx tool test` and the like): the environment it runs in, its arguments, and the report of
//! the steps that passed and the one that failed.

use crate::cli::GlobalOptions;
use crate::config::Config;
use crate::error::{CommandError, CommandResult};
use crate::output::CommandOutput;
use crate::scripts::{self, ScriptRunner};
use crate::workspace::{Workspace, connector_settings};
use ctx_core::{Call, Caller, Catalog, Peer, Provider, ToolError, nearest};
use ctx_luau::{ScriptSettings, ScriptSummary, Scripts};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// The environment in which a script is tested: the workspace if there is one, else only the script itself.
pub(super) struct TestEnvironment {
    workspace: Option<Workspace>,
    config: Config,
    runner: Arc<ScriptRunner>,
}

impl TestEnvironment {
    /// Opens the workspace around a script that the user named on the command line. The script itself needs no trust;
    /// its section, which holds the values for `context.config`, does.
    pub(super) fn open(global: &GlobalOptions, group: &str) -> CommandResult<Self> {
        let config = global.load_with_trust_prompt(&[group], || global.load_any())?;
        let workspace = match config.path {
            Some(_) => Some(global.open()?),
            None => None,
        };
        let runner = match &workspace {
            Some(workspace) => workspace.runner().clone(),
            None => Arc::new(ScriptRunner::new(&config).map_err(to_command_error)?),
        };
        Ok(Self { workspace, config, runner })
    }

    pub(super) fn scripts(&self) -> CommandResult<&Scripts> {
        self.runner.scripts().map_err(to_command_error)
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
        let without_section = || scripts::script_settings(&self.config, String::new(), file, Map::new());
        let settings = section.unwrap_or_else(without_section);
        Ok(ScriptSettings { path, display_path: file.display().to_string(), ..settings })
    }

    fn sections(&self, group: &str) -> Vec<ScriptSettings> {
        if group == "connectors" {
            let sections = self.config.settings.script_connectors().into_iter();
            return sections.map(|(section, _)| connector_settings(&self.config, section)).collect();
        }
        let scripts = scripts::configured_scripts(&self.config);
        let in_group = scripts.into_iter().filter(|script| script.section().starts_with(group));
        in_group.map(|script| script.settings).collect()
    }

    /// A call, not recorded as a run, on a catalog with the built-in tools, the tested script and the upstreams.
    pub(super) fn call(&self, provider: Arc<dyn Provider>, output: CommandOutput) -> Call {
        let catalog = match &self.workspace {
            Some(workspace) => {
                let mut providers = vec![provider];
                providers.extend(workspace.start_upstreams().providers());
                workspace.catalog_with(providers)
            }
            None => Catalog::builder()
                .provider(provider)
                .limits(self.config.settings.limits())
                .redactor(self.runner.redactor().clone())
                .build(),
        };
        Call::new(catalog, Caller::Cli).with_peer(Arc::new(LogPrinter(output)))
    }
}

fn to_command_error(problem: ctx_luau::ScriptProblem) -> CommandError {
    CommandError::new(problem.message)
}

/// Prints the log lines of a script as they come, unless the log of the program shows them already.
pub(super) struct LogPrinter(pub(super) CommandOutput);

impl Peer for LogPrinter {
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
pub(super) struct TestReport {
    script_kind: &'static str,
    output: CommandOutput,
    heading: String,
    steps: Vec<Value>,
}

impl TestReport {
    pub(super) fn new(script_kind: &'static str, output: CommandOutput) -> Self {
        Self { script_kind, output, heading: String::new(), steps: Vec::new() }
    }

    fn print_line(&self, text: &str) -> CommandResult {
        if self.output.json { Ok(()) } else { self.output.print(text) }
    }

    pub(super) fn report_step(&mut self, step: &str) -> CommandResult {
        self.steps.push(json!({"ok": true, "step": step}));
        self.print_line(&format!("  ✓ {step}"))
    }

    /// Loads the script. A script without a section takes the name that it declares. `None` after a reported failure.
    pub(super) async fn load_script(
        &mut self,
        scripts: &Scripts,
        settings: &mut ScriptSettings,
    ) -> CommandResult<Option<ScriptSummary>> {
        let declared = scripts.describe(settings).await;
        if settings.name.is_empty()
            && let Ok(declared) = &declared
        {
            settings.name = declared.name.clone().unwrap_or_default();
        }
        self.heading = match settings.name.as_str() {
            "" => settings.display_path.clone(),
            name => format!("{name} ({})", settings.display_path),
        };
        self.print_line(&format!("Testing {}: {}", self.script_kind, self.heading))?;
        match declared {
            Ok(declared) => {
                self.report_step("Script loaded")?;
                Ok(Some(declared))
            }
            Err(problem) => {
                self.report_failure(&problem.message)?;
                Ok(None)
            }
        }
    }

    /// Reports that a function of the script is about to be called.
    pub(super) fn report_call(&mut self, function: &str, arguments: &Value) -> CommandResult {
        self.report_step(&format!("Calling {function}({})...", arguments_text(arguments)))
    }

    fn report_failure(&mut self, reason: &str) -> CommandResult {
        self.steps.push(json!({"ok": false, "step": reason}));
        self.print_line(&format!("  ✗ {reason}"))
    }

    /// Reports a failed step with this reason, and ends the test.
    pub(super) fn fail_with(mut self, reason: &str) -> CommandResult {
        self.report_failure(reason)?;
        self.fail()
    }

    /// Ends a failed test whose reason was already reported.
    pub(super) fn fail(self) -> CommandResult {
        self.print_json(&json!({"ok": false, "steps": self.steps}))?;
        Err(CommandError::new(format!("the test of {} failed", self.heading)))
    }

    fn print_json(&self, answer: &Value) -> CommandResult {
        if self.output.json { self.output.print_result(answer, String::new) } else { Ok(()) }
    }

    /// Runs the function of the script, and ends the test with its result or error.
    pub(super) async fn run(
        mut self,
        noun: &str,
        work: impl Future<Output = Result<Value, ToolError>>,
    ) -> CommandResult {
        let started = Instant::now();
        let result = work.await;
        let elapsed = started.elapsed();
        match result {
            Ok(value) => {
                self.report_step(&format!("Returned {noun} in {:.1}s", elapsed.as_secs_f64()))?;
                self.succeed(noun, &value, elapsed.as_millis())
            }
            Err(error) => self.fail_with(error.message()),
        }
    }

    /// Ends a successful test with this result.
    pub(super) fn succeed(self, noun: &str, value: &Value, milliseconds: u128) -> CommandResult {
        let steps = &self.steps;
        self.print_json(
            &json!({"ok": true, "steps": steps, "duration_ms": milliseconds as u64, noun: value}),
        )?;
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        let mut heading = noun.to_owned();
        heading[..1].make_ascii_uppercase();
        self.print_line(&format!("\n{heading}:\n  {}", text.replace('\n', "\n  ")))
    }
}

/// Arguments as they are printed: `{title: "Test ticket"}`.
fn arguments_text(arguments: &Value) -> String {
    match arguments.as_object() {
        Some(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name}: {value}");
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        None => arguments.to_string(),
    }
}

/// Parses `name=value`.
pub(super) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}

/// The arguments of a script: a JSON object, overridden by single values.
pub(super) fn parse_arguments(
    whole: Option<&str>,
    single: Vec<(String, String)>,
    schema: &Value,
) -> CommandResult<Value> {
    let mut arguments = match whole.map(serde_json::from_str::<Map<String, Value>>) {
        None => Map::new(),
        Some(Ok(arguments)) => arguments,
        Some(Err(error)) => return Err(CommandError::usage(format!("not a JSON object: {error}"))),
    };
    for (name, text) in single {
        let value = coerce(&text, &schema["properties"][&name]["type"]);
        arguments.insert(name, value);
    }
    Ok(Value::Object(arguments))
}

/// Converts a text to a value of the declared type. A text that is no such value stays a string, which the validation
/// by the schema then rejects.
fn coerce(text: &str, declared: &Value) -> Value {
    let is_declared_as = |kind: &str| match declared {
        Value::String(one) => one == kind,
        Value::Array(several) => several.iter().any(|one| one == kind),
        _ => false,
    };
    if declared.is_null() || is_declared_as("string") {
        return text.into();
    }
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_parsed_as_the_declared_type() {
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
        let arguments = parse_arguments(Some(r#"{"title": "old", "kept": 1}"#), single, &schema).unwrap();
        let expected = json!({"title": "5", "kept": 1, "limit": 5, "on": true, "tags": ["a"], "free": "7",
            "unknown": "7"});
        assert_eq!(arguments, expected);
        assert_eq!(coerce("many", &json!("integer")), "many");
    }

    #[test]
    fn a_pair_is_split_at_the_first_sign() {
        assert_eq!(parse_pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(parse_pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(parse_pair("a").is_err() && parse_pair("=b").is_err());
    }
}
