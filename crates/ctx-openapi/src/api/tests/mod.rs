//! Calls to a service that records the requests it receives.

mod access;
mod addresses;
mod brought;
mod files;
mod hostile;
mod limits;
mod wire;

use super::*;
use crate::auth::Credential;
use crate::operation::{MediaKind, Place, Scheme};
use crate::request::tests::{body, operation, parameter};
use crate::settings::Spec;
use ctx_core::{Caller, Catalog, NetworkScope, Secret};
use ctx_testkit::{Web, reply, reply_with};
use serde_json::json;
use std::collections::BTreeMap;

/// An API with these operations at this address.
fn api(web: &Web, operations: Vec<Operation>, change: impl FnOnce(&mut ApiSettings)) -> Api {
    described(Description { operations, ..Description::default() }, &web.url("/v1"), change)
}

fn described(description: Description, base: &str, change: impl FnOnce(&mut ApiSettings)) -> Api {
    let mut settings = ApiSettings::new(Identifier::sanitize("pets"), Spec::File("pets.yaml".into()));
    settings.base_url = Some(base.to_owned());
    change(&mut settings);
    of_settings(description, settings)
}

fn of_settings(description: Description, settings: ApiSettings) -> Api {
    let address = match &settings.spec {
        Spec::Web(url) => Some(WebAddress { url: url.clone(), scope: NetworkScope::Internet }),
        Spec::File(_) => None,
    };
    let client = Client::new(&settings).unwrap();
    Api::new(description, address, Arc::new(settings), Arc::new(client))
}

/// Calls its only operation through the catalog.
async fn call(api: Api, arguments: Value) -> Result<Output, ToolError> {
    call_named(&catalog(api), "operation", arguments).await
}

fn catalog(api: Api) -> Arc<Catalog> {
    Catalog::builder().provider(Arc::new(api)).build()
}

async fn call_named(catalog: &Arc<Catalog>, name: &str, arguments: Value) -> Result<Output, ToolError> {
    let call = Call::new(catalog.clone(), Caller::Library("test".to_owned()));
    Catalog::call(&format!("pets.{name}"), arguments, call).await
}

fn json_reply(body: &str) -> Vec<u8> {
    reply_with(200, &[("Content-Type", "application/json")], body)
}

fn redirect(status: u16, to: &str) -> Vec<u8> {
    reply_with(status, &[("Location", to)], "")
}

#[tokio::test]
async fn a_call_is_one_request_and_its_answer_the_value() {
    let web = Web::serve(|_| json_reply(r#"{"id": 7}"#));
    let mut adding = operation("POST", "/owners/{owner}/pets");
    adding.parameters = vec![
        parameter(Place::Path, "owner"),
        parameter(Place::Query, "dry"),
        parameter(Place::Header, "X-Trace"),
        parameter(Place::Cookie, "theme"),
    ];
    adding.body = Some(body(&["name"], vec![("application/json", MediaKind::Json)]));
    let properties = json!({ "owner": {}, "dry": {}, "X-Trace": {}, "theme": {}, "body": {} });
    adding.input_schema = json!({ "type": "object", "properties": properties }).into();
    let arguments =
        json!({ "owner": "../../admin?x#y", "dry": true, "X-Trace": "t", "theme": "dark", "name": "Rex" });
    let output = call(api(&web, vec![adding], |_| ()), arguments).await.unwrap();
    assert_eq!(output.value, json!({ "id": 7 }));
    let asked = web.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].target(), "POST /v1/owners/..%2F..%2Fadmin%3Fx%23y/pets?dry=true");
    assert_eq!(asked[0].header("x-trace"), Some("t"));
    assert_eq!(asked[0].header("cookie"), Some("theme=dark"));
    assert_eq!(asked[0].header("content-type"), Some("application/json"));
    assert_eq!(asked[0].header("authorization"), None);
    assert!(asked[0].header("user-agent").is_some_and(|agent| agent.starts_with("ctx/")));
    assert_eq!(asked[0].json(), json!({ "name": "Rex" }));
}

#[tokio::test]
async fn a_request_without_a_body_says_so() {
    let web = Web::serve(|_| reply(204, ""));
    let output = call(api(&web, vec![operation("POST", "/pets")], |_| ()), json!({})).await.unwrap();
    assert_eq!(output.value, Value::Null);
    assert_eq!(web.asked()[0].header("content-length"), Some("0"));
}

#[tokio::test]
async fn a_failure_has_status_and_body_for_programs() {
    let web =
        Web::serve(|_| reply_with(409, &[("Content-Type", "application/json")], r#"{"code": "taken"}"#));
    let error = call(api(&web, vec![operation("PUT", "/pets")], |_| ()), json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tool);
    assert!(error.message().ends_with(r#"/v1/pets: HTTP 409 Conflict: {"code":"taken"}"#), "{error}");
    assert_eq!(error.data(), Some(&json!({ "status": 409, "body": { "code": "taken" } })));
}

#[tokio::test]
async fn a_service_that_is_not_there_is_named_without_its_query() {
    let gone = Web::serve(|_| reply(200, ""));
    let base = gone.url("/v1?secret=hunter2!");
    drop(gone);
    let description = Description { operations: vec![operation("GET", "/pets")], ..Description::default() };
    let error = call(described(description, &base, |_| ()), json!({})).await.unwrap_err();
    assert!(error.message().contains("/v1/pets: ") && !error.message().contains("hunter2"), "{error}");
}

#[tokio::test]
async fn what_is_configured_is_added_to_every_request() {
    let web = Web::serve(|_| reply(200, ""));
    let mut reading = operation("GET", "/pets");
    reading.parameters = vec![parameter(Place::Header, "X-Tenant")];
    let own = |settings: &mut ApiSettings| {
        settings.headers = vec![("X-Tenant".to_owned(), Secret::new("ours"))];
    };
    call(api(&web, vec![reading], own), json!({ "X-Tenant": "theirs" })).await.unwrap();
    assert_eq!(web.asked()[0].header("x-tenant"), Some("ours"));
}

#[tokio::test]
async fn a_proxy_is_asked_in_place_of_the_service() {
    let proxy = Web::serve(|_| json_reply("1"));
    let description = Description { operations: vec![operation("GET", "/pets")], ..Description::default() };
    let through = |settings: &mut ApiSettings| settings.proxy = Some(Secret::new(proxy.url("")));
    let output = call(described(description, "http://api.invalid/v1", through), json!({})).await.unwrap();
    assert_eq!(output.value, json!(1));
    assert_eq!(proxy.asked()[0].target(), "GET http://api.invalid/v1/pets");
}

#[tokio::test]
async fn the_next_page_is_called_with_what_the_answer_says() {
    let web = Web::serve(|asked| match asked.target() {
        "GET /v1/pets?page=2" => json_reply("[3]"),
        _ => reply_with(
            200,
            &[("Content-Type", "application/json"), ("Link", "</v1/pets?page=2>; rel=\"next\"")],
            "[1, 2]",
        ),
    });
    let mut listing = operation("GET", "/pets");
    listing.parameters = vec![parameter(Place::Query, "page")];
    listing.input_schema =
        json!({ "type": "object", "properties": { "page": { "type": "integer" } } }).into();
    let catalog = catalog(api(&web, vec![listing], |_| ()));
    let page = call_named(&catalog, "operation", json!({})).await.unwrap().page.unwrap();
    assert_eq!((page.items, &page.next), (Some(vec![]), &json!({ "page": 2 }).as_object().cloned()));
    let next = Value::Object(page.next.unwrap());
    let last = call_named(&catalog, "operation", next).await.unwrap();
    assert_eq!(last.value, json!([3]));
    assert_eq!(last.page.unwrap().next, json!({ "page": 3 }).as_object().cloned());
}

#[test]
fn what_cannot_be_configured_is_refused_without_showing_it() {
    let new = |change: fn(&mut ApiSettings)| {
        let mut settings = ApiSettings::new(Identifier::sanitize("pets"), Spec::File("pets.yaml".into()));
        change(&mut settings);
        settings.check().unwrap_err().to_string()
    };
    let error = new(|settings| settings.headers = vec![("X-A".to_owned(), Secret::new("hunter2!\n"))]);
    assert_eq!(error, "the header `X-A` cannot be sent");
    let error = new(|settings| settings.proxy = Some(Secret::new("http://hunter2!:@/")));
    assert_eq!(error, "the address of the proxy cannot be read");
}

#[test]
fn tools_say_of_themselves_what_their_method_says() {
    let methods = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"];
    let said: Vec<_> = methods
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
    assert_eq!(said, [reads, reads, reads, changes, puts, changes, deletes]);
}

#[test]
fn a_spec_is_what_the_operation_says() {
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
    let api = described(description, "https://api.example", |_| ());
    let spec = api.tools()[0].spec();
    assert_eq!((spec.name.as_str(), spec.title.as_deref()), ("operation", Some("Pets")));
    assert_eq!((spec.description.as_str(), &spec.tags), ("Lists pets.", &vec!["pets".to_owned()]));
    assert_eq!(
        (&spec.input_schema, &spec.output_schema),
        (&schema.into(), &Some(json!({ "type": "array" }).into()))
    );
    assert_eq!((api.name().as_str(), api.exposed()), ("pets", false));
}
