//! Conversions between rmcp's types and ours.

use ctx_core::{
    AgentSpec, Annotations, ArgumentSchema, Call, CatalogEntry, ContentBlock, ErrorKind, LogLine,
    NestedCallStats, Output, Progress, Question, QuestionError, QuestionKind, Resource, ResourceContent,
    ResourceTemplate, Role, Schema, ToolError, ToolSpec, escape_invisible, is_call_tool_result, json_size,
};
use rmcp::ErrorData;
use rmcp::model::{
    self as mcp, CallToolResult, ClientCapabilities, ErrorCode, GetPromptResult, InputRequest, JsonObject,
    LoggingLevel, ProgressNotificationParam, ProgressToken, PromptMessage, ResourceContents, ServerRequest,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Bytes of the schema of an elicitation form.
const FORM_BYTES_MAX: usize = 64 << 10;

/// A tool in MCP terms. Its schemas are passed on unchanged.
pub(crate) fn tool(entry: &CatalogEntry) -> mcp::Tool {
    let spec = &entry.spec;
    let description =
        if spec.description.is_empty() { entry.name.outward() } else { spec.description.clone() };
    let mut tool =
        mcp::Tool::new(entry.name.outward(), description, Arc::new(object_schema(&spec.input_schema.get())));
    tool.title.clone_from(&spec.title);
    let output_schema = spec.output_schema.as_ref().map(Schema::get);
    let is_object = |schema: &&JsonObject| schema.get("type").is_some_and(|kind| kind == "object");
    let of_object = output_schema.as_deref().and_then(Value::as_object).filter(is_object);
    tool.output_schema = of_object.map(|schema| Arc::new(schema.clone()));
    tool.annotations = annotations(spec.annotations);
    tool
}

/// MCP clients accept only object schemas as a tool's input schema.
fn object_schema(schema: &Value) -> JsonObject {
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert_with(|| json!("object"));
    schema
}

fn annotations(known: Annotations) -> Option<mcp::ToolAnnotations> {
    let Annotations { read_only, destructive, idempotent, open_world } = known;
    (known != Annotations::default())
        .then(|| mcp::ToolAnnotations::from_raw(None, read_only, destructive, idempotent, open_world))
}

/// An agent as an MCP prompt.
pub(crate) fn prompt(agent: &AgentSpec) -> mcp::Prompt {
    let arguments = agent.arguments.iter().map(|argument| {
        let shown = mcp::PromptArgument::new(&argument.name).with_required(argument.required);
        match argument.description.as_str() {
            "" => shown,
            description => shown.with_description(description),
        }
    });
    let description = if agent.description.is_empty() { &agent.name } else { &agent.description };
    let mut prompt =
        mcp::Prompt::new(agent.name.clone(), Some(description.clone()), Some(arguments.collect()));
    prompt.title.clone_from(&agent.title);
    prompt
}

/// A resolved agent: its instructions, then its messages. MCP prompts have no system role, so system messages
/// become user messages.
pub(crate) fn prompt_messages(prompt: ctx_core::Prompt) -> GetPromptResult {
    let system = (!prompt.system.is_empty())
        .then(|| PromptMessage::new(mcp::Role::User, mcp::ContentBlock::text(prompt.system)));
    let messages = prompt.messages.into_iter().flat_map(|message| {
        let role = match message.role {
            Role::Assistant => mcp::Role::Assistant,
            Role::User | Role::System => mcp::Role::User,
        };
        message.content.into_iter().map(move |part| PromptMessage::new(role.clone(), block(part)))
    });
    GetPromptResult::new(system.into_iter().chain(messages).collect())
}

/// A content block; a type that MCP does not define becomes text with its JSON.
fn block(block: ContentBlock) -> mcp::ContentBlock {
    match block {
        ContentBlock::Text(text) => mcp::ContentBlock::text(text),
        ContentBlock::Other(fields) => {
            let fields = Value::Object(fields);
            serde_json::from_value(fields.clone())
                .unwrap_or_else(|_| mcp::ContentBlock::text(fields.to_string()))
        }
    }
}

/// `_meta` keys of a result: the number of nested calls, and the bytes of their results that were not sent.
const CALLS_KEY: &str = "ctx/calls";
const BYTES_KEPT_KEY: &str = "ctx/bytes_kept";

/// A tool's output as an MCP result. `has_output_schema`: the tool's listing promises an object.
pub(crate) fn tool_result(output: Output, has_output_schema: bool) -> CallToolResult {
    let inside = output.nested_calls;
    with_nested_usage(result_without_meta(output, has_output_schema), inside)
}

fn with_nested_usage(mut result: CallToolResult, inside: NestedCallStats) -> CallToolResult {
    let NestedCallStats { calls, bytes_kept } = inside;
    if calls > 0 {
        let meta = &mut result.meta.get_or_insert_default().0;
        meta.insert(CALLS_KEY.to_owned(), calls.into());
        meta.insert(BYTES_KEPT_KEY.to_owned(), bytes_kept.into());
    }
    result
}

fn result_without_meta(output: Output, has_output_schema: bool) -> CallToolResult {
    if let Some(result) = as_result(&output) {
        return result;
    }
    let structured = output.structured().cloned().map(Value::Object);
    if has_output_schema && structured.is_none() {
        let message = "the tool has an output schema, but its result is not an object";
        return tool_failure(&ToolError::new(ErrorKind::Tool, message));
    }
    let mut content: Vec<_> = output.to_blocks().into_iter().map(block).collect();
    content.extend(logs(&output.logs));
    let mut result = CallToolResult::success(content);
    result.structured_content = structured;
    result
}

/// A structured output that is a complete MCP result already: content blocks and the fields beside them.
fn as_result(output: &Output) -> Option<CallToolResult> {
    let fields = output.structured().filter(|_| output.content.is_empty())?;
    if !is_call_tool_result(fields) {
        return None;
    }
    // Fails where a block lacks more than ctx-core checks.
    let mut result: CallToolResult = serde_json::from_value(Value::Object(fields.clone())).ok()?;
    result.result_type = Some(mcp::ResultType::COMPLETE);
    Some(result)
}

/// A tool's error as a result with `isError`, so that the model can correct its call.
pub(crate) fn tool_failure(error: &ToolError) -> CallToolResult {
    let mut message = error.message().to_owned();
    if let Some(seconds) = error.retry_after_seconds() {
        message.push_str(&format!(" (retry after {seconds} s)"));
    }
    let content = std::iter::once(mcp::ContentBlock::text(message)).chain(logs(error.logs()));
    with_nested_usage(CallToolResult::error(content.collect()), error.nested_calls())
}

/// Log lines as a content block of their own.
fn logs(lines: &[LogLine]) -> Option<mcp::ContentBlock> {
    if lines.is_empty() {
        return None;
    }
    let lines: Vec<String> = lines.iter().map(|line| format!("[{}] {}", line.level, line.message)).collect();
    Some(mcp::ContentBlock::text(format!("logs:\n{}", lines.join("\n"))))
}

/// An error of the request itself, as a JSON-RPC error.
pub(crate) fn rpc_error(error: &ToolError) -> ErrorData {
    let code = match error.kind() {
        ErrorKind::NotFound | ErrorKind::BadRequest | ErrorKind::TooLarge => ErrorCode::INVALID_PARAMS,
        _ => ErrorCode::INTERNAL_ERROR,
    };
    ErrorData::new(code, error.message().to_owned(), Some(json!({ "code": error.kind().code() })))
}

pub(crate) fn resource(resource: Resource) -> mcp::Resource {
    let mut mcp_resource = mcp::Resource::new(resource.uri, resource.name);
    mcp_resource.title = resource.title;
    mcp_resource.description = resource.description;
    mcp_resource.mime_type = resource.mime_type;
    mcp_resource.size = resource.size;
    let metadata = OptionalMetadata::of(resource.more);
    (mcp_resource.annotations, mcp_resource.icons, mcp_resource.meta) =
        (metadata.annotations, metadata.icons, metadata.meta);
    mcp_resource
}

pub(crate) fn resource_template(template: ResourceTemplate) -> mcp::ResourceTemplate {
    let mut mcp_template = mcp::ResourceTemplate::new(template.uri_template, template.name);
    mcp_template.title = template.title;
    mcp_template.description = template.description;
    mcp_template.mime_type = template.mime_type;
    let metadata = OptionalMetadata::of(template.more);
    (mcp_template.annotations, mcp_template.icons, mcp_template.meta) =
        (metadata.annotations, metadata.icons, metadata.meta);
    mcp_template
}

pub(crate) fn resource_contents(content: ResourceContent) -> ResourceContents {
    let ResourceContent { uri, mime_type, text, blob, more } = content;
    let meta = OptionalMetadata::of(more).meta;
    match blob {
        Some(blob) => ResourceContents::BlobResourceContents { uri, mime_type, blob, meta },
        None => {
            let text = text.unwrap_or_default();
            ResourceContents::TextResourceContents { uri, mime_type, text, meta }
        }
    }
}

/// Optional metadata of a resource; fields that MCP does not define are dropped.
#[derive(Default, Deserialize)]
struct OptionalMetadata {
    annotations: Option<mcp::Annotations>,
    icons: Option<Vec<mcp::Icon>>,
    #[serde(rename = "_meta")]
    meta: Option<mcp::MetaObject>,
}

impl OptionalMetadata {
    fn of(more: JsonObject) -> Self {
        if more.is_empty() {
            return Self::default();
        }
        serde_json::from_value(Value::Object(more)).unwrap_or_default()
    }
}

pub(crate) fn progress(token: ProgressToken, progress: Progress) -> ProgressNotificationParam {
    let mut param = ProgressNotificationParam::new(token, progress.done);
    param.total = progress.total;
    param.message = progress.message;
    param
}

pub(crate) fn logging_level(level: tracing::Level) -> LoggingLevel {
    match level {
        tracing::Level::ERROR => LoggingLevel::Error,
        tracing::Level::WARN => LoggingLevel::Warning,
        tracing::Level::INFO => LoggingLevel::Info,
        _ => LoggingLevel::Debug,
    }
}

/// A question (elicitation, sampling or roots) as an MCP input request; [`QuestionError::Unaskable`] if MCP has
/// no form for it, or its schema is too large.
pub(crate) fn input_request(want: &QuestionKind) -> Result<InputRequest, QuestionError> {
    let request = match want {
        QuestionKind::Elicitation { schema, .. } if json_size(schema) > FORM_BYTES_MAX => {
            return Err(QuestionError::UnsupportedSchema);
        }
        QuestionKind::Elicitation { message, schema } => json!({
            "method": "elicitation/create",
            "params": { "mode": "form", "message": message, "requestedSchema": schema },
        }),
        QuestionKind::Sampling(request) => {
            let mut request = request.clone();
            request.entry("maxTokens").or_insert_with(|| json!(1000));
            json!({ "method": "sampling/createMessage", "params": request })
        }
        QuestionKind::Roots => json!({ "method": "roots/list", "params": {} }),
    };
    serde_json::from_value(request).map_err(|_| QuestionError::UnsupportedSchema)
}

/// An input request as a server-to-client request, for clients of older revisions.
pub(crate) fn server_request(request: InputRequest) -> Option<ServerRequest> {
    match request {
        InputRequest::CreateMessage(request) => Some(ServerRequest::CreateMessageRequest(request)),
        InputRequest::Elicitation(request) => Some(ServerRequest::ElicitRequest(request)),
        InputRequest::ListRoots(request) => Some(ServerRequest::ListRootsRequest(request)),
        _ => None,
    }
}

/// The answer in a client's response, checked against the schema.
pub(crate) fn parse_answer(want: &QuestionKind, response: Value) -> Result<Value, QuestionError> {
    let Value::Object(mut response) = response else { return Err(QuestionError::InvalidAnswer) };
    match want {
        QuestionKind::Elicitation { schema, .. } => match response.get("action").and_then(Value::as_str) {
            Some("accept") => {
                let content = response.remove("content").unwrap_or_else(|| json!({}));
                let schema =
                    ArgumentSchema::compile(schema.clone()).map_err(|_| QuestionError::UnsupportedSchema)?;
                schema
                    .prepare_nonblocking(content)
                    .map(Value::Object)
                    .map_err(|_| QuestionError::InvalidAnswer)
            }
            Some("decline") => Err(QuestionError::Declined),
            Some("cancel") => Err(QuestionError::Cancelled),
            _ => Err(QuestionError::InvalidAnswer),
        },
        QuestionKind::Sampling(_) if response.contains_key("content") => Ok(Value::Object(response)),
        QuestionKind::Roots => match response.remove("roots") {
            Some(roots @ Value::Array(_)) => Ok(roots),
            _ => Err(QuestionError::InvalidAnswer),
        },
        QuestionKind::Sampling(_) => Err(QuestionError::InvalidAnswer),
    }
}

/// Whether a client has the capability to answer a question.
pub(crate) fn can_answer(client: &ClientCapabilities, question: &Question) -> bool {
    match question.kind {
        // A client that names no elicitation mode supports the original one, forms.
        QuestionKind::Elicitation { .. } => {
            client.elicitation.as_ref().is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
        }
        QuestionKind::Sampling(_) => client.sampling.is_some(),
        QuestionKind::Roots => client.roots.is_some(),
    }
}

/// The capability that a client needs to answer a question.
pub(crate) fn required_capability(want: &QuestionKind) -> ClientCapabilities {
    let capability = match want {
        QuestionKind::Elicitation { .. } => "elicitation",
        QuestionKind::Sampling(_) => "sampling",
        QuestionKind::Roots => "roots",
    };
    serde_json::from_value(json!({ capability: {} })).unwrap_or_default()
}

/// Bytes of an upstream server's error text that are passed on.
const FAILURE_BYTES_MAX: usize = 16 << 10;

/// An upstream server's tool as a spec. Its schemas are passed on unchanged.
pub(crate) fn tool_spec(tool: mcp::Tool) -> ToolSpec {
    let hints = tool.annotations.unwrap_or_default();
    ToolSpec {
        name: tool.name.into_owned(),
        title: tool.title.or(hints.title),
        description: tool.description.unwrap_or_default().into_owned(),
        input_schema: schema_text(&tool.input_schema),
        output_schema: tool.output_schema.map(|schema| schema_text(&schema)),
        annotations: Annotations {
            read_only: hints.read_only_hint,
            destructive: hints.destructive_hint,
            idempotent: hints.idempotent_hint,
            open_world: hints.open_world_hint,
        },
        tags: tool.meta.map(|meta| tags(&meta.0)).unwrap_or_default(),
        body: None,
    }
}

/// A schema as text: a server may have thousands of tools, of which few are called.
fn schema_text(schema: &Arc<JsonObject>) -> Schema {
    Schema::as_text(&**schema).unwrap_or_else(|| Value::Object((**schema).clone()).into())
}

/// Keys of `_meta` under which some servers keep tags; FastMCP has used two.
const TAG_META_KEYS: [&str; 2] = ["fastmcp", "_fastmcp"];

/// The tags of an upstream server's tool. MCP defines none, so values that are no valid tags are skipped.
fn tags(meta: &JsonObject) -> Vec<String> {
    let namespaced = TAG_META_KEYS.iter().filter_map(|key| meta.get(*key)?.get("tags"));
    let lists = meta.get("tags").into_iter().chain(namespaced).filter_map(Value::as_array);
    let mut tags: Vec<String> = Vec::new();
    for tag in lists.flatten().filter_map(Value::as_str).map(str::trim).filter(|tag| ToolSpec::is_tag(tag)) {
        if tags.len() < ToolSpec::TAGS_MAX && !tags.iter().any(|known| known == tag) {
            tags.push(tag.to_owned());
        }
    }
    tags
}

/// An upstream tool's result as an output; `rewrite_uris` is applied to each content block.
pub(crate) fn output(result: CallToolResult, rewrite_uris: impl Fn(&mut Value)) -> Result<Output, ToolError> {
    let block = |block: mcp::ContentBlock| {
        let mut block = serde_json::to_value(block).ok()?;
        rewrite_uris(&mut block);
        ContentBlock::from_json(block)
    };
    let content: Vec<ContentBlock> = result.content.into_iter().filter_map(block).collect();
    if result.is_error == Some(true) {
        let texts = content.iter().filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.as_str()),
            ContentBlock::Other(fields) => fields.get("text").and_then(Value::as_str),
        });
        let message = texts.collect::<Vec<_>>().join("\n");
        let message = if message.is_empty() { "the tool failed" } else { truncate(&message) };
        return Err(ToolError::new(ErrorKind::Tool, message));
    }
    Ok(Output { value: result.structured_content.unwrap_or_default(), content, ..Output::default() })
}

/// A JSON-RPC error of an upstream server.
pub(crate) fn server_error(error: &ErrorData) -> ToolError {
    let kind = match error.code {
        ErrorCode::INVALID_PARAMS => ErrorKind::BadRequest,
        ErrorCode::RESOURCE_NOT_FOUND => ErrorKind::NotFound,
        _ => ErrorKind::Tool,
    };
    ToolError::new(kind, escape_invisible(truncate(&error.message)))
}

fn truncate(text: &str) -> &str {
    &text[..text.floor_char_boundary(FAILURE_BYTES_MAX)]
}

/// A progress notification of an upstream server.
pub(crate) fn progress_from_server(params: ProgressNotificationParam) -> Progress {
    Progress { done: params.progress, total: params.total, message: params.message }
}

/// A log notification of an upstream server.
pub(crate) fn log_from_server(params: mcp::LoggingMessageNotificationParam) -> (tracing::Level, String) {
    let level = match params.level {
        LoggingLevel::Debug => tracing::Level::DEBUG,
        LoggingLevel::Info | LoggingLevel::Notice => tracing::Level::INFO,
        LoggingLevel::Warning => tracing::Level::WARN,
        _ => tracing::Level::ERROR,
    };
    let message = match params.data {
        Value::String(text) => text,
        other => other.to_string(),
    };
    (level, escape_invisible(truncate(&message)).into_owned())
}

/// An upstream server's elicitation; `None` unless it asks for a form.
pub(crate) fn want_from_elicitation(request: &mcp::ElicitRequestParams) -> Option<QuestionKind> {
    match request {
        mcp::ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            Some(QuestionKind::Elicitation {
                message: escape_invisible(message).into_owned(),
                schema: serde_json::to_value(requested_schema).ok()?,
            })
        }
        _ => None,
    }
}

/// An upstream server's sampling request.
pub(crate) fn want_from_sampling(
    params: &mcp::CreateMessageRequestParams,
) -> Result<QuestionKind, QuestionError> {
    match serde_json::to_value(params) {
        Ok(Value::Object(mut request)) => {
            request.remove("_meta");
            Ok(QuestionKind::Sampling(request))
        }
        _ => Err(QuestionError::UnsupportedSchema),
    }
}

/// The answer to an elicitation, as MCP's result.
pub(crate) fn elicit_result(answer: Result<Value, QuestionError>) -> mcp::ElicitResult {
    match answer {
        Ok(content) => mcp::ElicitResult::new(mcp::ElicitationAction::Accept).with_content(content),
        Err(QuestionError::Declined) => mcp::ElicitResult::new(mcp::ElicitationAction::Decline),
        Err(_) => mcp::ElicitResult::new(mcp::ElicitationAction::Cancel),
    }
}

/// Has the call's peer answer an upstream server's input request. Fails if there is no answer that the server
/// could accept.
pub(crate) async fn input_response(
    key: &str,
    request: InputRequest,
    call: &Call,
) -> Result<Value, QuestionError> {
    let ask = |want| call.ask(Question { key: Some(key.to_owned()), kind: want });
    match request {
        InputRequest::Elicitation(request) => {
            let answer = match want_from_elicitation(&request.params) {
                Some(want) => ask(want).await,
                None => Err(QuestionError::Declined),
            };
            if let Err(QuestionError::Unsupported) = answer {
                return Err(QuestionError::Unsupported);
            }
            serde_json::to_value(elicit_result(answer)).map_err(|_| QuestionError::InvalidAnswer)
        }
        InputRequest::CreateMessage(request) => ask(want_from_sampling(&request.params)?).await,
        InputRequest::ListRoots(_) => {
            Ok(json!({ "roots": ask(QuestionKind::Roots).await.unwrap_or_else(|_| json!([])) }))
        }
        _ => Err(QuestionError::UnsupportedSchema),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_elicitation_form_that_is_too_large_is_refused() {
        let form = |bytes: usize| {
            let field = json!({"type": "string", "description": "x".repeat(bytes)});
            let schema = json!({"type": "object", "properties": {"name": field}});
            QuestionKind::Elicitation { message: "Who?".to_owned(), schema }
        };
        assert!(input_request(&form(FORM_BYTES_MAX / 2)).is_ok());
        assert!(matches!(input_request(&form(FORM_BYTES_MAX)), Err(QuestionError::UnsupportedSchema)));
    }

    #[test]
    fn tags_are_read_from_all_known_meta_keys() {
        let tags = |meta: Value| {
            let tool = json!({"name": "x", "inputSchema": {"type": "object"}, "_meta": meta});
            tool_spec(serde_json::from_value(tool).unwrap()).tags
        };
        assert_eq!(tags(json!({"tags": ["a", "b", "a"]})), ["a", "b"]);
        assert_eq!(tags(json!({"_fastmcp": {"tags": ["old"]}})), ["old"]);
        assert_eq!(tags(json!({"fastmcp": {"tags": ["new"]}, "tags": ["own"]})), ["own", "new"]);
        let long = "x".repeat(ToolSpec::TAG_BYTES_MAX + 1);
        assert_eq!(tags(json!({"tags": [1, null, "", " ", "a\nb", long, " fine "]})), ["fine"]);
        assert_eq!(tags(json!({"tags": {"a": 1}, "fastmcp": "x"})), [""; 0]);
        let many: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
        assert_eq!(tags(json!({ "tags": many })).len(), ToolSpec::TAGS_MAX);
    }
}
