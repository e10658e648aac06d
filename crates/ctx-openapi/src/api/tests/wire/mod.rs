//! End-to-end tests of one description in three versions: the exact requests that its operations send.
//!
//! The text is parsed, the operations become tools of a catalog, and calls go through the catalog. What
//! Swagger 2.0 cannot express (cookies, objects, content, labels, matrices, bearer tokens, several files) is
//! missing in the description of that version.

mod access;
mod base_urls;
mod bodies;
mod hostile;
mod parameters;

use super::*;
use crate::document::{RootLocation, SingleDocument, load};
use ctx_testkit::RecordedRequest;

/// The versions of the description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// 2.0
    Swagger2,
    /// 3.0
    OpenApi30,
    /// 3.1
    OpenApi31,
}

use Version::{OpenApi30, OpenApi31, Swagger2};

const ALL: [Version; 3] = [Swagger2, OpenApi30, OpenApi31];
const SINCE_OPENAPI3: [Version; 2] = [OpenApi30, OpenApi31];

impl Version {
    fn name(self) -> &'static str {
        match self {
            Swagger2 => "2.0",
            OpenApi30 => "3.0",
            OpenApi31 => "3.1",
        }
    }
}

/// The port in the description texts.
const PORT: &str = "4010";

/// The description in a version, of a service at this address.
fn text(version: Version, web: &MockWebServer) -> String {
    let text = match version {
        Swagger2 => include_str!("2.0.json"),
        OpenApi30 => include_str!("3.0.yaml"),
        OpenApi31 => include_str!("3.1.yaml"),
    };
    let url = web.url("");
    let (_, port) = url.rsplit_once(':').unwrap();
    text.replace(PORT, port)
}

fn read(text: &str) -> Description {
    let description = load(text, RootLocation::Directory("wire".to_owned()), &SingleDocument).unwrap();
    assert_eq!(description.skipped, []);
    description
}

/// A catalog with its functions, at the server that the description names.
fn catalog_for(version: Version, web: &MockWebServer, change: impl FnOnce(&mut ApiSettings)) -> Arc<Catalog> {
    catalog_of(read(&text(version, web)), change)
}

fn catalog_of(description: Description, change: impl FnOnce(&mut ApiSettings)) -> Arc<Catalog> {
    let mut settings = ApiSettings::new(Identifier::sanitize("pets"), Spec::File("wire.yaml".into()));
    change(&mut settings);
    catalog(api_with_settings(description, settings))
}

/// A service that records requests and responds without content.
fn recording_service() -> MockWebServer {
    MockWebServer::serve(|_| http_response(204, ""))
}

/// The request that a call of an operation sends.
async fn sent_request(
    catalog: &Arc<Catalog>,
    web: &MockWebServer,
    name: &str,
    arguments: Value,
) -> Result<RecordedRequest, ToolError> {
    let before = web.requests().len();
    let called = call_named(catalog, name, arguments).await;
    let requests = web.requests();
    assert_eq!(requests.len() - before, usize::from(called.is_ok()), "{name}: {called:?}");
    called.map(|_| requests[before].clone())
}

#[test]
fn the_versions_have_the_same_operations_as_far_as_they_can() {
    let web = recording_service();
    let names = |version| -> Vec<String> {
        read(&text(version, &web)).operations.into_iter().map(|operation| operation.name).collect()
    };
    let (second, third) = (names(Swagger2), names(OpenApi30));
    let mut newer = names(OpenApi31);
    newer.sort();
    let mut sorted = third.clone();
    sorted.sort();
    assert_eq!(sorted, newer);
    let only: Vec<_> = second.iter().filter(|name| !third.contains(name)).collect();
    // OpenAPI 3 has no tab delimiter, and other delimiters only in queries.
    let expected =
        ["path_ssv", "path_tsv", "path_pipes", "query_tsv", "header_ssv", "header_tsv", "header_pipes"];
    assert_eq!(only, expected);
}
