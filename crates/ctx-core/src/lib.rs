//! Core types of Context Harness: what can be called, what can be read, and the catalog that runs every call.
//!
//! Traits and plain types only. Nothing here opens a file, a socket or a database, reads the environment or prints;
//! that is left to the crates that implement these traits.

mod address;
mod agent;
mod argument_schema;
mod body;
mod builtin;
mod call;
mod catalog;
mod completion;
mod content;
mod deadline;
mod defaults;
mod document;
mod effort;
mod error;
mod kept_file;
mod lazy_argument_schema;
mod limits;
mod live;
mod name;
mod nullable;
mod peer;
mod policy;
mod rate;
mod redact;
mod resource;
mod result_format;
mod result_observations;
mod retrieval_metrics;
mod run;
mod run_id;
mod schema;
mod scope;
mod secret;
mod secret_file;
mod suggest;
mod tool;
mod unique_keys;
mod visible;

pub use address::{AddressPolicy, ForbiddenAddress, NetworkScope};
pub use agent::{Agent, AgentArgument, AgentSource, AgentSpec, Message, Prompt, Role};
pub use argument_schema::{ArgumentSchema, SchemaError, json_schema};
pub use body::BodyArgument;
pub use builtin::BuiltinProvider;
pub use call::{ANSWER_TIME_MAX, Call, Caller};
pub use catalog::{Catalog, CatalogBuilder, CatalogEntry, json_size};
pub use completion::{CompletionRequest, CompletionTarget, Completions};
pub use content::ContentBlock;
pub use document::{
    Change, Connector, Cursor, Document, DocumentContent, KnownDocuments, Listing, PullResult, Signal, Sink,
    SinkClosed, SourceError, SourceName, Watch, Watcher,
};
pub use error::{ErrorKind, ToolError, error_chain};
pub use kept_file::{FILE_PREFIX, FileStore, StoredFile};
pub use limits::Limits;
pub use live::LiveCatalog;
pub use name::{Identifier, InvalidName, ToolName};
pub use nullable::{input_schema, output_schema};
pub use peer::{NoPeer, Peer, Progress, Question, QuestionError, QuestionKind};
pub use policy::{AllowAll, Decision, Identity, Policy};
pub use rate::{InvalidRate, RateLimit, RateLimiter};
pub use redact::{Redactor, is_ordinary_value};
pub use resource::{
    Resource, ResourceChange, ResourceContent, ResourcePage, ResourceSubscription, ResourceTemplate,
    Resources,
};
pub use result_format::{ResultFormat, is_call_tool_result};
pub use retrieval_metrics::RetrievalMetrics;
pub use run::{NestedCallStats, NoRunLog, Run, RunLog, RunOutcome};
pub use run_id::RunId;
pub use schema::Schema;
pub use scope::{InvalidScopes, ScopePolicy};
pub use secret::Secret;
pub use secret_file::{
    has_secret_name, is_example_environment, is_private_key, is_secret_file, secret_file_globs,
};
pub use suggest::{nearest, nearest_few};
pub use tool::{Annotations, LogLine, Output, Page, Provider, Tool, ToolSpec, summary_line};
pub use unique_keys::check_unique_keys;
pub use visible::{escape_invisible, escape_line, has_invisible};
