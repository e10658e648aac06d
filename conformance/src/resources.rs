//! The resources that the suite expects: text, binary, a watched one, and a URI template.

use async_trait::async_trait;
use ctx::{
    Call, Catalog, Identifier, Provider, Resource, ResourceContent, ResourcePage, ResourceTemplate,
    Resources, Tool, ToolError,
};
use serde_json::json;
use std::sync::Arc;

const PREFIX: &str = "test://";
const TEXT: &str = "test://static-text";
const BINARY: &str = "test://static-binary";
const WATCHED: &str = "test://watched-resource";
/// The parts of the template's URIs around the name.
const TEMPLATE: (&str, &str) = ("test://template/", "/data");
/// A PNG with one red pixel, in base64.
const RED_PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";

/// The provider of everything under `test://`; it has no tools.
pub(crate) struct Fixtures;

impl Provider for Fixtures {
    fn name(&self) -> Identifier {
        Identifier::sanitize("fixtures")
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        Some(Arc::new(Self))
    }
}

#[async_trait]
impl Resources for Fixtures {
    fn prefix(&self) -> &str {
        PREFIX
    }

    async fn list(&self, _: Option<&str>, _: usize, _: &Catalog) -> Result<ResourcePage, ToolError> {
        let resource = |uri: &str, name: &str, mime_type: &str| Resource {
            uri: uri.to_owned(),
            name: name.to_owned(),
            description: Some(format!("The resource {name} of the conformance suite")),
            mime_type: Some(mime_type.to_owned()),
            ..Resource::default()
        };
        let resources = vec![
            resource(TEXT, "static-text", "text/plain"),
            resource(BINARY, "static-binary", "image/png"),
            resource(WATCHED, "watched-resource", "text/plain"),
        ];
        Ok(ResourcePage { resources, next: None })
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        let (before, after) = TEMPLATE;
        vec![ResourceTemplate {
            uri_template: format!("{before}{{id}}{after}"),
            name: "template".to_owned(),
            description: Some("Data for any id".to_owned()),
            mime_type: Some("application/json".to_owned()),
            ..ResourceTemplate::default()
        }]
    }

    async fn read(&self, uri: &str, _: &Call) -> Result<Vec<ResourceContent>, ToolError> {
        let text = |mime_type: &str, text: String| ResourceContent {
            uri: uri.to_owned(),
            mime_type: Some(mime_type.to_owned()),
            text: Some(text),
            ..ResourceContent::default()
        };
        let (before, after) = TEMPLATE;
        let id = uri.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        let content = match (uri, id) {
            (TEXT, _) => text("text/plain", "This is the content of the static text resource.".to_owned()),
            (WATCHED, _) => text("text/plain", "This is the content of the watched resource.".to_owned()),
            (BINARY, _) => {
                let blob = Some(RED_PIXEL.to_owned());
                ResourceContent { text: None, blob, ..text("image/png", String::new()) }
            }
            (_, Some(id)) => {
                let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
                text("application/json", data.to_string())
            }
            _ => return Err(ToolError::not_found(format!("there is no resource {uri}"))),
        };
        Ok(vec![content])
    }
}
