//! What is true: every setting, with a type.

use super::ConfigError;
use super::apis::{ApiSection, Frozen};
use super::every::Every;
use super::oauth::OAuthSettings;
use super::scripts::{
    AgentSection, ConnectorSection, InlineAgentSection, SECTION_KINDS, Section, Sections, ToolSection,
    sections,
};
use super::tree::Table;
use super::upstreams::ServerSection;
use ctx_core::{Identifier, Limits, Redactor, Secret};
use ctx_http::{Access, HttpLimits};
use ctx_knowledge::{
    Chunking, EmbedderSettings, EmbeddingOptions, ExtractionSettings, Fill, Mode, PROVIDERS, Tuning,
};
use ctx_luau::{EngineSettings, ScriptLimits};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The provider that is none.
const DISABLED: &str = "disabled";
/// Fewer tokens would be no chunk.
const CHUNK_TOKENS_MIN: usize = 16;
/// Memory that reading a document may take, for each byte of the largest that is read.
const MEMORY_PER_DOCUMENT_BYTE: usize = 10;

/// The settings of a workspace.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Where documents are stored.
    pub(crate) db: DbSettings,
    /// How documents are split.
    pub(crate) chunking: ChunkingSettings,
    /// How to search.
    pub(crate) retrieval: RetrievalSettings,
    /// What documents are found by meaning with.
    pub(crate) embedding: EmbeddingSettings,
    /// The HTTP server.
    pub(crate) server: ServerSettings,
    /// Bounds; none can be absent.
    pub(crate) limits: LimitSettings,
    /// Where documents come from, by kind and name.
    #[serde(default)]
    #[schemars(skip)]
    pub(crate) connectors: Sections,
    /// Tools of the user's own, by kind and name.
    #[serde(default)]
    #[schemars(skip)]
    pub(crate) tools: Sections,
    /// Personas, by kind and name.
    #[serde(default)]
    #[schemars(skip)]
    pub(crate) agents: Sections,
    /// Upstream MCP servers, whose tools scripts can call: `[mcp_servers.<name>]`.
    #[serde(default)]
    pub(crate) mcp_servers: BTreeMap<String, ServerSection>,
    /// Services with an OpenAPI description, whose operations scripts can call: `[apis.<name>]`.
    #[serde(default)]
    pub(crate) apis: BTreeMap<String, ApiSection>,
    /// Values of parameters that are sent to every API that has them, and that callers neither see nor give, like
    /// `api_version = "v2"`. A variable that is not set is an error here.
    #[serde(default)]
    pub(super) frozen_params: Frozen,
}

/// `[db]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DbSettings {
    /// The store's file, relative to the workspace; in a folder of the user's when absent. A database that lies in
    /// the workspace can be replaced by whoever can change its files, with a `git pull` for one.
    pub(crate) path: Option<PathBuf>,
}

/// `[chunking]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChunkingSettings {
    /// The most tokens a chunk holds.
    max_tokens: usize,
    /// How many tokens the next chunk repeats.
    overlap_tokens: usize,
}

/// `[retrieval]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetrievalSettings {
    /// How to search when a query does not say: `keyword`, `semantic` or `hybrid`. Without
    /// embeddings, `hybrid` here means `keyword`.
    pub(crate) mode: Mode,
    /// How many results when a query does not say.
    pub(crate) final_limit: NonZeroU32,
    /// How many chunks are taken by words, to be weighed.
    candidate_k_keyword: NonZeroU32,
    /// How many chunks are taken by meaning, to be weighed.
    candidate_k_vector: NonZeroU32,
    /// How much meaning counts beside words in `hybrid`, from 0 to 1; by default what did best for
    /// the model.
    hybrid_alpha: Option<f64>,
    /// The relevance floor: a document that has no word of the query is left out when the cosine of its meaning and the
    /// query's is below this, from -1 (nothing is left out) to 1. By default what was measured for a built-in model,
    /// and none for others.
    min_cosine: Option<f64>,
}

/// `[embedding]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmbeddingSettings {
    /// Who makes vectors: `builtin`, `local`, `openai`, `ollama`, or `disabled` for nobody.
    provider: String,
    /// Which model; `best` or `fast` of the built-in ones, where `fast` alone is used at once and
    /// `best` takes over when it has read everything.
    model: Option<String>,
    /// When vectors of the model are made: `behind`, while serving, or `wait`, before a sync ends.
    fill: Fill,
    /// How many numbers a vector has, where the model can make several sizes.
    dims: Option<NonZeroU32>,
    /// Where the model is served, like `https://api.openai.com/v1`.
    url: Option<String>,
    /// What to show there.
    pub(crate) api_key: Option<Secret>,
    /// The folder of a `local` model, relative to the workspace.
    path: Option<PathBuf>,
    /// Texts in one request.
    batch_size: Option<NonZeroU32>,
    /// Seconds one request may take.
    timeout: NonZeroU32,
}

/// `[server]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerSettings {
    /// Address and port. Anything but a loopback address needs a token, or `[server.oauth]`.
    pub(crate) bind: String,
    /// What callers must send as `Authorization: Bearer`; without one, and without `[server.oauth]`, none
    /// is needed.
    pub(crate) token: Option<Secret>,
    /// Host names to answer to besides loopback and the bound address.
    allowed_hosts: Vec<String>,
    /// Origins of web pages that may call, like `https://app.example.com`.
    allowed_origins: Vec<String>,
    /// Whose access tokens let callers in, besides `token`: JWTs of one authorization server.
    #[schemars(with = "OAuthSettings")]
    pub(crate) oauth: Option<OAuthSettings>,
}

/// `[limits]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitSettings {
    /// Seconds one call may take.
    script_timeout: NonZeroU32,
    /// Calls one call may make inside it.
    script_calls: NonZeroU32,
    /// Megabytes of memory that a script may use.
    script_memory_mb: NonZeroU32,
    /// Scripts that may run at once.
    script_workers: NonZeroU32,
    /// Bytes of a script's result.
    script_result_bytes: NonZeroU32,
    /// Bytes of what a script may log in one run.
    script_log_bytes: NonZeroU32,
    /// Bytes of a script.
    script_source_bytes: NonZeroU32,
    /// HTTP requests that one run of a tool or an agent may make.
    script_http_requests: NonZeroU32,
    /// Bytes of a tool's result, whatever it is made of.
    result_bytes: NonZeroU32,
    /// Bytes of an answer of `execute`; a larger result is kept for a while, to be read in parts.
    answer_bytes: NonZeroU32,
    /// Seconds an upstream server may take to start and to list its tools.
    pub(super) upstream_start_timeout: NonZeroU32,
    /// Seconds one call of an upstream server may take.
    pub(super) upstream_timeout: NonZeroU32,
    /// Bytes of one message from an upstream server.
    pub(super) upstream_message_bytes: NonZeroU32,
    /// Calls of one upstream server at once.
    pub(super) upstream_calls: NonZeroU32,
    /// Tools of one upstream server.
    pub(super) upstream_tools: NonZeroU32,
    /// Seconds one call of an API may take.
    pub(super) api_timeout: NonZeroU32,
    /// Bytes of one answer of an API.
    pub(super) api_response_bytes: NonZeroU32,
    /// Calls of one API at once.
    pub(super) api_calls: NonZeroU32,
    /// Bytes of a document to extract text from.
    pub(crate) document_bytes: NonZeroU64,
    /// Bytes of a request's body.
    http_body_bytes: NonZeroU32,
    /// Bytes of a request's headers.
    http_header_bytes: NonZeroU32,
    /// Seconds for a request's headers to arrive.
    http_header_timeout: NonZeroU32,
    /// Seconds for a request's body to arrive.
    http_body_timeout: NonZeroU32,
    /// Connections at once.
    http_connections: NonZeroU32,
    /// Connections of one address at once. Behind a reverse proxy, which is one address, set it to `http_connections`.
    http_connections_per_peer: NonZeroU32,
    /// Seconds for requests in flight to finish when the server stops.
    drain_timeout: NonZeroU32,
}

/// What every `[connectors.<kind>.<name>]` may have besides its connector's own keys.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SourceSettings {
    /// Tags that all its documents get.
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    /// How often a server syncs it, like `30s`, `15m`, `2h` or `1d`; not on schedule when absent.
    pub(crate) every: Option<Every>,
    /// Whether a server watches it, where it can be watched, and syncs it when it changes; `true`
    /// when absent.
    #[serde(default = "yes")]
    pub(crate) watch: bool,
}

fn yes() -> bool {
    true
}

impl Settings {
    /// How documents are split.
    pub(crate) fn chunking(&self) -> Chunking {
        let ChunkingSettings { max_tokens, overlap_tokens } = self.chunking;
        Chunking { max_tokens, overlap_tokens }
    }

    /// How candidates are gathered and weighed.
    pub(crate) fn tuning(&self) -> Tuning {
        Tuning {
            keyword_candidates: self.retrieval.candidate_k_keyword.get() as usize,
            vector_candidates: self.retrieval.candidate_k_vector.get() as usize,
            hybrid_alpha: self.retrieval.hybrid_alpha,
            min_cosine: self.retrieval.min_cosine,
        }
    }

    /// How vectors are made; `None` when nobody makes them.
    pub(crate) fn embedding(&self, root: &Path) -> Result<Option<EmbeddingOptions>, String> {
        let settings = &self.embedding;
        if settings.provider == DISABLED {
            return Ok(None);
        }
        let Some(kind) = PROVIDERS.iter().find(|kind| kind.name == settings.provider) else {
            let known: Vec<&str> = PROVIDERS.iter().map(|kind| kind.name).chain([DISABLED]).collect();
            return Err(format!("provider: `{}` is none of {}", settings.provider, known.join(", ")));
        };
        let embedder = (kind.open)(&EmbedderSettings {
            model: settings.model.clone(),
            dimensions: settings.dims.map(|dims| dims.get() as usize),
            url: settings.url.clone(),
            api_key: settings.api_key.clone(),
            path: settings.path.as_ref().map(|path| root.join(path)),
            batch_size: settings.batch_size.map(|size| size.get() as usize),
            timeout: seconds(settings.timeout),
        })?;
        if self.chunking.max_tokens > embedder.max_tokens() {
            return Err(format!(
                "the model reads {} tokens, and `chunking.max_tokens` is {}",
                embedder.max_tokens(),
                self.chunking.max_tokens
            ));
        }
        Ok(Some(EmbeddingOptions { embedder, fill: settings.fill }))
    }

    /// Bounds on calls.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            call_timeout: seconds(self.limits.script_timeout),
            nested_calls: self.limits.script_calls.get(),
            argument_bytes: self.limits.http_body_bytes.get() as usize,
            result_bytes: self.limits.result_bytes.get() as usize,
            answer_bytes: self.limits.answer_bytes.get() as usize,
            ..Limits::default()
        }
    }

    /// Bounds on scripts, and how many run at once.
    pub(crate) fn script_limits(&self, engine: EngineSettings) -> (EngineSettings, ScriptLimits) {
        let limits = &self.limits;
        let usual = ScriptLimits::default();
        let memory_bytes = (limits.script_memory_mb.get() as usize).saturating_mul(1 << 20);
        let script_limits = ScriptLimits {
            timeout: seconds(limits.script_timeout),
            memory_bytes,
            connector_memory_bytes: usual.connector_memory_bytes.max(memory_bytes),
            result_bytes: limits.script_result_bytes.get() as usize,
            log_bytes: limits.script_log_bytes.get() as usize,
            source_bytes: limits.script_source_bytes.get() as usize,
            http_requests: limits.script_http_requests.get(),
            document_bytes: usize::try_from(limits.document_bytes.get()).unwrap_or(usize::MAX),
            ..usual
        };
        let engine = EngineSettings {
            workers_max: limits.script_workers.get() as usize,
            memory_bytes_max: script_limits.connector_memory_bytes,
            ..engine
        };
        (engine, script_limits)
    }

    /// Bounds on reading documents.
    pub(crate) fn extraction(&self, settings: ExtractionSettings) -> ExtractionSettings {
        let document_bytes = usize::try_from(self.limits.document_bytes.get()).unwrap_or(usize::MAX);
        let memory_bytes_max =
            settings.memory_bytes_max.max(document_bytes.saturating_mul(MEMORY_PER_DOCUMENT_BYTE));
        ExtractionSettings { memory_bytes_max, ..settings }
    }

    fn sections(&self, group: &str) -> &Sections {
        match group {
            "tools" => &self.tools,
            "agents" => &self.agents,
            _ => &self.connectors,
        }
    }

    /// Tools made of scripts.
    pub(crate) fn script_tools(&self) -> Vec<Section<ToolSection>> {
        sections(&self.tools, "tools", "script")
    }

    /// Agents made of scripts.
    pub(crate) fn script_agents(&self) -> Vec<Section<AgentSection>> {
        sections(&self.agents, "agents", "script")
    }

    /// Agents written down.
    pub(crate) fn inline_agents(&self) -> Vec<Section<InlineAgentSection>> {
        sections(&self.agents, "agents", "inline")
    }

    /// Sources that scripts read.
    pub(crate) fn script_connectors(&self) -> Vec<(Section<ConnectorSection>, SourceSettings)> {
        let common = |name: &str| {
            let fields = self.connectors.get("script")?.get(name)?;
            SourceSettings::deserialize(Value::Object(fields.clone())).ok()
        };
        let found = sections(&self.connectors, "connectors", "script").into_iter();
        let with_common = |section: Section<ConnectorSection>| {
            let common = common(&section.name)?;
            Some((section, common))
        };
        found.filter_map(with_common).collect()
    }

    /// Bounds on requests.
    pub(crate) fn http_limits(&self) -> HttpLimits {
        HttpLimits {
            body_bytes: self.limits.http_body_bytes.get() as usize,
            header_bytes: self.limits.http_header_bytes.get() as usize,
            header_timeout: seconds(self.limits.http_header_timeout),
            body_timeout: seconds(self.limits.http_body_timeout),
            connections: self.limits.http_connections.get() as usize,
            connections_per_peer: self.limits.http_connections_per_peer.get() as usize,
            drain: seconds(self.limits.drain_timeout),
        }
    }

    /// Who may call, besides those who come with an access token.
    pub(crate) fn access(&self) -> Access {
        Access {
            token: self.server.token.clone(),
            oauth: None,
            allowed_hosts: self.server.allowed_hosts.clone(),
            allowed_origins: self.server.allowed_origins.clone(),
        }
    }
}

pub(super) fn seconds(count: NonZeroU32) -> Duration {
    Duration::from_secs(u64::from(count.get()))
}

/// Understands a merged tree; errors name key, file and line.
pub(super) fn read(tree: &Table) -> Result<Settings, ConfigError> {
    let settings: Settings = serde_path_to_error::deserialize(tree.to_json()).map_err(|error| {
        let path: Vec<String> = error.path().to_string().split('.').map(str::to_owned).collect();
        // What is wrong may be the secret itself.
        let is_header = path.len() > 3 && path[0] == "apis" && path[2] == "headers";
        let is_secret = is_header || path.last().is_some_and(|key| Redactor::is_secret_key(key));
        let message = if is_secret { "has the wrong type".to_owned() } else { error.inner().to_string() };
        ConfigError::one(located(tree, &path, &message))
    })?;
    let mut problems = Vec::new();
    let mut problem = |key: &str, message: String| {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        problems.push(located(tree, &path, &message));
    };
    let ChunkingSettings { max_tokens, overlap_tokens } = settings.chunking;
    if max_tokens < CHUNK_TOKENS_MIN {
        problem("chunking.max_tokens", format!("must be at least {CHUNK_TOKENS_MIN}"));
    }
    if overlap_tokens > max_tokens / 2 {
        problem("chunking.overlap_tokens", "must be at most half of `chunking.max_tokens`".to_owned());
    }
    if settings.retrieval.hybrid_alpha.is_some_and(|alpha| !(0.0..=1.0).contains(&alpha)) {
        problem("retrieval.hybrid_alpha", "must be between 0 and 1".to_owned());
    }
    if settings.retrieval.min_cosine.is_some_and(|cosine| !(-1.0..=1.0).contains(&cosine)) {
        problem("retrieval.min_cosine", "must be between -1 and 1".to_owned());
    }
    if settings.server.token.as_ref().is_some_and(|token| token.expose().is_empty()) {
        problem("server.token", "must not be empty".to_owned());
    }
    for (key, message) in settings.server.oauth.iter().flat_map(OAuthSettings::problems) {
        problem(&key, message);
    }
    for (kind, sources) in &settings.connectors {
        for (name, source) in sources {
            let read: Result<SourceSettings, _> =
                serde_path_to_error::deserialize(Value::Object(source.clone()));
            if let Err(error) = read {
                problem(&format!("connectors.{kind}.{name}.{}", error.path()), error.inner().to_string());
            }
        }
    }
    for kind in SECTION_KINDS {
        for (name, fields) in settings.sections(kind.group).get(kind.kind).into_iter().flatten() {
            if let Err((key, message)) = kind.check(fields) {
                problem(&section_key(kind.group, kind.kind, name, &key), message);
            }
        }
    }
    for (name, server) in &settings.mcp_servers {
        for (key, message) in server.problems(name) {
            let path = ["mcp_servers", name, key].into_iter().filter(|part| !part.is_empty());
            problems.push(located(tree, &path.map(str::to_owned).collect::<Vec<_>>(), &message));
        }
    }
    for (name, api) in &settings.apis {
        for (key, message) in api.problems(name) {
            let path = ["apis", name, key].into_iter().filter(|part| !part.is_empty());
            problems.push(located(tree, &path.map(str::to_owned).collect::<Vec<_>>(), &message));
        }
    }
    problems.extend(collisions(&settings, tree));
    if problems.is_empty() { Ok(settings) } else { Err(ConfigError { problems }) }
}

/// APIs that go by a name that is another's. Servers among themselves are told apart by a number.
fn collisions(settings: &Settings, tree: &Table) -> Vec<String> {
    let servers = settings.mcp_servers.keys().map(|name| ("mcp_servers", name));
    let mut taken: BTreeMap<Identifier, (&str, &String)> =
        servers.map(|(group, name)| (Identifier::sanitize(name), (group, name))).collect();
    let mut problems = Vec::new();
    for name in settings.apis.keys() {
        let identifier = Identifier::sanitize(name);
        if let Some((group, other)) = taken.get(&identifier) {
            let message = format!(
                "goes by the name `{identifier}`, and so does [{group}.{other}]; give one of them another"
            );
            problems.push(located(tree, &["apis".to_owned(), name.clone()], &message));
        }
        taken.entry(identifier).or_insert(("apis", name));
    }
    problems
}

/// The path of a key in a section; of the section itself where no key is to blame.
fn section_key(group: &str, kind: &str, name: &str, key: &str) -> String {
    match key {
        "." | "?" => format!("{group}.{kind}.{name}"),
        key => format!("{group}.{kind}.{name}.{key}"),
    }
}

fn located(tree: &Table, path: &[String], message: &str) -> String {
    let place = tree.origin_of(path).map_or_else(String::new, |origin| format!("{origin}: "));
    format!("{place}`{}`: {message}", path.join("."))
}
