//! An API as a catalog [`Provider`]: each of its operations is a tool.

use crate::auth::{self, Credentials};
use crate::client::{ApiClient, ApiResponse, RequestCredentials, configured_reach, origin_reach};
use crate::interface::Interface;
use crate::load::{Fingerprint, WebAddress};
use crate::operation::{Description, Operation, SkippedOperation};
use crate::page::CompletedCall;
use crate::request::{ApiBase, base_url, operation_request};
use crate::settings::{ApiSettings, Spec};
use async_trait::async_trait;
use ctx_core::{
    AddressPolicy, Annotations, BodyArgument, Call, ErrorKind, Identifier, Output, Provider, Schema, Tool,
    ToolError, ToolSpec,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The operations of one API, as tools.
pub(crate) struct LoadedApi {
    inner: Arc<SharedApi>,
    tools: Vec<Arc<OperationTool>>,
}

/// State that all operations of an API share.
struct SharedApi {
    settings: Arc<ApiSettings>,
    /// The address that the description was fetched from, if from the web: the base of relative server URLs.
    address: Option<WebAddress>,
    /// Its operations lack title and description text: those are moved into the tool specs.
    description: Arc<Description>,
    /// Whether no operation of the whole description names a security scheme ([`auth::declares_no_security`]).
    declares_no_security: bool,
    client: Arc<ApiClient>,
}

impl LoadedApi {
    /// Makes a tool of each operation that the settings select, with their frozen parameters. `identity` is that of the
    /// texts of the whole description.
    pub(crate) fn new(
        mut description: Description,
        address: Option<WebAddress>,
        identity: Option<&Fingerprint>,
        settings: Arc<ApiSettings>,
        client: Arc<ApiClient>,
    ) -> Self {
        // The schema of an operation is made of its description, and of the parameters that are frozen.
        let frozen = serde_json::to_string(&settings.frozen).unwrap_or_default();
        let identity = identity.map(|fingerprint| Arc::from(format!("{fingerprint} {frozen}")));
        // Computed before the selection: a selection of public operations must not look like a description
        // that forgot to declare its security.
        let declares_no_security = auth::declares_no_security(&description);
        description.select(&settings.operations);
        description.freeze(&settings.frozen);
        let texts = description
            .operations
            .iter_mut()
            .map(|operation| (operation.title.take(), std::mem::take(&mut operation.description)));
        let texts: Vec<_> = texts.collect();
        let description = Arc::new(description);
        let inner = SharedApi { settings, address, description, declares_no_security, client };
        let inner = Arc::new(inner);
        let tool = |(index, (title, text))| {
            Arc::new(OperationTool::new(index, title, text, identity.as_ref(), &inner))
        };
        let tools = texts.into_iter().enumerate().map(tool).collect();
        Self { inner, tools }
    }

    /// The API's title (`info.title`).
    pub(crate) fn title(&self) -> &str {
        &self.inner.description.title
    }

    /// Operations that cannot be called, and why.
    pub(crate) fn skipped(&self) -> &[SkippedOperation] {
        &self.inner.description.skipped
    }

    /// The number of operations for which no suitable credentials are configured, and the error message of
    /// the first.
    pub(crate) fn missing_credentials(&self) -> Option<(usize, String)> {
        let SharedApi { description, declares_no_security, settings, .. } = &*self.inner;
        let refused = description.operations.iter().filter_map(|operation| {
            auth::choose(operation, &description.schemes, *declares_no_security, &settings.credentials).err()
        });
        let refused: Vec<ToolError> = refused.collect();
        refused.first().map(|error| (refused.len(), error.message().to_owned()))
    }

    /// Why the base URL of an operation is unknown; `None` if all are known.
    pub(crate) fn base_url_error(&self) -> Option<String> {
        let SharedApi { description, settings, address, .. } = &*self.inner;
        let mut bases = description.operations.iter().map(|operation| {
            base_url(settings.base_url.as_deref(), operation, address.as_ref().map(|address| &address.url))
        });
        bases.find_map(Result::err).map(|error| error.to_string())
    }

    /// All functions of the API, with the definitions that their schemas share.
    pub(crate) fn interface(&self) -> Interface {
        let specs = self.tools.iter().map(|tool| ToolSpec::clone(&tool.spec));
        Interface::new(&self.inner.description, specs)
    }

    /// The number of operations.
    pub(crate) fn operation_count(&self) -> usize {
        self.tools.len()
    }
}

impl Provider for LoadedApi {
    fn name(&self) -> Identifier {
        self.inner.settings.name.clone()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.iter().map(|tool| tool.clone() as Arc<dyn Tool>).collect()
    }

    fn exposed(&self) -> bool {
        self.inner.settings.exposed
    }
}

/// The tool of one operation.
pub(crate) struct OperationTool {
    api: Arc<SharedApi>,
    /// Index in `Description::operations`.
    index: usize,
    spec: Arc<ToolSpec>,
}

impl OperationTool {
    fn new(
        index: usize,
        title: Option<String>,
        text: String,
        identity: Option<&Arc<str>>,
        api: &Arc<SharedApi>,
    ) -> Self {
        let spec = tool_spec(index, title, text, identity, &api.description);
        Self { api: api.clone(), index, spec: Arc::new(spec) }
    }
}

/// The tool spec of an operation; `text` is its description for callers.
fn tool_spec(
    index: usize,
    title: Option<String>,
    text: String,
    identity: Option<&Arc<str>>,
    of: &Arc<Description>,
) -> ToolSpec {
    let Some(operation) = of.operations.get(index) else { return ToolSpec::new("", "", json!({})) };
    // Built on demand from the shared description: thousands of operations refer to the same definitions.
    let on_demand = |build: fn(&Description, &Operation, usize) -> Value| {
        let of = of.clone();
        let schema = Schema::lazy(move |definitions_max| {
            of.operations.get(index).map_or(Value::Null, |operation| build(&of, operation, definitions_max))
        });
        match identity {
            Some(identity) => schema.with_identity(identity.clone()),
            None => schema,
        }
    };
    let output = |of: &Description, operation: &Operation, definitions_max: usize| {
        of.bounded_output_schema(operation, definitions_max).unwrap_or_default()
    };
    let body = operation.body.as_ref();
    ToolSpec {
        title,
        output_schema: operation.output_schema.is_some().then(|| on_demand(output)),
        annotations: annotations(&operation.method),
        tags: operation.tags.clone(),
        body: body.map(|body| BodyArgument { name: body.argument.clone(), has_fields: body.has_fields }),
        ..ToolSpec::new(&operation.name, text, on_demand(Description::bounded_input_schema))
    }
}

#[async_trait]
impl Tool for OperationTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn run(&self, arguments: Map<String, Value>, call: &Call) -> Result<Output, ToolError> {
        let operation = self.api.description.operations.get(self.index);
        let operation =
            operation.ok_or_else(|| ToolError::not_found("the operation is no longer in the description"))?;
        // The catalog's schema includes the definitions; that of the operation only refers to them.
        let full_name = format!("{}.{}", self.api.settings.name, self.spec.name);
        let schema = call.catalog().input_schema(&full_name).unwrap_or(&operation.input_schema);
        let caller_credentials = auth::caller_credentials(&self.api.settings, call)?;
        self.api.send(operation, schema, &arguments, caller_credentials.as_ref(), Some(call)).await
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.api.settings.limits.call)
    }
}

impl SharedApi {
    /// Base URL and SSRF policy of an operation. A description from the web must not lead to a nearer network
    /// than the one it was fetched from; `base_url` is trusted configuration and may.
    fn base(&self, operation: &Operation) -> Result<ApiBase, ToolError> {
        let (settings, address) = (&self.settings, self.address.as_ref());
        let url = base_url(settings.base_url.as_deref(), operation, address.map(|address| &address.url))?;
        let described_reach =
            address.map_or(AddressPolicy::TRUSTED, |address| AddressPolicy::for_referrer(address.scope));
        let host = url.host_str().unwrap_or_default();
        let reach = match (&settings.base_url, &settings.spec, address) {
            (Some(_), _, _) => configured_reach(host),
            (None, Spec::Web(spec), Some(address)) if spec.host() == url.host() => {
                origin_reach(host, address.scope)
            }
            (None, _, _) => described_reach,
        };
        if let (Err(forbidden), Some(_)) = (reach.check_host(host), address) {
            let message =
                format!("the downloaded description has a server at {forbidden}; set `base_url` to allow it");
            return Err(ToolError::new(ErrorKind::Forbidden, message));
        }
        Ok(ApiBase { url, reach, described_reach })
    }

    /// Calls an operation. Credentials that come with the call replace all configured ones.
    async fn send(
        &self,
        operation: &Operation,
        schema: &Value,
        arguments: &Map<String, Value>,
        caller_credentials: Option<&Credentials>,
        call: Option<&Call>,
    ) -> Result<Output, ToolError> {
        let base = self.base(operation)?;
        let request = operation_request(operation, arguments, &base.url, call)?;
        let available = caller_credentials.unwrap_or(&self.settings.credentials);
        let credentials =
            auth::choose(operation, &self.description.schemes, self.declares_no_security, available)?;
        let (shown, url) = (request.describe(), request.url.clone());
        let time_left = call.map_or(Duration::MAX, Call::time_left).min(self.settings.limits.call);
        let credentials = RequestCredentials { credentials, is_from_caller: caller_credentials.is_some() };
        let ApiResponse { response, redactor, retry_after } =
            self.client.send(request, credentials, &base, time_left).await?;
        let (headers, redactor) = (response.headers.clone(), &redactor);
        let mut output = response.into_output(&shown, redactor, call).map_err(|error| match retry_after {
            Some(delay) => error.with_retry_after(delay),
            None => error,
        })?;
        let (url, headers, body) = (&url, &headers, &output.value);
        output.page =
            CompletedCall { operation, schema, arguments, url, headers, body, redactor }.page().map(Box::new);
        Ok(output)
    }
}

/// Tool annotations by HTTP method: read-only, destructive, idempotent.
fn annotations(method: &str) -> Annotations {
    let open_world = Some(true);
    match method {
        "GET" | "HEAD" | "OPTIONS" | "TRACE" => Annotations { open_world, ..Annotations::READ_ONLY },
        "DELETE" => Annotations {
            read_only: Some(false),
            destructive: Some(true),
            idempotent: Some(true),
            open_world,
        },
        "PUT" => {
            Annotations { read_only: Some(false), destructive: None, idempotent: Some(true), open_world }
        }
        _ => Annotations { read_only: Some(false), destructive: None, idempotent: None, open_world },
    }
}

#[cfg(test)]
mod tests;
