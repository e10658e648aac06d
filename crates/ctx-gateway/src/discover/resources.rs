//! The documentation of functions as resources: `sdk://<provider>/overview`, `…/functions` and
//! `…/functions/<name>`.

use super::Directories;
use super::docs::docs;
use super::list::{pluralize, provider_line};
use super::text::{BoundedLines, truncate};
use async_trait::async_trait;
use ctx_core::{
    Call, Catalog, Resource, ResourceContent, ResourcePage, ResourceTemplate, Resources, ToolError,
};
use std::sync::Arc;

/// URI prefix of the resources.
const PREFIX: &str = "sdk://";

/// The two resources that every provider has.
const OVERVIEW: &str = "overview";
const FUNCTIONS: &str = "functions";

/// Maximum length of the list of a provider's functions.
const LIST_CHARS_MAX: usize = 200_000;

/// The documentation of functions as resources.
pub(crate) struct FunctionResources {
    directories: Arc<Directories>,
}

impl FunctionResources {
    pub(crate) fn new(directories: Arc<Directories>) -> Self {
        Self { directories }
    }
}

#[async_trait]
impl Resources for FunctionResources {
    fn prefix(&self) -> &str {
        PREFIX
    }

    async fn list(
        &self,
        from: Option<&str>,
        most: usize,
        catalog: &Catalog,
    ) -> Result<ResourcePage, ToolError> {
        let mut all: Vec<String> = catalog
            .functions()
            .map(|entry| entry.name.provider())
            .flat_map(|provider| [format!("{provider}/{FUNCTIONS}"), format!("{provider}/{OVERVIEW}")])
            .collect();
        all.sort();
        all.dedup();
        let mut rest = all.into_iter().filter(|path| from.is_none_or(|from| path.as_str() > from)).peekable();
        let paths: Vec<String> = rest.by_ref().take(most.max(1)).collect();
        let next = paths.last().filter(|_| rest.peek().is_some()).cloned();
        Ok(ResourcePage { resources: paths.iter().map(|path| resource(path)).collect(), next })
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        vec![ResourceTemplate {
            uri_template: format!("{PREFIX}{{provider}}/{FUNCTIONS}/{{name}}"),
            name: "function".to_owned(),
            title: Some("Function".to_owned()),
            description: Some("How a function is called, with all its types.".to_owned()),
            mime_type: Some(LUAU.to_owned()),
            ..ResourceTemplate::default()
        }]
    }

    async fn read(&self, uri: &str, call: &Call) -> Result<Vec<ResourceContent>, ToolError> {
        let path = uri.strip_prefix(PREFIX).unwrap_or_default();
        let (mime_type, text) = match path.splitn(3, '/').collect::<Vec<_>>().as_slice() {
            [provider, section @ (OVERVIEW | FUNCTIONS)] => {
                let directory = self.directories.get_or_build(call.catalog()).await?;
                let functions = directory.provider(provider)?;
                let text = match *section {
                    OVERVIEW => format!(
                        "{}\n\nScripts call them as `sdk.{provider}.<name>{{…}}`; {PREFIX}{provider}/{FUNCTIONS} \
                         lists them all.\n",
                        provider_line(provider, &functions)
                    ),
                    _ => {
                        let mut lines = BoundedLines::with_limit(LIST_CHARS_MAX);
                        functions.iter().for_each(|function| lines.add(&function.line));
                        lines.finish(|more| {
                            format!("{} more; `search_docs` finds them", pluralize(more, "function"))
                        })
                    }
                };
                (TEXT, text)
            }
            [provider, FUNCTIONS, name] => (LUAU, docs(call.catalog(), &format!("{provider}.{name}"))?),
            _ => return Err(ToolError::not_found(format!("no function has the URI {}", truncate(uri)))),
        };
        let mime_type = Some(mime_type.to_owned());
        Ok(vec![ResourceContent {
            uri: uri.to_owned(),
            mime_type,
            text: Some(text),
            ..ResourceContent::default()
        }])
    }
}

/// MIME types.
const TEXT: &str = "text/plain";
const LUAU: &str = "text/x-luau";

fn resource(path: &str) -> Resource {
    let (provider, section) = path.split_once('/').unwrap_or((path, OVERVIEW));
    let description = match section {
        OVERVIEW => format!("What {provider} provides to scripts."),
        _ => format!("All functions of {provider}, a line each."),
    };
    Resource {
        uri: format!("{PREFIX}{path}"),
        name: path.to_owned(),
        description: Some(description),
        mime_type: Some(TEXT.to_owned()),
        ..Resource::default()
    }
}
