//! `Catalog::call`: names, arguments, policy, rate limits and sizes.

use crate::common::{answer, echo, failing, from_cli, provider, refusal, relay, tool, with};
use ctx_core::{
    Call, Caller, Catalog, ContentBlock, Decision, ErrorKind, Identifier, Identity, Limits, Output, Peer,
    Progress, Redactor, Schema, Secret, ToolError, ToolName, ToolSpec,
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn titled() -> Value {
    json!({
        "type": "object",
        "properties": {"title": {"type": "string"}, "project": {"type": "string", "default": "ENG"}},
        "required": ["title"],
    })
}

/// Nobody may call `delete`, and nothing may be called over HTTP.
fn cautious(tool: &ToolName, _: &ToolSpec, caller: &Caller, _: Option<&Identity>) -> Decision {
    if tool.tool().as_str() == "delete" {
        Decision::Deny("it deletes".to_owned())
    } else if *caller == Caller::Http {
        Decision::Deny("not from there".to_owned())
    } else {
        Decision::Allow
    }
}

#[tokio::test]
async fn an_unknown_tool_is_not_found() {
    let catalog = with([echo("create_ticket")]).build();
    let expected = (ErrorKind::NotFound, "no tool registered with name: foo".to_owned());
    assert_eq!(refusal(&catalog, "foo", json!({})).await, expected);
}

#[tokio::test]
async fn a_misspelt_name_is_told_the_nearest() {
    let catalog = with([]).provider(provider("github", [echo("create_issue")])).build();
    for (wrong, near) in [
        ("github__create_isue", "github__create_issue"),
        ("githib.create_issue", "github.create_issue"),
        ("github.create_issues", "github.create_issue"),
    ] {
        let message = format!("no tool registered with name: {wrong} (did you mean `{near}`?)");
        assert_eq!(refusal(&catalog, wrong, json!({})).await, (ErrorKind::NotFound, message));
    }
}

#[tokio::test]
async fn the_nearest_of_equally_near_names_is_always_the_same() {
    let mut suggestions = Vec::new();
    for _ in 0..20 {
        let catalog = with([echo("gel"), echo("gem"), echo("get"), echo("gez")]).build();
        suggestions.push(refusal(&catalog, "ge", json!({})).await.1);
    }
    suggestions.dedup();
    assert_eq!(suggestions, ["no tool registered with name: ge (did you mean `gel`?)"]);
}

#[tokio::test]
async fn a_very_long_unknown_name_is_not_repeated_whole() {
    let (_, message) = refusal(&with([]).build(), &"x".repeat(10_000), json!({})).await;
    assert!(message.len() < 200, "{message}");
}

#[tokio::test]
async fn a_tool_answers_to_its_full_and_its_outward_name() {
    let catalog = with([echo("create-ticket")]).provider(provider("my.api", [echo("get")])).build();
    for name in ["create_ticket", "tools.create_ticket", "my_api__get", "my_api.get"] {
        assert!(catalog.entry(name).is_some(), "{name}");
        assert_eq!(answer(&catalog, name, json!({"by": name})).await, json!({"by": name}));
    }
    for name in ["get", "my.api.get", "create-ticket"] {
        assert!(catalog.entry(name).is_none(), "{name}");
        assert_eq!(refusal(&catalog, name, json!({})).await.0, ErrorKind::NotFound, "{name}");
    }
}

#[tokio::test]
async fn colliding_names_are_numbered_with_a_warning() {
    let catalog = with([failing("a-b", "first"), failing("a.b", "second")]).build();
    assert_eq!(
        catalog.warnings(),
        ["two tools of tools have the same name; `a.b` is renamed to tools.a_b_2"]
    );
    let names: Vec<_> = catalog.entries().map(|entry| entry.name.to_string()).collect();
    assert_eq!(names, ["tools.a_b", "tools.a_b_2"]);
    assert_eq!(refusal(&catalog, "a_b", json!({})).await.1, "first");
    assert_eq!(refusal(&catalog, "a_b_2", json!({})).await.1, "second");
}

#[tokio::test]
async fn a_tool_whose_outward_name_is_taken_is_left_out_with_a_warning() {
    let catalog = Catalog::builder()
        .provider(provider("context", [failing("search", "ours")]))
        .provider(provider("tools", [failing("search", "theirs"), echo("other")]))
        .build();
    assert_eq!(catalog.warnings(), ["tools.search is left out: the name `search` is taken"]);
    assert_eq!(refusal(&catalog, "search", json!({})).await.1, "ours");
    assert_eq!(refusal(&catalog, "tools.search", json!({})).await.0, ErrorKind::NotFound);
    assert_eq!(answer(&catalog, "other", json!({})).await, json!({}));
}

#[test]
fn what_clients_do_not_see_takes_no_name_from_what_they_see() {
    let (unseen, seen) = (provider("hidden", [echo("a__b")]), provider("hidden__a", [echo("b")]));
    for [first, second] in [[&unseen, &seen], [&seen, &unseen]] {
        let catalog = Catalog::builder().provider(first.clone()).provider(second.clone()).build();
        assert_eq!(catalog.warnings(), [""; 0]);
        assert_eq!(catalog.entry("hidden__a__b").unwrap().name.to_string(), "hidden__a.b");
        assert!(catalog.entry("hidden.a__b").is_some());
    }
}

#[test]
fn only_providers_with_a_tool_in_the_catalog_are_named() {
    let catalog = Catalog::builder()
        .provider(provider("tools", [echo("search"), echo("other")]))
        .provider(provider("context", [failing("search", "too late")]))
        .provider(provider("empty", []))
        .build();
    let names: Vec<&str> = catalog.providers().map(Identifier::as_str).collect();
    assert_eq!(names, ["tools"]);
}

#[tokio::test]
async fn a_missing_required_parameter_is_named() {
    let catalog = with([echo("create").schema(titled())]).build();
    let expected = (ErrorKind::BadRequest, "missing required parameter: title".to_owned());
    for nothing in [json!({}), json!(null), json!({"project": "OPS"})] {
        assert_eq!(refusal(&catalog, "create", nothing).await, expected);
    }
}

#[tokio::test]
async fn defaults_reach_the_tool() {
    let catalog = with([echo("create").schema(titled())]).build();
    let got = answer(&catalog, "create", json!({"title": "x"})).await;
    assert_eq!(got, json!({"title": "x", "project": "ENG"}));
    let got = answer(&catalog, "create", json!({"title": "x", "project": "OPS"})).await;
    assert_eq!(got, json!({"title": "x", "project": "OPS"}));
}

// Seen in the field: `"type": "string", "default": null` for what may be left out.
#[tokio::test]
async fn a_default_that_does_not_fit_is_not_held_against_the_caller() {
    let schema = json!({"type": "object", "properties": {"label": {"type": "string", "default": null}}});
    let catalog = with([echo("create").schema(schema)]).build();
    assert_eq!(answer(&catalog, "create", json!({})).await, json!({}));
}

// Two such properties double the value at every level; with three the call never ends.
#[tokio::test]
async fn defaults_do_not_grow_arguments_past_their_bound() {
    let schema = json!({"type": "object", "properties": {
        "left": {"$ref": "#", "default": {}}, "right": {"$ref": "#", "default": {}},
    }});
    let limits = Limits { argument_bytes: 64 << 10, ..Limits::default() };
    let catalog = with([echo("tree").schema(schema)]).limits(limits).build();
    match Catalog::call("tree", json!({}), from_cli(&catalog)).await {
        Ok(output) => {
            let bytes = output.value.to_string().len();
            assert!(bytes <= limits.argument_bytes, "{bytes} bytes of defaults");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::TooLarge),
    }
}

#[tokio::test]
async fn a_faulty_schema_is_a_warning_and_the_tool_still_works() {
    let faulty = json!({"type": "banana", "properties": {"project": {"default": "ENG"}}});
    let catalog = with([echo("odd").schema(faulty), echo("other")]).build();
    let [warning] = catalog.warnings() else { panic!("{:?}", catalog.warnings()) };
    let expected = "arguments of tools.odd are not validated, because its schema is invalid: ";
    assert!(warning.starts_with(expected), "{warning}");
    assert_eq!(answer(&catalog, "odd", json!({"any": 1})).await, json!({"any": 1, "project": "ENG"}));
    let expected = (ErrorKind::BadRequest, "arguments must be a JSON object".to_owned());
    assert_eq!(refusal(&catalog, "odd", json!([1])).await, expected);
}

#[tokio::test]
async fn a_schema_that_has_to_be_made_is_made_once_when_its_tool_is_called() {
    let generations = Arc::new(AtomicUsize::new(0));
    let count = generations.clone();
    let schema = Schema::lazy(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        json!({"type": "object", "properties": {"n": {"type": "integer", "default": 7}}})
    });
    let tools = provider("tools", [echo("late").schema(schema)]);
    let catalog = Catalog::builder().provider(tools.clone()).build();
    assert_eq!(generations.load(Ordering::Relaxed), 0);
    assert_eq!(answer(&catalog, "late", json!({})).await, json!({"n": 7}));
    assert_eq!(refusal(&catalog, "late", json!({"n": "x"})).await.0, ErrorKind::BadRequest);
    let next = Catalog::builder().provider(tools).replacing(&catalog).build();
    assert_eq!(answer(&next, "late", json!({})).await, json!({"n": 7}));
    assert_eq!(generations.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn what_the_policy_denies_is_forbidden() {
    let catalog = with([echo("delete"), echo("get")]).policy(Arc::new(cautious)).build();
    let expected = (ErrorKind::Forbidden, "tools.delete is not allowed: it deletes".to_owned());
    assert_eq!(refusal(&catalog, "delete", json!({})).await, expected);
    assert_eq!(refusal(&catalog, "tools.delete", json!({})).await, expected);
    assert_eq!(answer(&catalog, "get", json!({})).await, json!({}));
}

#[tokio::test]
async fn what_the_policy_denies_is_forbidden_inside_a_call_too() {
    let catalog = with([relay("run"), echo("delete")]).policy(Arc::new(cautious)).build();
    let expected = (ErrorKind::Forbidden, "tools.delete is not allowed: it deletes".to_owned());
    assert_eq!(refusal(&catalog, "run", json!({"calls": [["delete", {}]]})).await, expected);
    let nested = json!({"calls": [["run", {"calls": [["tools.delete", {}]]}]]});
    assert_eq!(refusal(&catalog, "run", nested).await, expected);
}

#[tokio::test]
async fn the_policy_is_told_who_calls() {
    let catalog = with([echo("get")]).policy(Arc::new(cautious)).build();
    let over_http = Catalog::call("get", json!({}), Call::new(catalog.clone(), Caller::Http)).await;
    assert_eq!(over_http.unwrap_err().message(), "tools.get is not allowed: not from there");
}

#[tokio::test]
async fn a_call_over_the_rate_is_told_how_long_to_wait() {
    let catalog = with([echo("scarce").rate("2/h"), echo("scarce_too").rate("2/h"), echo("free")]).build();
    for _ in 0..2 {
        answer(&catalog, "scarce", json!({})).await;
    }
    let error = Catalog::call("tools.scarce", json!({}), from_cli(&catalog)).await.unwrap_err();
    let wait = error.retry_after().unwrap();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert!(wait > Duration::from_secs(1_700) && wait <= Duration::from_secs(1_800), "{wait:?}");
    let seconds = wait.as_secs_f64().ceil();
    assert_eq!(error.message(), format!("the rate limit of scarce is exceeded; try again in {seconds} s"));
    for other in ["scarce_too", "free"] {
        answer(&catalog, other, json!({})).await;
    }
}

#[tokio::test]
async fn calls_inside_a_call_count_against_the_rate() {
    let catalog = with([relay("run"), echo("scarce").rate("2/h")]).build();
    answer(&catalog, "run", json!({"calls": [["scarce", {}], ["scarce", {}]]})).await;
    assert_eq!(refusal(&catalog, "scarce", json!({})).await.0, ErrorKind::RateLimited);
}

#[tokio::test]
async fn rate_counts_survive_a_reload_unless_the_rate_changes() {
    let old = with([echo("scarce").rate("2/h")]).build();
    answer(&old, "scarce", json!({})).await;
    answer(&old, "scarce", json!({})).await;

    let new = with([echo("scarce").rate("2/hour")]).replacing(&old).build();
    assert_eq!(refusal(&new, "scarce", json!({})).await.0, ErrorKind::RateLimited);
    let wider = with([echo("scarce").rate("3/h")]).replacing(&new).build();
    answer(&wider, "scarce", json!({})).await;
    let unrelated = with([echo("scarce").rate("2/h")]).build();
    answer(&unrelated, "scarce", json!({})).await;
}

#[tokio::test]
async fn a_refused_call_does_not_use_up_the_rate() {
    let limits = Limits { argument_bytes: 100, ..Limits::default() };
    let catalog =
        with([echo("create").schema(titled()).rate("1/h")]).policy(Arc::new(cautious)).limits(limits).build();
    for _ in 0..3 {
        assert_eq!(refusal(&catalog, "create", json!({})).await.0, ErrorKind::BadRequest);
        let long = json!({"title": "x".repeat(200)});
        assert_eq!(refusal(&catalog, "create", long).await.0, ErrorKind::TooLarge);
        let over_http = Call::new(catalog.clone(), Caller::Http);
        assert!(Catalog::call("create", json!({"title": "x"}), over_http).await.is_err());
    }
    answer(&catalog, "create", json!({"title": "x"})).await;
    assert_eq!(refusal(&catalog, "create", json!({"title": "x"})).await.0, ErrorKind::RateLimited);
}

#[tokio::test]
async fn arguments_over_the_limit_are_too_large() {
    let limits = Limits { argument_bytes: 20, ..Limits::default() };
    let catalog = with([echo("echo")]).limits(limits).build();
    let fitting = json!({"text": "123456789"});
    assert_eq!(fitting.to_string().len(), 20);
    assert_eq!(answer(&catalog, "echo", fitting.clone()).await, fitting);
    let expected = (ErrorKind::TooLarge, "arguments are 21 bytes; the limit is 20".to_owned());
    assert_eq!(refusal(&catalog, "echo", json!({"text": "1234567890"})).await, expected);
}

#[tokio::test]
async fn a_result_over_the_limit_is_too_large() {
    let limits = Limits { result_bytes: 20, ..Limits::default() };
    let catalog = with([echo("echo")]).limits(limits).build();
    let fitting = json!({"text": "123456789"});
    assert_eq!(answer(&catalog, "echo", fitting.clone()).await, fitting);
    let expected = (ErrorKind::TooLarge, "the result is 21 bytes; the limit is 20".to_owned());
    assert_eq!(refusal(&catalog, "echo", json!({"text": "1234567890"})).await, expected);
}

#[tokio::test]
async fn blocks_of_content_count_towards_the_size_of_a_result() {
    let screenshot = tool("screenshot", |_, _| {
        let image = json!({"type": "image", "data": "x".repeat(100)});
        let blocks = vec![
            ContentBlock::Text("y".repeat(100)),
            ContentBlock::Other(image.as_object().cloned().unwrap_or_default()),
        ];
        Box::pin(async { Ok(Output { content: blocks, ..Output::default() }) })
    });
    let limits = Limits { result_bytes: 50, ..Limits::default() };
    let catalog = with([screenshot]).limits(limits).build();
    assert_eq!(refusal(&catalog, "screenshot", json!({})).await.0, ErrorKind::TooLarge);
}

#[tokio::test]
async fn known_secrets_are_masked_in_errors() {
    let leaking = tool("leak", |_, _| {
        Box::pin(async {
            let error = ToolError::new(ErrorKind::Overloaded, "GET https://x/?key=hunter2hunter2 failed");
            Err(error.with_retry_after(Duration::from_secs(7)))
        })
    });
    let redactor = Redactor::new([Secret::new("hunter2hunter2")]);
    let catalog = with([leaking, relay("run")]).redactor(redactor).build();

    let error = Catalog::call("leak", json!({}), from_cli(&catalog)).await.unwrap_err();
    assert_eq!(error.message(), "GET https://x/?key=*** failed");
    assert_eq!((error.kind(), error.retry_after()), (ErrorKind::Overloaded, Some(Duration::from_secs(7))));
    let (_, inside) = refusal(&catalog, "run", json!({"calls": [["leak", {}]]})).await;
    assert_eq!(inside, "GET https://x/?key=*** failed");
}

#[derive(Default)]
struct Listener(Mutex<Vec<String>>);

#[allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]
impl Peer for Listener {
    fn progress(&self, progress: Progress) {
        self.0.lock().unwrap().extend(progress.message);
    }

    fn event(&self, event: &Value) {
        self.0.lock().unwrap().push(event.to_string());
    }

    fn log(&self, level: tracing::Level, message: &str) {
        self.0.lock().unwrap().push(format!("{level} {message}"));
    }
}

#[tokio::test]
async fn known_secrets_are_masked_in_what_a_peer_is_told() {
    let telling = tool("tell", |_, call| {
        call.peer().log(tracing::Level::WARN, "key hunter2hunter2");
        let message = Some("with hunter2hunter2".to_owned());
        call.peer().progress(Progress { done: 1.0, total: None, message });
        call.peer().event(&json!({"read": "hunter2hunter2"}));
        Box::pin(async { Ok(Output::default()) })
    });
    let catalog = with([telling]).redactor(Redactor::new([Secret::new("hunter2hunter2")])).build();
    let listener = Arc::new(Listener::default());
    Catalog::call("tell", json!({}), from_cli(&catalog).with_peer(listener.clone())).await.unwrap();
    assert_eq!(*listener.0.lock().unwrap(), ["WARN key ***", "with ***", r#"{"read":"***"}"#]);
}

#[tokio::test]
async fn a_secret_given_for_a_name_is_masked() {
    let catalog = with([]).redactor(Redactor::new([Secret::new("hunter2hunter2")])).build();
    let (_, message) = refusal(&catalog, "hunter2hunter2", json!({})).await;
    assert_eq!(message, "no tool registered with name: ***");
}
