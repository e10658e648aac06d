//! Calls to a service that records the requests it receives.

mod access;
mod addresses;
mod caller_credentials;
mod files;
mod hostile;
mod limits;
mod wire;

use super::*;
use crate::auth::Credential;
use crate::operation::{BodyEncoding, ParameterLocation, SecurityScheme};
use crate::request::tests::{body, operation, parameter};
use crate::settings::Spec;
use ctx_core::{Caller, Catalog, NetworkScope, Secret};
use ctx_testkit::{MockWebServer, http_response, http_response_with};
use serde_json::json;
use std::collections::BTreeMap;

/// An API with these operations at this address.
fn api(web: &MockWebServer, operations: Vec<Operation>, change: impl FnOnce(&mut ApiSettings)) -> LoadedApi {
    api_of(Description { operations, ..Description::default() }, &web.url("/v1"), change)
}

fn api_of(description: Description, base: &str, change: impl FnOnce(&mut ApiSettings)) -> LoadedApi {
    let mut settings = ApiSettings::new(Identifier::sanitize("pets"), Spec::File("pets.yaml".into()));
    settings.base_url = Some(base.to_owned());
    change(&mut settings);
    api_with_settings(description, settings)
}

fn api_with_settings(description: Description, settings: ApiSettings) -> LoadedApi {
    let address = match &settings.spec {
        Spec::Web(url) => Some(WebAddress { url: url.clone(), scope: NetworkScope::Internet }),
        Spec::File(_) => None,
    };
    let client = ApiClient::new(&settings).unwrap();
    LoadedApi::new(description, address, None, Arc::new(settings), Arc::new(client))
}

/// Calls its only operation through the catalog.
async fn call(api: LoadedApi, arguments: Value) -> Result<Output, ToolError> {
    call_named(&catalog(api), "operation", arguments).await
}

fn catalog(api: LoadedApi) -> Arc<Catalog> {
    Catalog::builder().provider(Arc::new(api)).build()
}

async fn call_named(catalog: &Arc<Catalog>, name: &str, arguments: Value) -> Result<Output, ToolError> {
    let call = Call::new(catalog.clone(), Caller::Library("test".to_owned()));
    Catalog::call(&format!("pets.{name}"), arguments, call).await
}

fn json_reply(body: &str) -> Vec<u8> {
    http_response_with(200, &[("Content-Type", "application/json")], body)
}

fn redirect(status: u16, to: &str) -> Vec<u8> {
    http_response_with(status, &[("Location", to)], "")
}

#[tokio::test]
async fn a_call_is_one_request_and_returns_the_response() {
    let web = MockWebServer::serve(|_| json_reply(r#"{"id": 7}"#));
    let mut post_operation = operation("POST", "/owners/{owner}/pets");
    post_operation.parameters = vec![
        parameter(ParameterLocation::Path, "owner"),
        parameter(ParameterLocation::Query, "dry"),
        parameter(ParameterLocation::Header, "X-Trace"),
        parameter(ParameterLocation::Cookie, "theme"),
    ];
    post_operation.body = Some(body(&["name"], vec![("application/json", BodyEncoding::Json)]));
    let properties = json!({ "owner": {}, "dry": {}, "X-Trace": {}, "theme": {}, "body": {} });
    post_operation.input_schema = json!({ "type": "object", "properties": properties }).into();
    let arguments =
        json!({ "owner": "../../admin?x#y", "dry": true, "X-Trace": "t", "theme": "dark", "name": "Rex" });
    let output = call(api(&web, vec![post_operation], |_| ()), arguments).await.unwrap();
    assert_eq!(output.value, json!({ "id": 7 }));
    let requests = web.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].target(), "POST /v1/owners/..%2F..%2Fadmin%3Fx%23y/pets?dry=true");
    assert_eq!(requests[0].header("x-trace"), Some("t"));
    assert_eq!(requests[0].header("cookie"), Some("theme=dark"));
    assert_eq!(requests[0].header("content-type"), Some("application/json"));
    assert_eq!(requests[0].header("authorization"), None);
    assert!(requests[0].header("user-agent").is_some_and(|agent| agent.starts_with("ctx/")));
    assert_eq!(requests[0].json(), json!({ "name": "Rex" }));
}

#[tokio::test]
async fn a_post_without_a_body_has_content_length_zero() {
    let web = MockWebServer::serve(|_| http_response(204, ""));
    let output = call(api(&web, vec![operation("POST", "/pets")], |_| ()), json!({})).await.unwrap();
    assert_eq!(output.value, Value::Null);
    assert_eq!(web.requests()[0].header("content-length"), Some("0"));
}

#[tokio::test]
async fn an_error_has_status_and_body_as_data() {
    let web = MockWebServer::serve(|_| {
        http_response_with(409, &[("Content-Type", "application/json")], r#"{"code": "taken"}"#)
    });
    let error = call(api(&web, vec![operation("PUT", "/pets")], |_| ()), json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tool);
    assert!(error.message().ends_with(r#"/v1/pets: HTTP 409 Conflict: {"code":"taken"}"#), "{error}");
    assert_eq!(error.data(), Some(&json!({ "status": 409, "body": { "code": "taken" } })));
}

#[tokio::test]
async fn an_unreachable_service_is_named_without_its_query() {
    let stopped_service = MockWebServer::serve(|_| http_response(200, ""));
    let base = stopped_service.url("/v1?secret=hunter2!");
    drop(stopped_service);
    let description = Description { operations: vec![operation("GET", "/pets")], ..Description::default() };
    let error = call(api_of(description, &base, |_| ()), json!({})).await.unwrap_err();
    assert!(error.message().contains("/v1/pets: ") && !error.message().contains("hunter2"), "{error}");
}

#[tokio::test]
async fn configured_headers_are_added_to_every_request() {
    let web = MockWebServer::serve(|_| http_response(200, ""));
    let mut get_operation = operation("GET", "/pets");
    get_operation.parameters = vec![parameter(ParameterLocation::Header, "X-Tenant")];
    let own = |settings: &mut ApiSettings| {
        settings.headers = vec![("X-Tenant".to_owned(), Secret::new("ours"))];
    };
    call(api(&web, vec![get_operation], own), json!({ "X-Tenant": "theirs" })).await.unwrap();
    assert_eq!(web.requests()[0].header("x-tenant"), Some("ours"));
}

#[tokio::test]
async fn requests_go_through_the_proxy() {
    let proxy = MockWebServer::serve(|_| json_reply("1"));
    let description = Description { operations: vec![operation("GET", "/pets")], ..Description::default() };
    let through = |settings: &mut ApiSettings| settings.proxy = Some(Secret::new(proxy.url("")));
    let output = call(api_of(description, "http://api.invalid/v1", through), json!({})).await.unwrap();
    assert_eq!(output.value, json!(1));
    assert_eq!(proxy.requests()[0].target(), "GET http://api.invalid/v1/pets");
}

#[tokio::test]
async fn the_next_page_is_called_with_the_arguments_from_the_response() {
    let web = MockWebServer::serve(|request| match request.target() {
        "GET /v1/pets?page=2" => json_reply("[3]"),
        _ => http_response_with(
            200,
            &[("Content-Type", "application/json"), ("Link", "</v1/pets?page=2>; rel=\"next\"")],
            "[1, 2]",
        ),
    });
    let mut list_operation = operation("GET", "/pets");
    list_operation.parameters = vec![parameter(ParameterLocation::Query, "page")];
    list_operation.input_schema =
        json!({ "type": "object", "properties": { "page": { "type": "integer" } } }).into();
    let catalog = catalog(api(&web, vec![list_operation], |_| ()));
    let page = call_named(&catalog, "operation", json!({})).await.unwrap().page.unwrap();
    assert_eq!((page.items, &page.next), (Some(vec![]), &json!({ "page": 2 }).as_object().cloned()));
    let next = Value::Object(page.next.unwrap());
    let last = call_named(&catalog, "operation", next).await.unwrap();
    assert_eq!(last.value, json!([3]));
    assert_eq!(last.page.unwrap().next, json!({ "page": 3 }).as_object().cloned());
}

#[test]
fn invalid_settings_are_refused_without_showing_secrets() {
    let new = |change: fn(&mut ApiSettings)| {
        let mut settings = ApiSettings::new(Identifier::sanitize("pets"), Spec::File("pets.yaml".into()));
        change(&mut settings);
        settings.check().unwrap_err().to_string()
    };
    let error = new(|settings| settings.headers = vec![("X-A".to_owned(), Secret::new("hunter2!\n"))]);
    assert_eq!(error, "the header `X-A` is invalid");
    let error = new(|settings| settings.proxy = Some(Secret::new("http://hunter2!:@/")));
    assert_eq!(error, "the proxy URL is invalid");
}

#[test]
fn annotations_follow_from_the_method() {
    let methods = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"];
    let annotations_of_methods: Vec<_> = methods
        .iter()
        .map(|method| {
            let Annotations { read_only, destructive, idempotent, open_world } = annotations(method);
            assert_eq!(open_world, Some(true));
            (read_only, destructive, idempotent)
        })
        .collect();
    let reads = (Some(true), Some(false), Some(true));
    let changes = (Some(false), None, None);
    let (puts, deletes) = ((Some(false), None, Some(true)), (Some(false), Some(true), Some(true)));
    assert_eq!(annotations_of_methods, [reads, reads, reads, changes, puts, changes, deletes]);
}

#[test]
fn a_tool_spec_describes_the_operation() {
    let schema = json!({ "type": "object", "properties": { "id": { "type": "integer" } } });
    let described_operation = Operation {
        title: Some("Pets".to_owned()),
        description: "Lists pets.".to_owned(),
        tags: vec!["pets".to_owned()],
        input_schema: schema.clone().into(),
        output_schema: Some(json!({ "type": "array" }).into()),
        ..operation("GET", "/pets")
    };
    let description = Description { operations: vec![described_operation], ..Description::default() };
    let api = api_of(description, "https://api.example", |_| ());
    let spec = api.tools()[0].spec();
    assert_eq!((spec.name.as_str(), spec.title.as_deref()), ("operation", Some("Pets")));
    assert_eq!((spec.description.as_str(), &spec.tags), ("Lists pets.", &vec!["pets".to_owned()]));
    assert_eq!(
        (&spec.input_schema, &spec.output_schema),
        (&schema.into(), &Some(json!({ "type": "array" }).into()))
    );
    assert_eq!((api.name().as_str(), api.exposed()), ("pets", false));
}
