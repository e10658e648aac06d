//! [`Script`]: the source of one script, the definition that it declares, and its runs.

use crate::engine::{RunErrorKind, ScriptEntry, ScriptRun};
use crate::host::{HOST_APIS, PROVIDER_PREFIX};
use crate::scripts::{ScriptProblem, ScriptRuntime, ScriptSettings};
use crate::vm::LANGUAGE_GLOBALS;
use crate::world::{AllowedHosts, DeniedWorld};
use ctx_core::{BuiltinProvider, Call, Catalog, Identifier};
use memchr::memmem;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time limit for loading a script to read its definition.
const DESCRIBE_TIME: Duration = Duration::from_secs(10);

/// The kinds of configured script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptKind {
    Tool,
    Connector,
    Agent,
}

impl ScriptKind {
    /// The global that the script defines, the function that it must have, and that function's signature.
    fn contract(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Tool => ("tool", "execute", "tool.execute(params, context)"),
            Self::Connector => ("connector", "scan", "connector.scan(config, cursor)"),
            Self::Agent => ("agent", "resolve", "agent.resolve(args, config, context)"),
        }
    }
}

/// A script whose source was read, and which can run any number of times.
pub(crate) struct Script {
    pub(crate) runtime: Arc<ScriptRuntime>,
    /// The script's name in error messages.
    pub(crate) display_name: String,
    /// The directory of the script's file; `None` for a script sent to `execute`.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) allowed_hosts: AllowedHosts,
    pub(crate) settings: Option<ScriptSettings>,
    source: Arc<[u8]>,
}

impl Script {
    /// Reads a configured script.
    pub(crate) async fn read(
        runtime: &Arc<ScriptRuntime>,
        settings: &ScriptSettings,
    ) -> Result<Self, ScriptProblem> {
        let ScriptSettings { path, display_path: display_name, .. } = settings;
        let allowed_hosts = AllowedHosts::new(&settings.allow_hosts)
            .map_err(|error| problem(display_name, &format!("allow_hosts: {error}")))?;
        let (file, bytes_max) = (path.clone(), runtime.limits.source_bytes);
        let read = tokio::task::spawn_blocking(move || read_bounded(&file, bytes_max)).await;
        let source = match read {
            Ok(Ok(source)) => source,
            Ok(Err(error)) => {
                return Err(problem(display_name, &format!("the script cannot be read: {error}")));
            }
            Err(_) => return Err(problem(display_name, "the script cannot be read")),
        };
        Ok(Self {
            runtime: runtime.clone(),
            display_name: display_name.clone(),
            directory: path.parent().map(Path::to_path_buf),
            allowed_hosts,
            settings: Some(settings.clone()),
            source: source.into(),
        })
    }

    /// A script sent to `execute`.
    pub(crate) fn from_source(runtime: &Arc<ScriptRuntime>, display_name: &str, source: &str) -> Self {
        Self {
            runtime: runtime.clone(),
            display_name: display_name.to_owned(),
            directory: None,
            allowed_hosts: AllowedHosts::default(),
            settings: None,
            source: source.as_bytes().into(),
        }
    }

    /// The name in the configuration.
    pub(crate) fn name(&self) -> &str {
        self.settings.as_ref().map_or(&self.display_name, |settings| &settings.name)
    }

    /// The script's section of the configuration.
    pub(crate) fn config(&self) -> Value {
        self.settings.as_ref().map_or_else(|| Value::Object(Map::new()), |settings| settings.config.clone())
    }

    /// The configured time limit, or `default`.
    pub(crate) fn timeout(&self, default: Duration) -> Duration {
        self.settings.as_ref().and_then(|settings| settings.timeout).unwrap_or(default)
    }

    /// A run with the default limits, at depth 0.
    pub(crate) fn run(&self, entry: ScriptEntry, arguments: Vec<Value>) -> ScriptRun {
        let limits = &self.runtime.limits;
        let apis = HOST_APIS.iter().filter(|api| api.entries.contains(&entry));
        ScriptRun {
            chunk_name: self.display_name.clone(),
            source: self.source.clone(),
            entry,
            arguments,
            config: Some(self.config()),
            apis: apis.map(|api| api.name.to_owned()).collect(),
            deadline: Instant::now() + limits.timeout,
            memory_bytes: limits.memory_bytes,
            result_bytes: limits.result_bytes,
            log_bytes: limits.log_bytes,
            depth: 0,
        }
    }

    /// Reads the definition that the script declares. Executes the script's top level, where every host
    /// request fails.
    pub(crate) async fn describe(&self) -> Result<ScriptDefinition, ScriptProblem> {
        let mut run = self.run(ScriptEntry::Describe, Vec::new());
        run.deadline = Instant::now() + DESCRIBE_TIME;
        let completed = self.runtime.engine.run(&run, &DeniedWorld).await;
        let completed = completed.map_err(|error| match error.kind {
            RunErrorKind::Time => {
                self.problem(&format!("it took longer than {} seconds to load", DESCRIBE_TIME.as_secs()))
            }
            _ => self.problem(&self.runtime.redactor.text(error.message)),
        })?;
        let definition = serde_json::from_value(completed.value);
        let definition: ScriptDefinition = definition.map_err(|error| self.problem(&error.to_string()))?;
        Ok(ScriptDefinition { display_name: self.display_name.clone(), ..definition })
    }

    /// A problem of this script.
    pub(crate) fn problem(&self, message: &str) -> ScriptProblem {
        problem(&self.display_name, message)
    }
}

/// The definition that a script declares: the contents of its global.
#[derive(Deserialize)]
pub(crate) struct ScriptDefinition {
    /// The global that the script defines: `tool`, `connector` or `agent`.
    pub(crate) kind: String,
    /// The known fields of that global, without functions.
    pub(crate) table: Map<String, Value>,
    /// Names of the functions in that global.
    pub(crate) functions: Vec<String>,
    #[serde(skip)]
    display_name: String,
}

impl ScriptDefinition {
    /// Checks that the script has the configured kind and name, and the function of that kind.
    pub(crate) fn check_contract(&self, kind: ScriptKind, name: &str) -> Result<(), ScriptProblem> {
        let (global, function, signature) = kind.contract();
        if self.kind != global {
            let defined = &self.kind;
            return Err(self.problem(&format!(
                "the script must define the global table `{global}`; it defines `{defined}`"
            )));
        }
        if !self.functions.iter().any(|known| known == function) {
            return Err(self.problem(&format!("the script must define the function {signature}")));
        }
        match self.text_field("name")? {
            Some(declared) if declared == name => Ok(()),
            Some(declared) => Err(self.problem(&format!(
                "{global}.name is `{declared}` and the configuration calls it `{name}`: they must be the same"
            ))),
            None => Err(self.problem(&format!("{global}.name is missing: it must be \"{name}\""))),
        }
    }

    /// An optional field that must be a string.
    pub(crate) fn text_field(&self, field: &str) -> Result<Option<String>, ScriptProblem> {
        match self.table.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.problem(&format!(
                "{}.{field} must be a string, it is {}",
                self.kind,
                super::type_name(other)
            ))),
        }
    }

    /// A problem of the script.
    pub(crate) fn problem(&self, message: &str) -> ScriptProblem {
        problem(&self.display_name, message)
    }
}

/// The deadline of a script that runs within a call.
pub(crate) fn call_deadline(call: &Call, default: Duration) -> Instant {
    Instant::now() + call.time_left().min(default)
}

/// The providers that a script sees as globals: those whose name its source contains and no other global has.
pub(crate) fn provider_globals(source: &str, catalog: &Catalog) -> Vec<String> {
    let is_free = |name: &str| {
        // Scripts reach built-in providers through `context` and `sdk` only.
        BuiltinProvider::from_name(name).is_none()
            && !LANGUAGE_GLOBALS.contains(&name)
            && !HOST_APIS.iter().any(|api| api.name == name)
    };
    let is_mentioned = |name: &str| memmem::find(source.as_bytes(), name.as_bytes()).is_some();
    catalog
        .providers()
        .map(Identifier::as_str)
        .filter(|name| is_free(name) && is_mentioned(name))
        .map(|name| format!("{PROVIDER_PREFIX}{name}"))
        .collect()
}

/// Prefixes a message with the script's name, unless it begins with it.
fn problem(display_name: &str, message: &str) -> ScriptProblem {
    let is_prefixed = message.strip_prefix(display_name).is_some_and(|rest| rest.starts_with(':'));
    let message = if is_prefixed { message.to_owned() } else { format!("{display_name}: {message}") };
    ScriptProblem { message }
}

fn read_bounded(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let not_regular = || io::Error::other("it is not a file");
    // Checked before opening: to open a FIFO would block until somebody writes to it.
    if !std::fs::metadata(path)?.is_file() {
        return Err(not_regular());
    }
    let mut source = Vec::new();
    File::open(path)?.take(bytes_max as u64 + 1).read_to_end(&mut source)?;
    if source.len() > bytes_max {
        return Err(io::Error::other(format!("it is larger than {} KiB", bytes_max / 1024)));
    }
    Ok(source)
}
