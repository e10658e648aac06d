//! The rmcp request handler: answers each MCP request from the catalog.

use super::catalog_request::{CatalogRequest, CatalogResponse};
use super::listing::{self, CatalogListing, PAGE_ENTRIES, decode_cursor, invalid_cursor, paginate};
use super::running_call::{DriveOutcome, RunningCall};
use super::session::{ClientSession, RequestClient, SUBSCRIPTIONS_MAX, client_name, is_stateless};
use super::{SharedState, auth, change_notifier, completion, methods};
use crate::convert;
use ctx_core::{
    Call, Caller, Catalog, Completions, ErrorKind, Identity, ResourceSubscription, ToolError, nearest,
};
use futures::future::{join, join_all};
use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult,
    CustomRequest, CustomResult, GetPromptRequestParams, GetPromptResponse, Implementation,
    InputRequiredResult, InputResponses, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::task::AbortOnDropHandle;

/// TTL of list results, in milliseconds.
const LIST_TTL_MS: u64 = 5_000;
/// Time limit for listing the resources of one page.
const PAGE_TIME_MAX: Duration = Duration::from_secs(5);

/// Serves one client of an older revision, or one request of a newer.
pub(super) struct McpHandler {
    shared: Arc<SharedState>,
    session: Arc<ClientSession>,
}

/// The outcome of a request that runs a call.
enum CallOutcome {
    Finished(Result<CatalogResponse, ToolError>),
    InputRequired(InputRequiredResult),
}

impl McpHandler {
    pub(super) fn new(shared: &Arc<SharedState>) -> Self {
        Self { shared: shared.clone(), session: Arc::default() }
    }

    async fn listing(&self) -> Arc<CatalogListing> {
        self.shared.wait_until_ready().await;
        self.shared.listings.get(self.shared.catalog.current())
    }

    /// A call from this client, on the current catalog.
    fn call(&self, context: &RequestContext<RoleServer>) -> Call {
        let call = Call::new(self.shared.catalog.current(), Caller::Mcp(client_name(context)));
        match identity(context) {
            Some(identity) => call.with_identity(identity),
            None => call,
        }
    }

    /// Subscribes to a resource at its origin, where the origin needs to know; dropping the result
    /// unsubscribes.
    async fn subscribe_at_origin(&self, uri: &str) -> Option<ResourceSubscription> {
        self.shared.wait_until_ready().await;
        let catalog = self.shared.catalog.current();
        catalog.origin(uri)?.subscribe(uri).await
    }

    /// Starts a call, or resumes a parked one, and drives it until this request can be answered.
    async fn run_call(
        &self,
        request: CatalogRequest,
        responses: Option<InputResponses>,
        state: Option<String>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallOutcome, ErrorData> {
        let identity = identity(context);
        let associated_data = associated_data(&request, identity.as_deref());
        let mut running = match state {
            Some(state) => self
                .shared
                .parked_calls
                .resume(&state, &associated_data)
                .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?,
            None => {
                let call = match auth::request_credentials(&context.meta)? {
                    Some(auth) => self.call(context).with_auth(auth),
                    None => self.call(context),
                };
                RunningCall::start(request, call, &self.shared.calls, &self.shared.cancel_calls)
            }
        };
        running.apply_responses(responses.unwrap_or_default());
        match running.drive(&RequestClient::of(context, &self.session)).await {
            DriveOutcome::Finished(ended) => Ok(CallOutcome::Finished(ended)),
            DriveOutcome::InputRequired(running, requests) => {
                match self.shared.parked_calls.park(running, &associated_data) {
                    Ok(state) => {
                        Ok(CallOutcome::InputRequired(InputRequiredResult::new(Some(requests), Some(state))))
                    }
                    Err(error) => Ok(CallOutcome::Finished(Err(ToolError::new(
                        ErrorKind::Overloaded,
                        error.to_string(),
                    )))),
                }
            }
            DriveOutcome::Cancelled => Err(ErrorData::internal_error("the request was cancelled", None)),
            DriveOutcome::MissingCapability(want) => {
                Err(ErrorData::missing_required_client_capability(convert::required_capability(&want)))
            }
        }
    }
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let settings = &self.shared.settings;
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_completions()
            .enable_logging()
            .build();
        let implementation =
            Implementation::new(&settings.name, &settings.version).with_title("Context Harness");
        ServerConfig::new(capabilities)
            .with_server_info(implementation)
            .with_instructions(&settings.instructions)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.listings.get(self.shared.catalog.current()).tool(name).cloned()
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listing = self.listing().await;
        let (tools, next) = paginate(&listing.tools, |tool| &tool.name, request)?;
        Ok(ListToolsResult {
            next_cursor: next,
            ttl_ms: Some(LIST_TTL_MS),
            cache_scope: Some(CacheScope::Private),
            ..ListToolsResult::with_all_items(tools)
        })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let listing = self.listing().await;
        let Some(tool) = listing.tool(&request.name) else {
            return Err(unknown_tool(&listing, &request.name));
        };
        let name = tool.name.to_string();
        let has_output_schema = tool.output_schema.is_some();
        let catalog_request = CatalogRequest::Tool { name, arguments: request.arguments.unwrap_or_default() };
        Ok(
            match self
                .run_call(catalog_request, request.input_responses, request.request_state, &context)
                .await?
            {
                CallOutcome::InputRequired(result) => result.into(),
                CallOutcome::Finished(Ok(CatalogResponse::Tool(output))) => {
                    convert::tool_result(output, has_output_schema).into()
                }
                CallOutcome::Finished(Ok(_)) => return Err(wrong_response_kind()),
                CallOutcome::Finished(Err(error)) => convert::tool_failure(&error).into(),
            },
        )
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let listing = self.listing().await;
        let (prompts, next) = paginate(&listing.prompts, |prompt| &prompt.name, request)?;
        Ok(ListPromptsResult {
            next_cursor: next,
            ttl_ms: Some(LIST_TTL_MS),
            cache_scope: Some(CacheScope::Private),
            ..ListPromptsResult::with_all_items(prompts)
        })
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.shared.wait_until_ready().await;
        let catalog_request =
            CatalogRequest::Prompt { name: request.name, arguments: request.arguments.unwrap_or_default() };
        match self.run_call(catalog_request, request.input_responses, request.request_state, &context).await?
        {
            CallOutcome::InputRequired(result) => Ok(result.into()),
            CallOutcome::Finished(Ok(CatalogResponse::Prompt(prompt))) => {
                Ok(convert::prompt_messages(prompt).into())
            }
            CallOutcome::Finished(Ok(_)) => Err(wrong_response_kind()),
            CallOutcome::Finished(Err(error)) => Err(convert::rpc_error(&error)),
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.shared.wait_until_ready().await;
        let completions = match completion::parse_request(request) {
            Some(completing) => Catalog::complete(&completing, self.call(&context)).await,
            None => Ok(Completions::default()),
        };
        completion::into_result(completions.map_err(|error| convert::rpc_error(&error))?)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let listing = self.listing().await;
        let origins = listing.catalog().resources();
        // The cursor of a page: the index of the origin, and that origin's own cursor.
        let (mut origin, mut from) = match decode_cursor(request)? {
            None => (0, None),
            Some(cursor) => {
                let (origin, from) = cursor.split_once(' ').ok_or_else(invalid_cursor)?;
                let origin = origin.parse().ok().filter(|origin| *origin < origins.len());
                let from = (!from.is_empty()).then(|| from.to_owned());
                (origin.ok_or_else(invalid_cursor)?, from)
            }
        };
        let mut resources = Vec::new();
        let until = Instant::now() + PAGE_TIME_MAX;
        // A slow origin ends this page early.
        while let Some(current) =
            origins.get(origin).filter(|_| resources.len() < PAGE_ENTRIES && Instant::now() < until)
        {
            let page = current.list(from.as_deref(), PAGE_ENTRIES - resources.len(), listing.catalog()).await;
            let page = page.map_err(|error| convert::rpc_error(&error))?;
            resources.extend(page.resources.into_iter().map(convert::resource));
            from = page.next;
            origin += usize::from(from.is_none());
        }
        let next = (origin < origins.len())
            .then(|| listing::encode_cursor(&format!("{origin} {}", from.as_deref().unwrap_or_default())));
        Ok(ListResourcesResult {
            next_cursor: next,
            ttl_ms: Some(LIST_TTL_MS),
            cache_scope: Some(CacheScope::Private),
            ..ListResourcesResult::with_all_items(resources)
        })
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let listing = self.listing().await;
        let origins = listing.catalog().resources().iter();
        let templates: Vec<_> =
            origins.flat_map(|origin| origin.templates()).map(convert::resource_template).collect();
        let (templates, next) = paginate(&templates, |template| &template.uri_template, request)?;
        Ok(ListResourceTemplatesResult {
            next_cursor: next,
            ttl_ms: Some(LIST_TTL_MS),
            cache_scope: Some(CacheScope::Private),
            ..ListResourceTemplatesResult::with_all_items(templates)
        })
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.shared.wait_until_ready().await;
        let uri = request.uri;
        let catalog_request = CatalogRequest::Read { uri: uri.clone() };
        match self.run_call(catalog_request, request.input_responses, request.request_state, &context).await?
        {
            CallOutcome::InputRequired(result) => Ok(result.into()),
            CallOutcome::Finished(Ok(CatalogResponse::Read(contents))) if !contents.is_empty() => {
                let contents = contents.into_iter().map(convert::resource_contents).collect();
                let mut result = ReadResourceResult::new(contents);
                // A sync may change the resource at any moment.
                (result.ttl_ms, result.cache_scope) = (Some(0), Some(CacheScope::Private));
                Ok(result.into())
            }
            CallOutcome::Finished(Ok(CatalogResponse::Read(_))) => {
                Err(ErrorData::resource_not_found("no resource has this URI", Some(json!({ "uri": uri }))))
            }
            CallOutcome::Finished(Ok(_)) => Err(wrong_response_kind()),
            CallOutcome::Finished(Err(error)) if error.kind() == ErrorKind::NotFound => {
                Err(ErrorData::resource_not_found(error.message().to_owned(), Some(json!({ "uri": uri }))))
            }
            CallOutcome::Finished(Err(error)) => Err(convert::rpc_error(&error)),
        }
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if is_stateless(&context) {
            return Err(ErrorData::method_not_found::<rmcp::model::SetLevelRequestMethod>());
        }
        self.session.set_level(request.level);
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if self.session.subscribe(request.uri.clone()) {
            if let Some(subscription) = self.subscribe_at_origin(&request.uri).await {
                self.session.store_origin_subscription(&request.uri, subscription);
            }
            return Ok(());
        }
        let message = format!("a client may subscribe to at most {SUBSCRIPTIONS_MAX} resources");
        Err(ErrorData::invalid_params(message, None))
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.session.unsubscribe(&request.uri);
        Ok(())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(methods::unparsed_request_error(&request.method, is_stateless(&context)))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let changes = self.shared.change_notifier.subscribe();
        let session = Arc::downgrade(&self.session);
        let notifying = tokio::spawn(change_notifier::notify_session(context.peer, changes, session));
        self.session.set_notifier(AbortOnDropHandle::new(notifying));
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = requested.clone();
        if let Some(uris) = &mut accepted.resource_subscriptions {
            uris.truncate(SUBSCRIPTIONS_MAX);
        }
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let changes = self.shared.change_notifier.subscribe();
        let uris = context.sink().accepted().resource_subscriptions.clone().unwrap_or_default();
        // The origins' subscriptions are held until the listener disconnects.
        let subscription = join_all(uris.iter().map(|uri| self.subscribe_at_origin(uri)));
        tokio::select! {
            () = context.cancelled() => {}
            () = self.shared.stopping.cancelled() => {}
            _ = join(subscription, change_notifier::notify_listener(context.sink(), changes)) => {}
        }
        Ok(())
    }
}

/// The identity that the HTTP server's guard has authenticated.
fn identity(context: &RequestContext<RoleServer>) -> Option<Arc<Identity>> {
    context.extensions.get::<http::request::Parts>()?.extensions.get::<Arc<Identity>>().cloned()
}

/// Associated data of a handle to a parked call: binds it to this request and this client.
fn associated_data(request: &CatalogRequest, identity: Option<&Identity>) -> Vec<u8> {
    let subject = identity.map(|identity| identity.subject.as_bytes()).unwrap_or_default();
    [&request.fingerprint()[..], subject].concat()
}

fn unknown_tool(listing: &CatalogListing, name: &str) -> ErrorData {
    let name: String = name.chars().take(100).collect();
    let near = nearest(&name, listing.tools.iter().map(|tool| &*tool.name));
    let hint = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
    ErrorData::invalid_params(format!("no tool registered with name: {name}{hint}"), None)
}

fn wrong_response_kind() -> ErrorData {
    ErrorData::internal_error("the request failed", None)
}
