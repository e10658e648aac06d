//! The rmcp request handler: answers each MCP request from the catalog.

use super::attend::{Running, Step};
use super::listing::{self, Listing, PAGE, cursor, invalid_cursor, page};
use super::session::{Client, FOLLOWED_MAX, Session, client_name, is_stateless};
use super::work::{Answer, Work};
use super::{Shared, auth, completion, methods, news};
use crate::convert;
use ctx_core::{Call, Caller, Catalog, Completions, ErrorKind, Following, Identity, ToolError, nearest};
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
const LIST_FRESH: u64 = 5_000;
/// Time limit for listing the resources of one page.
const PAGE_TIME: Duration = Duration::from_secs(5);

/// Serves one client of an older revision, or one request of a newer.
pub(super) struct Handler {
    shared: Arc<Shared>,
    session: Arc<Session>,
}

/// The outcome of a request that runs a call.
enum Served {
    Ended(Result<Answer, ToolError>),
    Asks(InputRequiredResult),
}

impl Handler {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: shared.clone(), session: Arc::default() }
    }

    async fn listing(&self) -> Arc<Listing> {
        self.shared.ready().await;
        self.shared.listings.of(self.shared.catalog.current())
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
    async fn follow(&self, uri: &str) -> Option<Following> {
        self.shared.ready().await;
        let catalog = self.shared.catalog.current();
        catalog.origin(uri)?.follow(uri).await
    }

    /// Starts a call, or resumes a parked one, and drives it until this request can be answered.
    async fn serve(
        &self,
        work: Work,
        responses: Option<InputResponses>,
        state: Option<String>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Served, ErrorData> {
        let identity = identity(context);
        let purpose = purpose(&work, identity.as_deref());
        let mut running = match state {
            Some(state) => self
                .shared
                .parked
                .take(&state, &purpose)
                .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?,
            None => {
                let call = match auth::brought(&context.meta)? {
                    Some(auth) => self.call(context).with_auth(auth),
                    None => self.call(context),
                };
                Running::start(work, call, &self.shared.calls, &self.shared.abandoned)
            }
        };
        running.answer(responses.unwrap_or_default());
        match running.attend(&Client::of(context, &self.session)).await {
            Step::Ended(ended) => Ok(Served::Ended(ended)),
            Step::Asks(running, requests) => match self.shared.parked.park(running, &purpose) {
                Ok(state) => Ok(Served::Asks(InputRequiredResult::new(Some(requests), Some(state)))),
                Err(full) => Ok(Served::Ended(Err(ToolError::new(ErrorKind::Overloaded, full.to_string())))),
            },
            Step::Cancelled => Err(ErrorData::internal_error("the request was cancelled", None)),
            Step::Lacks(want) => Err(ErrorData::missing_required_client_capability(convert::lacking(&want))),
        }
    }
}

impl ServerHandler for Handler {
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
        self.shared.listings.of(self.shared.catalog.current()).tool(name).cloned()
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listing = self.listing().await;
        let (tools, next) = page(&listing.tools, |tool| &tool.name, request)?;
        Ok(ListToolsResult {
            next_cursor: next,
            ttl_ms: Some(LIST_FRESH),
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
        let work = Work::Tool { name, arguments: request.arguments.unwrap_or_default() };
        Ok(match self.serve(work, request.input_responses, request.request_state, &context).await? {
            Served::Asks(asks) => asks.into(),
            Served::Ended(Ok(Answer::Tool(output))) => convert::tool_result(output, has_output_schema).into(),
            Served::Ended(Ok(_)) => return Err(mixed_up()),
            Served::Ended(Err(error)) => convert::tool_failure(&error).into(),
        })
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let listing = self.listing().await;
        let (prompts, next) = page(&listing.prompts, |prompt| &prompt.name, request)?;
        Ok(ListPromptsResult {
            next_cursor: next,
            ttl_ms: Some(LIST_FRESH),
            cache_scope: Some(CacheScope::Private),
            ..ListPromptsResult::with_all_items(prompts)
        })
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.shared.ready().await;
        let work = Work::Prompt { name: request.name, arguments: request.arguments.unwrap_or_default() };
        match self.serve(work, request.input_responses, request.request_state, &context).await? {
            Served::Asks(asks) => Ok(asks.into()),
            Served::Ended(Ok(Answer::Prompt(prompt))) => Ok(convert::prompt_messages(prompt).into()),
            Served::Ended(Ok(_)) => Err(mixed_up()),
            Served::Ended(Err(error)) => Err(convert::failure(&error)),
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.shared.ready().await;
        let completions = match completion::asked(request) {
            Some(asked) => Catalog::complete(&asked, self.call(&context)).await,
            None => Ok(Completions::default()),
        };
        completion::answer(completions.map_err(|error| convert::failure(&error))?)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let listing = self.listing().await;
        let origins = listing.catalog().resources();
        // The cursor of a page: the index of the origin, and that origin's own cursor.
        let (mut origin, mut from) = match cursor(request)? {
            None => (0, None),
            Some(cursor) => {
                let (origin, from) = cursor.split_once(' ').ok_or_else(invalid_cursor)?;
                let origin = origin.parse().ok().filter(|origin| *origin < origins.len());
                let from = (!from.is_empty()).then(|| from.to_owned());
                (origin.ok_or_else(invalid_cursor)?, from)
            }
        };
        let mut resources = Vec::new();
        let until = Instant::now() + PAGE_TIME;
        // A slow origin ends this page early.
        while let Some(here) =
            origins.get(origin).filter(|_| resources.len() < PAGE && Instant::now() < until)
        {
            let listed = here.list(from.as_deref(), PAGE - resources.len(), listing.catalog()).await;
            let listed = listed.map_err(|error| convert::failure(&error))?;
            resources.extend(listed.resources.into_iter().map(convert::resource));
            from = listed.next;
            origin += usize::from(from.is_none());
        }
        let next = (origin < origins.len())
            .then(|| listing::seal(&format!("{origin} {}", from.as_deref().unwrap_or_default())));
        Ok(ListResourcesResult {
            next_cursor: next,
            ttl_ms: Some(LIST_FRESH),
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
        let (templates, next) = page(&templates, |template| &template.uri_template, request)?;
        Ok(ListResourceTemplatesResult {
            next_cursor: next,
            ttl_ms: Some(LIST_FRESH),
            cache_scope: Some(CacheScope::Private),
            ..ListResourceTemplatesResult::with_all_items(templates)
        })
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.shared.ready().await;
        let uri = request.uri;
        let work = Work::Read { uri: uri.clone() };
        match self.serve(work, request.input_responses, request.request_state, &context).await? {
            Served::Asks(asks) => Ok(asks.into()),
            Served::Ended(Ok(Answer::Read(contents))) if !contents.is_empty() => {
                let contents = contents.into_iter().map(convert::resource_contents).collect();
                let mut result = ReadResourceResult::new(contents);
                // A sync may change the resource at any moment.
                (result.ttl_ms, result.cache_scope) = (Some(0), Some(CacheScope::Private));
                Ok(result.into())
            }
            Served::Ended(Ok(Answer::Read(_))) => Err(ErrorData::resource_not_found(
                "there is nothing at this URI",
                Some(json!({ "uri": uri })),
            )),
            Served::Ended(Ok(_)) => Err(mixed_up()),
            Served::Ended(Err(error)) if error.kind() == ErrorKind::NotFound => {
                Err(ErrorData::resource_not_found(error.message().to_owned(), Some(json!({ "uri": uri }))))
            }
            Served::Ended(Err(error)) => Err(convert::failure(&error)),
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
        if self.session.follow(request.uri.clone()) {
            if let Some(following) = self.follow(&request.uri).await {
                self.session.keep_following(&request.uri, following);
            }
            return Ok(());
        }
        let message = format!("a client may follow at most {FOLLOWED_MAX} resources");
        Err(ErrorData::invalid_params(message, None))
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.session.unfollow(&request.uri);
        Ok(())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(methods::not_understood(&request.method, is_stateless(&context)))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let changes = self.shared.news.subscribe();
        let session = Arc::downgrade(&self.session);
        let telling = tokio::spawn(news::tell_session(context.peer, changes, session));
        self.session.keep(AbortOnDropHandle::new(telling));
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = requested.clone();
        if let Some(uris) = &mut accepted.resource_subscriptions {
            uris.truncate(FOLLOWED_MAX);
        }
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let changes = self.shared.news.subscribe();
        let uris = context.sink().accepted().resource_subscriptions.clone().unwrap_or_default();
        // The origins' subscriptions are held until the listener disconnects.
        let following = join_all(uris.iter().map(|uri| self.follow(uri)));
        tokio::select! {
            () = context.cancelled() => {}
            () = self.shared.stopping.cancelled() => {}
            _ = join(following, news::tell_listener(context.sink(), changes)) => {}
        }
        Ok(())
    }
}

/// The identity that the HTTP server's guard has authenticated.
fn identity(context: &RequestContext<RoleServer>) -> Option<Arc<Identity>> {
    context.extensions.get::<http::request::Parts>()?.extensions.get::<Arc<Identity>>().cloned()
}

/// Associated data of a handle to a parked call: binds it to this request and this client.
fn purpose(work: &Work, identity: Option<&Identity>) -> Vec<u8> {
    let subject = identity.map(|identity| identity.subject.as_bytes()).unwrap_or_default();
    [&work.fingerprint()[..], subject].concat()
}

fn unknown_tool(listing: &Listing, name: &str) -> ErrorData {
    let name: String = name.chars().take(100).collect();
    let near = nearest(&name, listing.tools.iter().map(|tool| &*tool.name));
    let hint = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
    ErrorData::invalid_params(format!("no tool registered with name: {name}{hint}"), None)
}

fn mixed_up() -> ErrorData {
    ErrorData::internal_error("the request failed", None)
}
