//! Server features other than tools: prompts and resource templates, as last listed, and the pagination of lists.

use super::connection::Connection;
use super::definition::{FeatureDefinitions, ServerDefinition, feature_definitions};
use super::namespace::Namespace;
use ctx_core::{AgentSpec, ResourceTemplate};
use rmcp::ServiceError;
use rmcp::model::{
    ClientRequest, ErrorCode, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest,
    PaginatedRequestParams, Prompt, Resource, ResourceTemplate as Template,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Entries of each list; the rest is left out.
const ENTRIES_MAX: usize = 1_000;
/// Pages of each list that are read.
const PAGES_MAX: usize = 100;
/// Time limit of each list. A server whose lists take longer is used without them.
const LISTING_TIME_MAX: Duration = Duration::from_secs(5);

/// The kind of a paginated list of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeatureKind {
    Prompts,
    Resources,
    Templates,
}

/// The prompts and resource templates of a server, as last listed.
#[derive(Default)]
pub(super) struct ServerFeatures(Mutex<KnownFeatures>);

#[derive(Clone, Default)]
struct KnownFeatures {
    prompts: Arc<Vec<Arc<AgentSpec>>>,
    templates: Arc<Vec<ResourceTemplate>>,
}

/// The results of listing prompts and resource templates; `None` for a list that failed.
pub(super) struct FeatureListing {
    prompts: Option<Vec<Arc<AgentSpec>>>,
    templates: Option<Vec<ResourceTemplate>>,
    /// As the server sent them.
    prompt_definitions: Option<FeatureDefinitions>,
    template_definitions: Option<FeatureDefinitions>,
}

impl FeatureListing {
    /// The listed parts of the server's definition.
    pub(super) fn definition(&self) -> ServerDefinition {
        let (prompts, templates) = (self.prompt_definitions.clone(), self.template_definitions.clone());
        ServerDefinition { prompts, templates, ..ServerDefinition::default() }
    }
}

impl ServerFeatures {
    pub(super) fn prompts(&self) -> Arc<Vec<Arc<AgentSpec>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).prompts.clone()
    }

    pub(super) fn templates(&self) -> Arc<Vec<ResourceTemplate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).templates.clone()
    }

    /// Replaces the lists, except those that failed; returns whether the prompts have changed.
    pub(super) fn set(&self, listing: FeatureListing) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(templates) = listing.templates {
            known.templates = Arc::new(templates);
        }
        match listing.prompts {
            Some(prompts) if prompts != *known.prompts => {
                known.prompts = Arc::new(prompts);
                true
            }
            _ => false,
        }
    }
}

impl Connection {
    /// Lists prompts and resource templates, if the server has the capability.
    pub(super) async fn list_features(&self, namespace: &Namespace) -> FeatureListing {
        let (has_prompts, has_resources) = self.peer.peer_info().map_or((false, false), |info| {
            (info.capabilities.prompts.is_some(), info.capabilities.resources.is_some())
        });
        let prompts = async {
            let mut names = HashSet::new();
            let prompts: Vec<Prompt> = self.list_all(FeatureKind::Prompts, has_prompts).await?;
            let definitions = feature_definitions(&prompts, |prompt| &prompt.name);
            let agents = prompts.into_iter().filter_map(|prompt| namespace.agent(prompt));
            let agents = agents.filter(|agent| names.insert(agent.name.clone())).map(Arc::new);
            Some((agents.collect(), definitions))
        };
        let templates = async {
            let mut uri_templates = HashSet::new();
            let templates: Vec<Template> = self.list_all(FeatureKind::Templates, has_resources).await?;
            let definitions = feature_definitions(&templates, |template| &template.uri_template);
            let templates = templates.into_iter().filter_map(|template| namespace.template(template));
            let templates = templates.filter(|template| uri_templates.insert(template.uri_template.clone()));
            Some((templates.collect(), definitions))
        };
        let (prompts, templates) = tokio::join!(prompts, templates);
        let (prompts, prompt_definitions) = prompts.unzip();
        let (templates, template_definitions) = templates.unzip();
        FeatureListing { prompts, templates, prompt_definitions, template_definitions }
    }

    /// Lists the definitions of resources; `None` if they cannot be listed in time.
    pub(super) async fn list_resource_definitions(&self) -> Option<FeatureDefinitions> {
        let has_resources = self.peer.peer_info().is_some_and(|info| info.capabilities.resources.is_some());
        let resources: Vec<Resource> = self.list_all(FeatureKind::Resources, has_resources).await?;
        Some(feature_definitions(&resources, |resource| &resource.uri))
    }

    /// A list from all of its pages, with at most `ENTRIES_MAX` entries; `None` if it fails or takes too
    /// long.
    async fn list_all<T: DeserializeOwned>(&self, list: FeatureKind, is_supported: bool) -> Option<Vec<T>> {
        if !is_supported {
            return Some(Vec::new());
        }
        let listing = async {
            let (mut all, mut cursor, mut cursors) = (Vec::new(), None, HashSet::new());
            for _ in 0..PAGES_MAX {
                let (entries, next) = self.list_page(list, cursor).await?;
                all.extend(entries);
                match next {
                    Some(next) if all.len() < ENTRIES_MAX && cursors.insert(next.clone()) => {
                        cursor = Some(next);
                    }
                    _ => break,
                }
            }
            all.truncate(ENTRIES_MAX);
            Ok::<_, ServiceError>(all)
        };
        match tokio::time::timeout(LISTING_TIME_MAX, listing).await {
            Ok(Ok(all)) => Some(all),
            Ok(Err(error)) => {
                tracing::debug!(%error, ?list, "cannot list a server's features");
                None
            }
            Err(_) => {
                tracing::debug!(?list, "listing a server's features timed out");
                None
            }
        }
    }

    /// One page and the cursor of the next. Entries that cannot be read are left out, one by one.
    pub(super) async fn list_page<T: DeserializeOwned>(
        &self,
        list: FeatureKind,
        cursor: Option<String>,
    ) -> Result<(Vec<T>, Option<String>), ServiceError> {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let (request, field) = match list {
            FeatureKind::Prompts => {
                let request = ListPromptsRequest::with_param(params);
                (ClientRequest::ListPromptsRequest(request), "prompts")
            }
            FeatureKind::Resources => {
                let request = ListResourcesRequest::with_param(params);
                (ClientRequest::ListResourcesRequest(request), "resources")
            }
            FeatureKind::Templates => {
                let request = ListResourceTemplatesRequest::with_param(params);
                (ClientRequest::ListResourceTemplatesRequest(request), "resourceTemplates")
            }
        };
        let result = match self.request(request).await {
            // The server has no such list.
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => {
                return Ok((Vec::new(), None));
            }
            result => result?,
        };
        let mut result = serde_json::to_value(result).unwrap_or_default();
        let next = match result.get_mut("nextCursor").map(Value::take) {
            Some(Value::String(next)) => Some(next),
            _ => None,
        };
        let Some(Value::Array(entries)) = result.get_mut(field).map(Value::take) else {
            return Err(ServiceError::UnexpectedResponse);
        };
        let entries = entries.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()).collect();
        Ok((entries, next))
    }
}
