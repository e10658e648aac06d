//! One script: its text, what it says of itself, and how it is run.

use crate::engine::{Entry, RunErrorKind, ScriptRun};
use crate::host::{HOST_APIS, SERVER_PREFIX};
use crate::scripts::{Inner, ScriptProblem, ScriptSettings};
use crate::vm::LANGUAGE;
use crate::world::{AllowedHosts, NoWorld};
use ctx_core::{BuiltinProvider, Call, Catalog, Identifier};
use memchr::memmem;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a script may take to say what it is.
const DESCRIBE_TIME: Duration = Duration::from_secs(10);

/// What a script can be configured as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tool,
    Connector,
    Agent,
}

impl Kind {
    /// The global it defines, the function it must have, and how that is called.
    fn contract(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Tool => ("tool", "execute", "tool.execute(params, context)"),
            Self::Connector => ("connector", "scan", "connector.scan(config, cursor)"),
            Self::Agent => ("agent", "resolve", "agent.resolve(args, config, context)"),
        }
    }
}

/// A script that was read, and may be run often.
pub(crate) struct Script {
    pub(crate) inner: Arc<Inner>,
    /// How errors call it.
    pub(crate) shown: String,
    /// Its own directory; one that was sent has none.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) allowed_hosts: AllowedHosts,
    pub(crate) settings: Option<ScriptSettings>,
    source: Arc<[u8]>,
}

impl Script {
    /// Reads a configured script.
    pub(crate) async fn read(inner: &Arc<Inner>, settings: &ScriptSettings) -> Result<Self, ScriptProblem> {
        let ScriptSettings { path, shown, .. } = settings;
        let allowed_hosts = AllowedHosts::new(&settings.allow_hosts)
            .map_err(|error| problem(shown, &format!("allow_hosts: {error}")))?;
        let (file, bytes_max) = (path.clone(), inner.limits.source_bytes);
        let read = tokio::task::spawn_blocking(move || read_bounded(&file, bytes_max)).await;
        let source = match read {
            Ok(Ok(source)) => source,
            Ok(Err(error)) => return Err(problem(shown, &format!("the script cannot be read: {error}"))),
            Err(_) => return Err(problem(shown, "the script cannot be read")),
        };
        Ok(Self {
            inner: inner.clone(),
            shown: shown.clone(),
            directory: path.parent().map(Path::to_path_buf),
            allowed_hosts,
            settings: Some(settings.clone()),
            source: source.into(),
        })
    }

    /// A script that was sent, not configured.
    pub(crate) fn sent(inner: &Arc<Inner>, shown: &str, source: &str) -> Self {
        Self {
            inner: inner.clone(),
            shown: shown.to_owned(),
            directory: None,
            allowed_hosts: AllowedHosts::default(),
            settings: None,
            source: source.as_bytes().into(),
        }
    }

    /// Its name in the configuration.
    pub(crate) fn name(&self) -> &str {
        self.settings.as_ref().map_or(&self.shown, |settings| &settings.name)
    }

    /// What its section of the configuration says.
    pub(crate) fn config(&self) -> Value {
        self.settings.as_ref().map_or_else(|| Value::Object(Map::new()), |settings| settings.config.clone())
    }

    /// How long it may run.
    pub(crate) fn timeout(&self, usual: Duration) -> Duration {
        self.settings.as_ref().and_then(|settings| settings.timeout).unwrap_or(usual)
    }

    /// A run of it, as long and as deep as any.
    pub(crate) fn run(&self, entry: Entry, arguments: Vec<Value>) -> ScriptRun {
        let limits = &self.inner.limits;
        let apis = HOST_APIS.iter().filter(|api| api.entries.contains(&entry));
        ScriptRun {
            chunk_name: self.shown.clone(),
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

    /// What it says of itself. It runs to its end for that, but cannot reach anything.
    pub(crate) async fn describe(&self) -> Result<Told, ScriptProblem> {
        let mut run = self.run(Entry::Describe, Vec::new());
        run.deadline = Instant::now() + DESCRIBE_TIME;
        let completed = self.inner.engine.run(&run, &NoWorld).await;
        let completed = completed.map_err(|error| match error.kind {
            RunErrorKind::Time => {
                self.problem(&format!("it took longer than {} seconds to load", DESCRIBE_TIME.as_secs()))
            }
            _ => self.problem(&self.inner.redactor.text(error.message)),
        })?;
        let told = serde_json::from_value(completed.value);
        let told: Told = told.map_err(|error| self.problem(&error.to_string()))?;
        Ok(Told { shown: self.shown.clone(), ..told })
    }

    /// What is wrong with it.
    pub(crate) fn problem(&self, message: &str) -> ScriptProblem {
        problem(&self.shown, message)
    }
}

/// What a script says of itself.
#[derive(Deserialize)]
pub(crate) struct Told {
    /// The global that it defines.
    pub(crate) kind: String,
    /// What is in that, besides functions.
    pub(crate) table: Map<String, Value>,
    /// The functions in it.
    pub(crate) functions: Vec<String>,
    #[serde(skip)]
    shown: String,
}

impl Told {
    /// Whether it is what it was configured as.
    pub(crate) fn must_be(&self, kind: Kind, name: &str) -> Result<(), ScriptProblem> {
        let (global, function, signature) = kind.contract();
        if self.kind != global {
            let found = &self.kind;
            return Err(self.problem(&format!(
                "the script must define the global table `{global}`; it defines `{found}`"
            )));
        }
        if !self.functions.iter().any(|known| known == function) {
            return Err(self.problem(&format!("the script must define the function {signature}")));
        }
        match self.text("name")? {
            Some(own) if own == name => Ok(()),
            Some(own) => Err(self.problem(&format!(
                "{global}.name is `{own}` and the configuration calls it `{name}`: they must be the same"
            ))),
            None => Err(self.problem(&format!("{global}.name is missing: it must be \"{name}\""))),
        }
    }

    /// A field that is text.
    pub(crate) fn text(&self, field: &str) -> Result<Option<String>, ScriptProblem> {
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

    /// What is wrong with the script.
    pub(crate) fn problem(&self, message: &str) -> ScriptProblem {
        problem(&self.shown, message)
    }
}

/// Until when a script may run inside of a call.
pub(crate) fn deadline(call: &Call, usual: Duration) -> Instant {
    Instant::now() + call.time_left().min(usual)
}

/// The providers that a script may use as globals of their own, of those that its text names.
pub(crate) fn servers(source: &str, catalog: &Catalog) -> Vec<String> {
    let is_free = |name: &str| {
        // Scripts reach these by `context` and `sdk` alone.
        BuiltinProvider::named(name).is_none()
            && !LANGUAGE.contains(&name)
            && !HOST_APIS.iter().any(|api| api.name == name)
    };
    let used = |name: &str| memmem::find(source.as_bytes(), name.as_bytes()).is_some();
    catalog
        .providers()
        .map(Identifier::as_str)
        .filter(|name| is_free(name) && used(name))
        .map(|name| format!("{SERVER_PREFIX}{name}"))
        .collect()
}

/// Puts the script's name before what is wrong with it, unless it is there.
fn problem(shown: &str, message: &str) -> ScriptProblem {
    let named = message.strip_prefix(shown).is_some_and(|rest| rest.starts_with(':'));
    let message = if named { message.to_owned() } else { format!("{shown}: {message}") };
    ScriptProblem { message }
}

fn read_bounded(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let not_regular = || io::Error::other("it is not a file");
    // Before it is opened: some that are none would wait for somebody to write.
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
