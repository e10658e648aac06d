//! The validated settings, as types.

use super::ConfigError;
use super::apis::{ApiSection, FrozenParameters};
use super::oauth::OAuthSettings;
use super::scripts::{
    AgentSection, ConnectorSection, InlineAgentSection, NamedSection, RawSections, SECTION_KINDS,
    ToolSection, read_sections,
};
use super::sync_interval::SyncInterval;
use super::tree::ConfigTable;
use super::upstreams::ServerSection;
use ctx_core::{Identifier, Limits, Redactor, Secret};
use ctx_http::{Access, HttpLimits};
use ctx_knowledge::{
    Chunking, EmbedderSettings, EmbeddingOptions, ExtractionSettings, FillMode, PROVIDERS, SearchMode,
    SearchTuning,
};
use ctx_luau::{EngineSettings, ScriptLimits};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Value of `embedding.provider` that turns embeddings off.
const DISABLED: &str = "disabled";
/// Minimum size of a chunk in tokens.
const CHUNK_TOKENS_MIN: usize = 16;
/// Memory limit of text extraction, per byte of `limits.document_bytes`.
const MEMORY_PER_DOCUMENT_BYTE: usize = 10;

/// The settings of a workspace.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Where documents are stored.
    pub(crate) db: DbSettings,
    /// How documents are split.
    pub(crate) chunking: ChunkingSettings,
    /// Search settings.
    pub(crate) retrieval: RetrievalSettings,
    /// The embedding model for semantic search.
    pub(crate) embedding: EmbeddingSettings,
    /// The HTTP server.
    pub(crate) server: ServerSettings,
    /// Limits; every limit has a default.
    pub(crate) limits: LimitSettings,
    /// The sources of documents, by kind and name.
    #[serde(default)]
    #[schemars(skip)]
    pub(crate) connectors: RawSections,
    /// The user's own tools, by kind and name.
    #[serde(default)]
    #[schemars(skip)]
    pub(crate) tools: RawSections,
    /// Agents, by kind and name.
    #[serde(default)]
    #[schemars(skip)]
    pub(crate) agents: RawSections,
    /// Upstream MCP servers, whose tools scripts can call: `[mcp_servers.<name>]`.
    #[serde(default)]
    pub(crate) mcp_servers: BTreeMap<String, ServerSection>,
    /// HTTP services with an OpenAPI description, whose operations scripts can call: `[apis.<name>]`.
    #[serde(default)]
    pub(crate) apis: BTreeMap<String, ApiSection>,
    /// Parameter values that are sent to every API with these parameters, such as `api_version = "v2"`;
    /// callers neither see nor set them. A variable that is not set is an error here.
    #[serde(default)]
    pub(super) frozen_params: FrozenParameters,
}

/// `[db]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DbSettings {
    /// The store's file, relative to the workspace; in the user's data folder when absent. Anybody who can
    /// change files in the workspace can replace a database in it, for example with a `git pull`.
    pub(crate) path: Option<PathBuf>,
}

/// `[chunking]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChunkingSettings {
    /// Maximum number of tokens per chunk.
    max_tokens: usize,
    /// Number of tokens at the end of a chunk that the next chunk repeats.
    overlap_tokens: usize,
}

/// `[retrieval]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetrievalSettings {
    /// Search mode of queries without one: `keyword`, `semantic` or `hybrid`. Without embeddings, `hybrid`
    /// here means `keyword`.
    pub(crate) mode: SearchMode,
    /// Number of results of queries without a limit.
    pub(crate) final_limit: NonZeroU32,
    /// Number of candidate chunks from the keyword index (BM25).
    candidate_k_keyword: NonZeroU32,
    /// Number of candidate chunks from the vector index.
    candidate_k_vector: NonZeroU32,
    /// Weight of the semantic score against the keyword score in `hybrid`, from 0 to 1; by default the best
    /// measured value for the model.
    hybrid_alpha: Option<f64>,
    /// The relevance floor: a document without a word of the query is left out if the cosine of its embedding
    /// and the query's is below this, from -1 (nothing is left out) to 1. By default the measured value for a
    /// built-in model, and no floor for other models.
    min_cosine: Option<f64>,
}

/// `[embedding]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmbeddingSettings {
    /// The embedding provider: `builtin`, `local`, `openai`, `ollama`, or `disabled` for no embeddings.
    provider: String,
    /// The model; of the built-in ones, `fast` is used at once, and `best` takes over from `fast` when it has
    /// embedded every document.
    model: Option<String>,
    /// When embeddings of the model are computed: `behind`, in the background while serving, or `wait`,
    /// before a sync ends.
    fill: FillMode,
    /// Number of dimensions of an embedding, for models with several sizes.
    dims: Option<NonZeroU32>,
    /// The base URL of the model's API, such as `https://api.openai.com/v1`.
    url: Option<String>,
    /// The API key for `url`.
    pub(crate) api_key: Option<Secret>,
    /// The folder of a `local` model, relative to the workspace.
    path: Option<PathBuf>,
    /// Number of texts per request.
    batch_size: Option<NonZeroU32>,
    /// Seconds one request may take.
    timeout: NonZeroU32,
}

/// `[server]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerSettings {
    /// Address and port to listen on. Anything but a loopback address needs a token or `[server.oauth]`.
    pub(crate) bind: String,
    /// The bearer token that callers must send in the `Authorization` header; without one, and without
    /// `[server.oauth]`, callers are not authenticated.
    pub(crate) token: Option<Secret>,
    /// Host names to accept besides loopback and the bound address.
    allowed_hosts: Vec<String>,
    /// Origins of web pages that may call the server, such as `https://app.example.com`.
    allowed_origins: Vec<String>,
    /// The authorization server whose access tokens (JWTs) are accepted, in addition to `token`.
    #[schemars(with = "OAuthSettings")]
    pub(crate) oauth: Option<OAuthSettings>,
}

/// `[limits]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitSettings {
    /// Seconds one call may take.
    script_timeout: NonZeroU32,
    /// Nested calls that one call may make.
    script_calls: NonZeroU32,
    /// Megabytes of memory that a script may use.
    script_memory_mb: NonZeroU32,
    /// Maximum number of scripts that run concurrently.
    script_workers: NonZeroU32,
    /// Maximum size of a script's result, in bytes.
    script_result_bytes: NonZeroU32,
    /// Maximum size of a script's log output per run, in bytes.
    script_log_bytes: NonZeroU32,
    /// Maximum size of a script's source, in bytes.
    script_source_bytes: NonZeroU32,
    /// HTTP requests that one run of a tool or an agent may make.
    script_http_requests: NonZeroU32,
    /// Maximum size of a tool's result, in bytes, for tools of every kind.
    result_bytes: NonZeroU32,
    /// Maximum size of an answer of `execute`, in bytes; a larger result is kept for an hour and can be read
    /// in parts.
    answer_bytes: NonZeroU32,
    /// Seconds an upstream server may take to start and to list its tools.
    pub(super) upstream_start_timeout: NonZeroU32,
    /// Seconds one call of an upstream server may take.
    pub(super) upstream_timeout: NonZeroU32,
    /// Maximum size of a message from an upstream server, in bytes.
    pub(super) upstream_message_bytes: NonZeroU32,
    /// Maximum number of concurrent calls of one upstream server.
    pub(super) upstream_calls: NonZeroU32,
    /// Maximum number of tools of one upstream server.
    pub(super) upstream_tools: NonZeroU32,
    /// Seconds one call of an API may take.
    pub(super) api_timeout: NonZeroU32,
    /// Maximum size of a response of an API, in bytes.
    pub(super) api_response_bytes: NonZeroU32,
    /// Maximum number of concurrent calls of one API.
    pub(super) api_calls: NonZeroU32,
    /// Maximum size of a document that text is extracted from, in bytes.
    pub(crate) document_bytes: NonZeroU64,
    /// Maximum size of a request body, in bytes.
    http_body_bytes: NonZeroU32,
    /// Maximum size of a request's headers, in bytes.
    http_header_bytes: NonZeroU32,
    /// Seconds in which a request's headers must arrive.
    http_header_timeout: NonZeroU32,
    /// Seconds in which a request's body must arrive.
    http_body_timeout: NonZeroU32,
    /// Maximum number of concurrent connections.
    http_connections: NonZeroU32,
    /// Maximum number of concurrent connections from one address. Behind a reverse proxy, which is one
    /// address, set it to `http_connections`.
    http_connections_per_peer: NonZeroU32,
    /// Seconds that requests in flight get to finish when the server stops.
    drain_timeout: NonZeroU32,
}

/// The keys of every `[connectors.<kind>.<name>]`, besides those of its connector.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SourceSettings {
    /// Tags for all of its documents.
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    /// The interval at which a server syncs it, such as `30s`, `15m`, `2h` or `1d`; no schedule when absent.
    pub(crate) every: Option<SyncInterval>,
    /// Whether a server watches it, if the connector supports that, and syncs it after changes; `true` when
    /// absent.
    #[serde(default = "default_true")]
    pub(crate) watch: bool,
}

fn default_true() -> bool {
    true
}

impl Settings {
    /// The chunking settings.
    pub(crate) fn chunking(&self) -> Chunking {
        let ChunkingSettings { max_tokens, overlap_tokens } = self.chunking;
        Chunking { max_tokens, overlap_tokens }
    }

    /// The settings of candidate retrieval and scoring.
    pub(crate) fn tuning(&self) -> SearchTuning {
        SearchTuning {
            keyword_candidates: self.retrieval.candidate_k_keyword.get() as usize,
            vector_candidates: self.retrieval.candidate_k_vector.get() as usize,
            hybrid_alpha: self.retrieval.hybrid_alpha,
            min_cosine: self.retrieval.min_cosine,
        }
    }

    /// The embedding model; `None` if embeddings are disabled.
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

    /// The limits of calls.
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

    /// The limits of scripts, and the settings of the engine.
    pub(crate) fn script_limits(&self, engine: EngineSettings) -> (EngineSettings, ScriptLimits) {
        let limits = &self.limits;
        let defaults = ScriptLimits::default();
        let memory_bytes = (limits.script_memory_mb.get() as usize).saturating_mul(1 << 20);
        let script_limits = ScriptLimits {
            timeout: seconds(limits.script_timeout),
            memory_bytes,
            connector_memory_bytes: defaults.connector_memory_bytes.max(memory_bytes),
            result_bytes: limits.script_result_bytes.get() as usize,
            log_bytes: limits.script_log_bytes.get() as usize,
            source_bytes: limits.script_source_bytes.get() as usize,
            http_requests: limits.script_http_requests.get(),
            document_bytes: usize::try_from(limits.document_bytes.get()).unwrap_or(usize::MAX),
            ..defaults
        };
        let engine = EngineSettings {
            workers_max: limits.script_workers.get() as usize,
            memory_bytes_max: script_limits.connector_memory_bytes,
            ..engine
        };
        (engine, script_limits)
    }

    /// The settings of text extraction; `settings` holds the defaults.
    pub(crate) fn extraction(&self, settings: ExtractionSettings) -> ExtractionSettings {
        let document_bytes = usize::try_from(self.limits.document_bytes.get()).unwrap_or(usize::MAX);
        let memory_bytes_max =
            settings.memory_bytes_max.max(document_bytes.saturating_mul(MEMORY_PER_DOCUMENT_BYTE));
        ExtractionSettings { memory_bytes_max, ..settings }
    }

    fn sections(&self, group: &str) -> &RawSections {
        match group {
            "tools" => &self.tools,
            "agents" => &self.agents,
            _ => &self.connectors,
        }
    }

    /// The sections of script tools.
    pub(crate) fn script_tools(&self) -> Vec<NamedSection<ToolSection>> {
        read_sections(&self.tools, "tools", "script")
    }

    /// The sections of script agents.
    pub(crate) fn script_agents(&self) -> Vec<NamedSection<AgentSection>> {
        read_sections(&self.agents, "agents", "script")
    }

    /// The sections of inline agents.
    pub(crate) fn inline_agents(&self) -> Vec<NamedSection<InlineAgentSection>> {
        read_sections(&self.agents, "agents", "inline")
    }

    /// The sections of script connectors, with the keys that every source may have.
    pub(crate) fn script_connectors(&self) -> Vec<(NamedSection<ConnectorSection>, SourceSettings)> {
        let common = |name: &str| {
            let fields = self.connectors.get("script")?.get(name)?;
            SourceSettings::deserialize(Value::Object(fields.clone())).ok()
        };
        let found = read_sections(&self.connectors, "connectors", "script").into_iter();
        let with_common = |section: NamedSection<ConnectorSection>| {
            let common = common(&section.name)?;
            Some((section, common))
        };
        found.filter_map(with_common).collect()
    }

    /// The limits of HTTP requests.
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

    /// The access rules of the HTTP server, without OAuth.
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

/// Deserializes and validates a merged tree; errors name key, file and line.
pub(super) fn read(tree: &ConfigTable) -> Result<Settings, ConfigError> {
    let settings: Settings = serde_path_to_error::deserialize(tree.to_json()).map_err(|error| {
        let path: Vec<String> = error.path().to_string().split('.').map(str::to_owned).collect();
        // The message would quote the wrong value, which may be a secret.
        let is_header = path.len() > 3 && path[0] == "apis" && path[2] == "headers";
        let is_secret = is_header || path.last().is_some_and(|key| Redactor::is_secret_key(key));
        let message = if is_secret { "has the wrong type".to_owned() } else { error.inner().to_string() };
        ConfigError::one(problem_at(tree, &path, &message))
    })?;
    let mut problems = Vec::new();
    let mut problem = |key: &str, message: String| {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        problems.push(problem_at(tree, &path, &message));
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
            problems.push(problem_at(tree, &path.map(str::to_owned).collect::<Vec<_>>(), &message));
        }
    }
    for (name, api) in &settings.apis {
        for (key, message) in api.problems(name) {
            let path = ["apis", name, key].into_iter().filter(|part| !part.is_empty());
            problems.push(problem_at(tree, &path.map(str::to_owned).collect::<Vec<_>>(), &message));
        }
    }
    problems.extend(collisions(&settings, tree));
    if problems.is_empty() { Ok(settings) } else { Err(ConfigError { problems }) }
}

/// Finds APIs whose identifier is taken. Colliding server names are numbered instead.
fn collisions(settings: &Settings, tree: &ConfigTable) -> Vec<String> {
    let servers = settings.mcp_servers.keys().map(|name| ("mcp_servers", name));
    let mut used_names: BTreeMap<Identifier, (&str, &String)> =
        servers.map(|(group, name)| (Identifier::sanitize(name), (group, name))).collect();
    let mut problems = Vec::new();
    for name in settings.apis.keys() {
        let identifier = Identifier::sanitize(name);
        if let Some((group, other)) = used_names.get(&identifier) {
            let message = format!(
                "has the same name in scripts as [{group}.{other}], `{identifier}`; rename one of them"
            );
            problems.push(problem_at(tree, &["apis".to_owned(), name.clone()], &message));
        }
        used_names.entry(identifier).or_insert(("apis", name));
    }
    problems
}

/// The path of a key in a section, or of the section if the error names no key.
fn section_key(group: &str, kind: &str, name: &str, key: &str) -> String {
    match key {
        "." | "?" => format!("{group}.{kind}.{name}"),
        key => format!("{group}.{kind}.{name}.{key}"),
    }
}

fn problem_at(tree: &ConfigTable, path: &[String], message: &str) -> String {
    let position = tree.origin_of(path).map_or_else(String::new, |origin| format!("{origin}: "));
    format!("{position}`{}`: {message}", path.join("."))
}
