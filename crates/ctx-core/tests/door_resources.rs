//! Resources are read by `Catalog::call`, like tools are called.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails the test it helps")]

use crate::common::{Runs, echo, from_cli, provider};
use async_trait::async_trait;
use ctx_core::{
    Call, Caller, Catalog, CatalogBuilder, Decision, ErrorKind, Identifier, Identity, Limits, LiveCatalog,
    Provider, Redactor, ResourceContent, ResourcePage, Resources, RunOutcome, Secret, Tool, ToolError,
    ToolName, ToolSpec,
};
use std::sync::Arc;
use std::time::Duration;

/// An origin whose resources contain the rest of their URIs, except for some special URIs.
struct Shelf(&'static str);

#[async_trait]
impl Resources for Shelf {
    fn prefix(&self) -> &str {
        self.0
    }

    async fn list(&self, _: Option<&str>, _: usize, _: &Catalog) -> Result<ResourcePage, ToolError> {
        Ok(ResourcePage::default())
    }

    async fn read(&self, uri: &str, call: &Call) -> Result<Vec<ResourceContent>, ToolError> {
        let text = match uri.strip_prefix(self.0).unwrap_or_default() {
            "missing" => return Err(ToolError::not_found("no such book")),
            "locked" => return Err(ToolError::new(ErrorKind::Tool, "hunter22 does not open it")),
            "torn" => panic!("a page is missing"),
            "endless" => std::future::pending().await,
            "reader" => call.caller().to_string(),
            "long" => "x".repeat(100),
            rest => rest.to_owned(),
        };
        let mime_type = Some("text/plain".to_owned());
        Ok(vec![ResourceContent {
            uri: uri.to_owned(),
            mime_type,
            text: Some(text),
            ..ResourceContent::default()
        }])
    }
}

/// A provider that has only resources.
struct Library(&'static str, &'static str);

impl Provider for Library {
    fn name(&self) -> Identifier {
        Identifier::sanitize(self.0)
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        Some(Arc::new(Shelf(self.1)))
    }
}

fn with(prefixes: &[(&'static str, &'static str)]) -> CatalogBuilder {
    prefixes
        .iter()
        .fold(Catalog::builder(), |builder, (name, prefix)| builder.provider(Arc::new(Library(name, prefix))))
}

fn shelf() -> CatalogBuilder {
    with(&[("library", "book://")])
}

/// The text of a resource, or kind and message of the error.
async fn read(catalog: &Arc<Catalog>, uri: &str) -> Result<String, (ErrorKind, String)> {
    let contents = Catalog::read(uri, from_cli(catalog)).await;
    let contents = contents.map_err(|error| (error.kind(), error.message().to_owned()))?;
    Ok(contents.into_iter().filter_map(|content| content.text).collect())
}

async fn refusal(catalog: &Arc<Catalog>, uri: &str) -> (ErrorKind, String) {
    read(catalog, uri).await.unwrap_err()
}

fn prefixes(catalog: &Catalog) -> Vec<&str> {
    catalog.resources().iter().map(|origin| origin.prefix()).collect()
}

#[tokio::test]
async fn a_resource_is_read_from_the_origin_of_its_prefix() {
    let catalog = with(&[("library", "book://"), ("archive", "box://")]).build();
    let contents = Catalog::read("box://ledger", from_cli(&catalog)).await.unwrap();
    let expected = ResourceContent {
        uri: "box://ledger".to_owned(),
        mime_type: Some("text/plain".to_owned()),
        text: Some("ledger".to_owned()),
        ..ResourceContent::default()
    };
    assert_eq!(contents, [expected]);
    assert_eq!(read(&catalog, "book://atlas").await.unwrap(), "atlas");
    assert_eq!(prefixes(&catalog), ["book://", "box://"]);
    assert!(catalog.warnings().is_empty());
}

#[tokio::test]
async fn a_resource_knows_who_reads_it() {
    let call = Call::new(shelf().build(), Caller::Mcp("editor".to_owned()));
    let contents = Catalog::read("book://reader", call).await.unwrap();
    assert_eq!(contents[0].text.as_deref(), Some("mcp:editor"));
}

#[tokio::test]
async fn a_uri_that_no_origin_has_is_not_found_and_what_it_hides_is_masked() {
    let catalog = shelf().redactor(Redactor::new([Secret::new("hunter22")])).build();
    let expected = |uri: &str| (ErrorKind::NotFound, format!("no resource has the URI {uri}"));
    for uri in ["", "book:/", "Book://atlas", "film://atlas"] {
        assert_eq!(refusal(&catalog, uri).await, expected(uri));
    }
    assert_eq!(refusal(&catalog, "film://hunter22").await.1.find("hunter22"), None);
    assert!(refusal(&catalog, &"x".repeat(10_000)).await.1.len() < 300);
    assert_eq!(refusal(&catalog, "book://missing").await, (ErrorKind::NotFound, "no such book".to_owned()));
}

#[tokio::test]
async fn who_may_not_call_the_origin_may_not_read() {
    let policy = |tool: &ToolName, spec: &ToolSpec, _: &Caller, _: Option<&Identity>| match spec.name.as_str()
    {
        "box://" if tool.provider().as_str() == "resources" => Decision::Deny("it is private".to_owned()),
        _ => Decision::Allow,
    };
    let catalog = with(&[("library", "book://"), ("archive", "box://")]).policy(Arc::new(policy)).build();
    let (kind, message) = refusal(&catalog, "box://ledger").await;
    assert_eq!((kind, message.ends_with("is not allowed: it is private")), (ErrorKind::Forbidden, true));
    assert!(read(&catalog, "book://atlas").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn reading_is_bounded_like_a_call() {
    let limits = Limits {
        call_timeout: Duration::from_secs(2),
        argument_bytes: 50,
        result_bytes: 150,
        ..Limits::default()
    };
    let catalog = shelf().limits(limits).build();
    assert!(read(&catalog, "book://atlas").await.is_ok());
    assert_eq!(refusal(&catalog, "book://long").await.0, ErrorKind::TooLarge);
    assert_eq!(refusal(&catalog, "book://endless").await.0, ErrorKind::Timeout);
    let uri = format!("book://{}", "x".repeat(50));
    assert_eq!(refusal(&catalog, &uri).await.0, ErrorKind::TooLarge);
}

#[tokio::test]
async fn an_origin_that_panics_fails_alone() {
    let catalog = shelf().build();
    assert_eq!(refusal(&catalog, "book://torn").await.0, ErrorKind::Internal);
    assert!(read(&catalog, "book://atlas").await.is_ok());
}

#[tokio::test]
async fn reading_is_recorded_with_secrets_masked() {
    let runs = Arc::new(Runs::default());
    let redactor = Redactor::new([Secret::new("hunter22")]);
    let catalog = shelf().runs(runs.clone()).redactor(redactor).build();
    let call = from_cli(&catalog);
    let id = call.run_id();
    Catalog::read("book://hunter22", call).await.unwrap();
    let (kind, message) = refusal(&catalog, "book://locked").await;
    assert_eq!((kind, message.find("hunter22")), (ErrorKind::Tool, None));

    let runs = runs.take();
    assert_eq!(runs.len(), 2);
    assert_eq!((runs[0].id, &runs[0].outcome), (id, &RunOutcome::Ok));
    assert!(runs[0].tool.starts_with("resources."), "{}", runs[0].tool);
    assert!(runs[0].result_bytes > 0);
    assert!(runs[0].arguments["uri"].as_str().unwrap().starts_with("book://"));
    assert_eq!(runs[0].arguments.to_string().find("hunter22"), None);
    let expected = RunOutcome::Failed { code: "tool_error".to_owned(), message };
    assert_eq!(runs[1].outcome, expected);
}

#[tokio::test]
async fn an_origin_whose_prefix_clashes_is_left_out_with_a_warning() {
    for second in ["book://", "book://old/", "book:", "book:__", ""] {
        let catalog = with(&[("library", "book://"), ("archive", second)]).build();
        assert_eq!(prefixes(&catalog), ["book://"], "{second}");
        let expected = format!("resources of archive are left out: the URI prefix {second} is taken");
        assert_eq!(catalog.warnings(), [expected]);
        assert_eq!(read(&catalog, "book://old/atlas").await.unwrap(), "old/atlas");
    }
}

#[tokio::test]
async fn a_tool_cannot_take_the_place_of_an_origin() {
    let name = shelf().build().entries().next().unwrap().name.clone();
    let upstream = provider(name.provider().as_str(), [echo(name.tool().as_str())]);
    let catalog =
        Catalog::builder().provider(upstream).provider(Arc::new(Library("library", "book://"))).build();
    assert_eq!(read(&catalog, "book://atlas").await.unwrap(), "atlas");
    let expected = format!("{name} is left out: the name `{}` is taken", name.outward());
    assert_eq!(catalog.warnings(), [expected]);
}

#[test]
fn origins_are_not_listed_as_tools() {
    assert!(shelf().build().entries().all(|entry| !entry.exposed));
}

#[tokio::test]
async fn a_catalog_that_is_replaced_says_so() {
    let live = LiveCatalog::new(Catalog::builder().build());
    let mut replaced = live.subscribe();
    assert!(!replaced.has_changed().unwrap());
    live.swap(shelf().build());
    live.swap(shelf().build());
    replaced.changed().await.unwrap();
    assert_eq!(prefixes(&live.current()), ["book://"]);
    assert!(!replaced.has_changed().unwrap());
    assert!(!live.subscribe().has_changed().unwrap());
    drop(live);
    assert!(replaced.changed().await.is_err());
}
