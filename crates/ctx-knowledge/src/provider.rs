//! The `context` provider: search and documents as tools (`search`, `get`, `sources`).
//!
//! Requests and responses have the published shapes; their schemas are generated from the types here.

use crate::knowledge::Knowledge;
use crate::resources::DocumentResources;
use crate::search::{Hit, SearchError, SearchMode, SearchQuery};
use crate::work_queue;
use async_trait::async_trait;
use ctx_core::{
    Annotations, BuiltinProvider, Call, ErrorKind, Identifier, Output, Provider, Resources, Tool, ToolError,
    ToolSpec, input_schema, output_schema,
};
use ctx_store::{Filters, StoreError, StoredDocument};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The provider of `context.search`, `context.get`, `context.sources` and of documents as resources.
pub struct ContextProvider {
    knowledge: Arc<Knowledge>,
}

impl ContextProvider {
    /// Wraps a knowledge base.
    pub fn new(knowledge: Arc<Knowledge>) -> Self {
        Self { knowledge }
    }
}

impl Provider for ContextProvider {
    fn name(&self) -> Identifier {
        BuiltinProvider::Context.identifier()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let knowledge = &self.knowledge;
        vec![
            Arc::new(SearchTool { spec: search_spec(knowledge.final_limit()), knowledge: knowledge.clone() }),
            Arc::new(GetTool { spec: get_spec(), knowledge: knowledge.clone() }),
            Arc::new(SourcesTool { spec: sources_spec(), knowledge: knowledge.clone() }),
        ]
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        Some(Arc::new(DocumentResources::new(self.knowledge.clone())))
    }

    fn builtin(&self) -> bool {
        true
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchRequest {
    /// What to look for, in plain words.
    query: String,
    /// How to search; the workspace decides when absent.
    #[schemars(with = "String", extend("enum" = ["keyword", "semantic", "hybrid"]))]
    mode: Option<SearchMode>,
    /// How many results at most; more than 100 is cut to 100.
    #[schemars(with = "u64", range(min = 1))]
    limit: f64,
    /// What may be found at all.
    filters: Option<FilterRequest>,
    /// Whether each result says where its score comes from.
    #[serde(default)]
    explain: bool,
    /// Whether the last word may be the beginning of one, as while typing.
    #[serde(default)]
    prefix: bool,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FilterRequest {
    /// A source (`git:platform`) or a kind of source (`git`).
    source: Option<String>,
    /// Tags the document must have, all of them.
    tags: Option<Vec<String>>,
    /// Changed at this time or later (ISO 8601).
    since: Option<String>,
    /// Changed at this time or earlier (ISO 8601).
    until: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SearchResponse {
    /// Best first.
    results: Vec<Hit>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetRequest {
    /// The document's id, from a search result.
    #[schemars(extend("format" = "uuid"))]
    id: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SourcesRequest {}

#[derive(Debug, Serialize, JsonSchema)]
struct SourcesResponse {
    /// Every source, configured or only remembered.
    sources: Vec<SourceEntry>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SourceEntry {
    /// Its name, `kind:name`.
    name: String,
    /// Whether the configuration has it.
    configured: bool,
    /// Whether it can be read and its last sync went well.
    healthy: bool,
    /// What there is to say about it.
    notes: Option<String>,
}

struct SearchTool {
    spec: Arc<ToolSpec>,
    knowledge: Arc<Knowledge>,
}

#[async_trait]
impl Tool for SearchTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn run(&self, arguments: Map<String, Value>, _: &Call) -> Result<Output, ToolError> {
        let request: SearchRequest = parse_arguments(arguments)?;
        let filters = request.filters.unwrap_or_default();
        let query = SearchQuery {
            text: request.query,
            mode: request.mode,
            // The cast saturates: a larger limit means the maximum.
            limit: request.limit as usize,
            filters: Filters {
                source: filters.source,
                tags: filters.tags.unwrap_or_default(),
                since: parse_time_parameter("filters.since", filters.since.as_deref(), false)?,
                until: parse_time_parameter("filters.until", filters.until.as_deref(), true)?,
            },
            explain: request.explain,
            prefix: request.prefix,
        };
        let knowledge = self.knowledge.clone();
        let queue = match knowledge.asks_service(query.mode) {
            true => &work_queue::REMOTE_SEARCHES,
            false => &work_queue::SEARCHES,
        };
        let results = queue.run(move || knowledge.search(&query)).await?.map_err(search_tool_error)?;
        to_output(&SearchResponse { results })
    }
}

struct GetTool {
    spec: Arc<ToolSpec>,
    knowledge: Arc<Knowledge>,
}

#[async_trait]
impl Tool for GetTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn run(&self, arguments: Map<String, Value>, _: &Call) -> Result<Output, ToolError> {
        let request: GetRequest = parse_arguments(arguments)?;
        let id: Uuid = request
            .id
            .parse()
            .map_err(|_| ToolError::bad_request("parameter `id`: its value is not a UUID"))?;
        let knowledge = self.knowledge.clone();
        let document = work_queue::READS.run(move || knowledge.get(id)).await?.map_err(store_tool_error)?;
        to_output(&document.ok_or_else(|| ToolError::not_found(format!("no document with id: {id}")))?)
    }
}

struct SourcesTool {
    spec: Arc<ToolSpec>,
    knowledge: Arc<Knowledge>,
}

#[async_trait]
impl Tool for SourcesTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn run(&self, _: Map<String, Value>, _: &Call) -> Result<Output, ToolError> {
        let statuses = self.knowledge.sources().await.map_err(store_tool_error)?;
        let sources = statuses
            .into_iter()
            .map(|status| SourceEntry {
                name: status.name,
                configured: status.configured,
                healthy: status.healthy,
                notes: status.notes,
            })
            .collect();
        to_output(&SourcesResponse { sources })
    }
}

fn search_spec(final_limit: usize) -> Arc<ToolSpec> {
    let mut input = input_schema::<SearchRequest>();
    if let Some(limit) = input["properties"]["limit"].as_object_mut() {
        limit.insert("default".to_owned(), Value::from(final_limit));
        // `format` is a hint for generators of Rust types; any integer is valid.
        limit.shift_remove("format");
    }
    // Parameters that are optional or have a default are not required.
    input["required"] = Value::from(vec!["query"]);
    spec::<SearchResponse>(
        "search",
        "Search knowledge",
        "Search the knowledge base. Finds documents by words and by meaning and returns the part that matches.",
        input,
    )
}

fn get_spec() -> Arc<ToolSpec> {
    let input = input_schema::<GetRequest>();
    spec::<StoredDocument>(
        "get",
        "Get a document",
        "Get one document by id: its whole text and its chunks.",
        input,
    )
}

fn sources_spec() -> Arc<ToolSpec> {
    let input = input_schema::<SourcesRequest>();
    spec::<SourcesResponse>(
        "sources",
        "List sources",
        "List the sources of the knowledge base and their health.",
        input,
    )
}

fn spec<Response: JsonSchema>(
    name: &str,
    title: &str,
    description: &str,
    input_schema: Value,
) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        title: Some(title.to_owned()),
        output_schema: Some(output_schema::<Response>().into()),
        annotations: Annotations::READ_ONLY,
        ..ToolSpec::new(name, description, input_schema)
    })
}

/// Parses a timestamp, or a date, which stands for its first or last instant (UTC).
pub fn parse_time(text: &str, end_of_day: bool) -> Option<Timestamp> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(timestamp);
    }
    let date: Date = text.parse().ok()?;
    let time = if end_of_day { date.at(23, 59, 59, 999_999_999) } else { date.at(0, 0, 0, 0) };
    time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

fn parse_time_parameter(
    name: &str,
    text: Option<&str>,
    end_of_day: bool,
) -> Result<Option<Timestamp>, ToolError> {
    text.map(|text| {
        parse_time(text, end_of_day).ok_or_else(|| {
            ToolError::bad_request(format!(
                "parameter `{name}`: its value is not an ISO 8601 time like 2026-01-31 or 2026-01-31T12:00:00Z"
            ))
        })
    })
    .transpose()
}

fn parse_arguments<T: for<'de> Deserialize<'de>>(arguments: Map<String, Value>) -> Result<T, ToolError> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| ToolError::bad_request(error.to_string()))
}

fn to_output(value: &impl Serialize) -> Result<Output, ToolError> {
    let value = serde_json::to_value(value)
        .map_err(|error| ToolError::internal("cannot serialize the result", error))?;
    Ok(Output::from(value))
}

fn search_tool_error(error: SearchError) -> ToolError {
    match error {
        SearchError::EmptyQuery => ToolError::bad_request(error.to_string()),
        SearchError::EmbeddingsDisabled(_) => {
            ToolError::new(ErrorKind::EmbeddingsDisabled, error.to_string())
        }
        SearchError::Building => {
            ToolError::new(ErrorKind::Overloaded, error.to_string()).with_retry_after(Duration::from_secs(1))
        }
        SearchError::Embedder(_) => ToolError::new(ErrorKind::Tool, error.to_string()),
        SearchError::Store(error) => store_tool_error(error),
        SearchError::View(_) => ToolError::internal("the keyword index failed", error),
    }
}

pub(crate) fn store_tool_error(error: StoreError) -> ToolError {
    ToolError::internal("the store failed", error)
}
