//! Discovery of functions: by a client, from a script, and by URI.

use crate::Test;
use crate::bench::{Bench, limits, settings};
use async_trait::async_trait;
use ctx_core::{Catalog, ErrorKind, Identifier, Provider, Tool, ToolError};
use ctx_testkit::{TestTool, provider, tool};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Characters of two thousand tokens.
const ANSWER_CHARS_MAX: usize = 8_000;

pub(crate) const TESTS: &[Test] = tests![discover:
    an_overview_counts_what_each_provider_has,
    a_provider_lists_its_functions_page_by_page,
    functions_are_found_by_name_need_parameter_and_field,
    functions_are_listed_by_tag,
    an_answer_is_bounded_whatever_the_functions_say,
    documentation_has_every_type_once,
    a_function_that_answered_json_text_is_documented_so,
    a_function_is_found_by_any_form_of_its_name,
    unknown_names_are_reported_with_the_nearest,
    several_names_are_one_answer,
    types_omitted_from_a_declaration_can_be_requested,
    a_script_finds_functions_too,
    another_catalog_is_another_directory,
    discovery_tools_are_read_only,
    documentation_is_read_by_uri,
    connecting_providers_are_waited_for,
    providers_that_do_not_answer_are_named,
    arguments_of_the_first_call_are_fitted_like_those_of_any_other,
    functions_discovered_after_the_catalog_was_built_are_checked,
];

fn tool_with(name: &str, description: &str, input: Value) -> TestTool {
    tool(name, |_, _| Box::pin(async { Ok(Value::Null.into()) })).schema(input).description(description)
}

fn create_issue() -> TestTool {
    let schema = json!({
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "One line."},
            "labels": {"type": "array", "items": {"$ref": "#/$defs/Label"}},
        },
        "required": ["title"],
        "$defs": {"Label": {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}},
    });
    tool_with("create-issue", "Opens a new issue. Needs a token.", schema)
}

fn github() -> Bench {
    let plain =
        || json!({"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]});
    let github = provider(
        "github",
        [
            create_issue(),
            tool_with("get_issue", "Reads one issue.", plain()),
            tool_with("merge_pull_request", "Merges a pull request into its branch.", plain()),
        ],
    );
    let weather = tool_with("forecast", "Tells the temperature of the next days.", json!({"type": "object"}));
    Bench::of(settings(), limits(), vec![github, provider("weather", [weather])])
}

async fn call_tool(bench: &Bench, tool: &str, arguments: Value) -> Result<String, ToolError> {
    let output = Catalog::call(tool, arguments, bench.call()).await?;
    Ok(output.value.as_str().unwrap_or_else(|| panic!("{output:?}")).to_owned())
}

async fn answer(bench: &Bench, tool: &str, arguments: Value) -> String {
    call_tool(bench, tool, arguments).await.unwrap_or_else(|error| panic!("{tool}: {error}"))
}

async fn error_of(bench: &Bench, tool: &str, arguments: Value) -> (ErrorKind, String) {
    let error = call_tool(bench, tool, arguments).await.unwrap_err();
    (error.kind(), error.message().to_owned())
}

pub(crate) async fn an_overview_counts_what_each_provider_has() {
    let expected = "10 functions of 3 providers\n\
         ctx – 6 functions: execute, file, get_function_docs, list_functions, result, …\n\
         github – 3 functions: create_issue, get_issue, merge_pull_request\n\
         weather – 1 function: forecast";
    assert_eq!(answer(&github(), "list_functions", json!({})).await, expected);
}

pub(crate) async fn a_provider_lists_its_functions_page_by_page() {
    let expected = "github: 3 functions\n\
         sdk.github.create_issue(title, labels?) – Opens a new issue.\n\
         sdk.github.get_issue(number) – Reads one issue.\n\
         sdk.github.merge_pull_request(number) – Merges a pull request into its branch.";
    let bench = github();
    assert_eq!(answer(&bench, "list_functions", json!({"provider": "github"})).await, expected);
    assert_eq!(
        error_of(&bench, "list_functions", json!({"provider": "githb"})).await,
        (ErrorKind::NotFound, "no provider is called githb (did you mean `github`?)".to_owned())
    );

    let many: Vec<TestTool> =
        (0..120).map(|number| tool_with(&format!("f{number:03}"), "", json!({"type": "object"}))).collect();
    let bench = Bench::of(settings(), limits(), vec![provider("many", many)]);
    let mut received = Vec::new();
    for page in 1..=3 {
        let text = answer(&bench, "list_functions", json!({"provider": "many", "page": page})).await;
        received.extend(text.lines().skip(1).map(str::to_owned));
    }
    let expected: Vec<String> = (0..120).map(|number| format!("sdk.many.f{number:03}()")).collect();
    assert_eq!(received, expected);
    let beyond = json!({"provider": "many", "page": 4});
    assert_eq!(error_of(&bench, "list_functions", beyond).await.0, ErrorKind::NotFound);
}

pub(crate) async fn functions_are_found_by_name_need_parameter_and_field() {
    let bench = github();
    for (query, found) in [
        ("create_issue", "sdk.github.create_issue("),
        ("open a ticket: new issue", "sdk.github.create_issue("),
        ("get issue", "sdk.github.get_issue("),
        ("colour", "sdk.github.create_issue("),
        ("Label", "sdk.github.create_issue("),
        ("merging pull requests", "sdk.github.merge_pull_request("),
        ("temperature tomorrow", "sdk.weather.forecast("),
        ("run a script", "sdk.ctx.execute("),
    ] {
        let text = answer(&bench, "search_docs", json!({"query": query})).await;
        assert!(text.starts_with(found), "{query}: {text}");
    }
    let one = answer(&bench, "search_docs", json!({"query": "issue", "limit": 1})).await;
    assert_eq!(one.lines().count(), 1, "{one}");
    let within =
        answer(&bench, "search_docs", json!({"query": "number of days", "provider": "github"})).await;
    assert!(within.lines().all(|line| line.starts_with("sdk.github.")), "{within}");
    assert_eq!(
        answer(&bench, "search_docs", json!({"query": "zxqvy"})).await,
        "no function matches; `list_functions` lists all"
    );
    let (kind, _) = error_of(&bench, "search_docs", json!({"query": " "})).await;
    assert_eq!(kind, ErrorKind::BadRequest);
}

pub(crate) async fn functions_are_listed_by_tag() {
    let plain = |name: &str| tool_with(name, "Does it.", json!({"type": "object"}));
    let shop =
        [plain("pay").tags(&["billing", "money"]), plain("refund").tags(&["billing"]), plain("browse")];
    let bank = [plain("transfer").tags(&["money"])];
    let bench = Bench::of(settings(), limits(), vec![provider("shop", shop), provider("bank", bank)]);
    for (arguments, expected) in [
        (
            json!({"tag": "money"}),
            "2 functions of 2 providers with the tag `money`\nbank – 1 function: transfer\nshop – 1 function: pay",
        ),
        (
            json!({"tag": "billing"}),
            "2 functions of 1 provider with the tag `billing`\nshop – 2 functions: pay, refund",
        ),
        (
            json!({"provider": "shop", "tag": "money"}),
            "shop: 1 function with the tag `money`\nsdk.shop.pay() – Does it.",
        ),
    ] {
        assert_eq!(answer(&bench, "list_functions", arguments).await, expected);
    }
    for (arguments, expected) in [
        (
            json!({"tag": "biling"}),
            "no function here has the tag `biling` (did you mean `billing`?); there are: billing, money",
        ),
        (json!({"provider": "bank", "tag": "x"}), "no function here has the tag `x`; there are: money"),
        (json!({"provider": "ctx", "tag": "x"}), "no function here has the tag `x`; none of them has tags"),
    ] {
        let error = error_of(&bench, "list_functions", arguments).await;
        assert_eq!(error, (ErrorKind::NotFound, expected.to_owned()));
    }
    let found = answer(&bench, "search_docs", json!({"query": "billing"})).await;
    assert!(found.starts_with("sdk.shop.") && !found.contains("shop.browse"), "{found}");
}

pub(crate) async fn an_answer_is_bounded_whatever_the_functions_say() {
    let properties: serde_json::Map<String, Value> =
        (0..40).map(|number| (format!("a_long_parameter_{number}"), json!({"type": "string"}))).collect();
    let schema = json!({"type": "object", "properties": properties});
    let long = "words and more words ".repeat(1_000);
    let tools: Vec<TestTool> = (0..200)
        .map(|number| tool_with(&format!("{}_{number}", "long_name".repeat(10)), &long, schema.clone()))
        .collect();
    let bench = Bench::of(settings(), limits(), vec![provider("wordy", tools)]);
    for (tool, arguments) in [
        ("search_docs", json!({"query": "words", "limit": 50})),
        ("list_functions", json!({"provider": "wordy"})),
        ("list_functions", json!({})),
    ] {
        let text = answer(&bench, tool, arguments).await;
        assert!(text.chars().count() <= ANSWER_CHARS_MAX, "{tool}: {}", text.chars().count());
        assert!(!text.is_empty());
    }
}

pub(crate) async fn documentation_has_every_type_once() {
    let text = answer(&github(), "get_function_docs", json!({"name": "github.create_issue"})).await;
    assert!(
        text.starts_with("-- Opens a new issue. Needs a token.\n-- @param title - One line.\n"),
        "{text}"
    );
    assert!(text.contains("\nfunction sdk.github.create_issue(params: { "), "{text}");
    assert_eq!(text.matches("export type Label = {").count(), 1, "{text}");
}

pub(crate) async fn a_function_that_answered_json_text_is_documented_so() {
    let answering = |name, answer: &'static str| {
        tool(name, move |_, _| Box::pin(async move { Ok(Value::from(answer).into()) }))
    };
    let env = answering("get_env", r#"{"PATH": "/bin"}"#);
    let bench = Bench::with([env, answering("plain", "[draft] a note")]);
    let docs = async |name: &str| answer(&bench, "get_function_docs", json!({ "name": name })).await;
    let lines = async || {
        let mut lines = answer(&bench, "search_docs", json!({"query": "get_env plain"})).await;
        lines.push_str(&answer(&bench, "list_functions", json!({"provider": "tools"})).await);
        let marked = lines.lines().filter(|line| line.contains("JSON text"));
        marked.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(!docs("tools.get_env").await.contains("json.decode"));
    assert_eq!(lines().await, [""; 0]);
    bench.run("return json.decode(sdk.tools.get_env{}).PATH .. sdk.tools.plain{}").await;
    let text = docs("tools.get_env").await;
    assert!(text.ends_with("-- It has returned JSON text: json.decode(text) parses it.\n"), "{text}");
    assert!(!docs("tools.plain").await.contains("json.decode"));
    let marked = lines().await;
    assert_eq!(marked.len(), 2, "{marked:?}");
    for line in marked {
        assert!(
            line.starts_with("sdk.tools.get_env(") && line.ends_with(" (returns JSON text: json.decode)"),
            "{line}"
        );
    }
}

pub(crate) async fn a_function_is_found_by_any_form_of_its_name() {
    let bench = github();
    let expected = answer(&bench, "get_function_docs", json!({"name": "github.create_issue"})).await;
    for name in ["sdk.github.create_issue", "github__create_issue", "create_issue", " github.create_issue "] {
        assert_eq!(answer(&bench, "get_function_docs", json!({ "name": name })).await, expected, "{name}");
    }
    let label = answer(&bench, "get_function_docs", json!({"name": "github.create_issue.Label"})).await;
    assert!(label.starts_with("export type Label = {"), "{label}");
}

pub(crate) async fn unknown_names_are_reported_with_the_nearest() {
    let bench = github();
    for (name, message) in [
        (
            "github.craete_issue",
            "no function is called github.craete_issue (did you mean `sdk.github.create_issue`?)",
        ),
        ("craete_issue", "no function is called craete_issue (did you mean `sdk.github.create_issue`?)"),
        ("zebra", "no function is called zebra; `search_docs` finds functions"),
        ("github", "github is a provider; `list_functions` with it lists its functions"),
        ("github.create_issue.Lable", "sdk.github.create_issue has no type Lable (did you mean `Label`?)"),
        // This built-in provider reads resources; it has no functions for scripts.
        ("resources.sdk___", "no function is called resources.sdk___; `search_docs` finds functions"),
    ] {
        let error = error_of(&bench, "get_function_docs", json!({ "name": name })).await;
        assert_eq!(error, (ErrorKind::NotFound, message.to_owned()));
    }
    let alike = |name| provider(name, [tool_with("read", "Reads.", json!({"type": "object"}))]);
    let bench = Bench::of(settings(), limits(), vec![alike("files"), alike("mail")]);
    let (_, message) = error_of(&bench, "get_function_docs", json!({"name": "read"})).await;
    assert_eq!(message, "several functions are called read: `sdk.files.read`, `sdk.mail.read`");
}

pub(crate) async fn several_names_are_one_answer() {
    let bench = github();
    let names = json!({"name": ["github.get_issue", "github.nothing_like_it", "weather.forecast"]});
    let text = answer(&bench, "get_function_docs", names).await;
    let places: Vec<usize> =
        ["sdk.github.get_issue(", "-- no function is called github.nothing_like_it", "sdk.weather.forecast("]
            .iter()
            .map(|part| text.find(part).unwrap_or_else(|| panic!("{part}: {text}")))
            .collect();
    assert!(places.is_sorted(), "{text}");
    let (kind, message) = error_of(&bench, "get_function_docs", json!({"name": ["zebra", "okapi"]})).await;
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(message.contains("zebra") && message.contains("okapi"), "{message}");
}

pub(crate) async fn types_omitted_from_a_declaration_can_be_requested() {
    let fields = |next: usize| -> Value {
        let mut fields: serde_json::Map<String, Value> = (0..80)
            .map(|number| (format!("a_field_with_a_long_name_{number}"), json!({"type": "string"})))
            .collect();
        fields.insert("next".to_owned(), json!({"$ref": format!("#/$defs/Part{next}")}));
        json!({"type": "object", "properties": fields})
    };
    let parts: serde_json::Map<String, Value> =
        (0..30).map(|number| (format!("Part{number}"), fields((number + 1) % 30))).collect();
    let schema = json!({"type": "object", "properties": {"part": {"$ref": "#/$defs/Part0"}}, "$defs": parts});
    let bench = Bench::of(settings(), limits(), vec![provider("big", [tool_with("put", "Puts.", schema)])]);
    let text = answer(&bench, "get_function_docs", json!({"name": "big.put"})).await;
    let (_, hint) = text.rsplit_once("-- The name `").unwrap_or_else(|| panic!("{text}"));
    let name = hint.split('`').next().unwrap();
    let omitted_type = answer(&bench, "get_function_docs", json!({ "name": name })).await;
    assert!(omitted_type.starts_with("export type Part") && !text.contains(&omitted_type), "{omitted_type}");
}

pub(crate) async fn a_script_finds_functions_too() {
    let script = "local found = sdk.ctx.search_docs{ query = 'create_issue', limit = 1 }\n\
                  local name = found:match('^[^(]+')\n\
                  return { name, sdk.ctx.get_function_docs{ name = { name } }, sdk.ctx.list_functions() }";
    let value = github().value(script).await;
    assert_eq!(value[0], json!("sdk.github.create_issue"));
    assert!(value[1].as_str().unwrap().contains("function sdk.github.create_issue("), "{value}");
    assert!(value[2].as_str().unwrap().starts_with("10 functions"), "{value}");
}

pub(crate) async fn another_catalog_is_another_directory() {
    let engine = ctx_luau::Engine::new(settings()).unwrap();
    let scripts = ctx_luau::Scripts::new(engine, limits(), std::sync::Arc::new(|_| None));
    let gateway = std::sync::Arc::new(ctx_gateway::Gateway::new(scripts, true));
    for (name, count) in [("one", 1), ("two", 2), ("three", 3)] {
        let tools: Vec<TestTool> = (0..count)
            .map(|number| tool_with(&format!("f{number}"), "", json!({"type": "object"})))
            .collect();
        let catalog = Catalog::builder().provider(gateway.clone()).provider(provider(name, tools)).build();
        let call = ctx_core::Call::new(catalog, ctx_core::Caller::Cli);
        let output = Catalog::call("list_functions", json!({ "provider": name }), call).await.unwrap();
        assert_eq!(output.value.as_str().unwrap().lines().count(), count + 1);
    }
}

pub(crate) async fn discovery_tools_are_read_only() {
    let bench = github();
    for name in ["list_functions", "search_docs", "get_function_docs"] {
        let entry = bench.catalog.entry(name).unwrap();
        assert_eq!(entry.spec.annotations, ctx_core::Annotations::READ_ONLY, "{name}");
        assert!(entry.exposed && entry.builtin, "{name}");
    }
}

pub(crate) async fn documentation_is_read_by_uri() {
    let bench = github();
    let origin = bench.catalog.resources().iter().find(|origin| origin.prefix() == "sdk://").unwrap();
    let mut uris = Vec::new();
    let mut from = None;
    loop {
        let page = origin.list(from.as_deref(), 4, &bench.catalog).await.unwrap();
        uris.extend(page.resources.into_iter().map(|resource| resource.uri));
        match page.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    let expected: Vec<String> = ["ctx", "github", "weather"]
        .iter()
        .flat_map(|provider| ["functions", "overview"].map(|what| format!("sdk://{provider}/{what}")))
        .collect();
    assert_eq!(uris, expected);
    for uri in &uris {
        let contents = Catalog::read(uri, bench.call()).await.unwrap();
        assert!(contents[0].text.as_ref().is_some_and(|text| !text.is_empty()), "{uri}");
    }

    let read = async |uri: &str| Catalog::read(uri, bench.call()).await;
    let overview = read("sdk://github/overview").await.unwrap()[0].text.clone().unwrap();
    assert!(overview.starts_with("github – 3 functions: create_issue, "), "{overview}");
    let functions = read("sdk://github/functions").await.unwrap()[0].text.clone().unwrap();
    assert!(
        functions.starts_with("sdk.github.create_issue(title, labels?) – Opens a new issue.\n"),
        "{functions}"
    );
    let one = read("sdk://github/functions/create_issue").await.unwrap()[0].text.clone().unwrap();
    assert_eq!(one, answer(&bench, "get_function_docs", json!({"name": "github.create_issue"})).await);
    for wrong in ["sdk://githb/overview", "sdk://github/functions/nope", "sdk://github", "sdk://"] {
        assert_eq!(read(wrong).await.unwrap_err().kind(), ErrorKind::NotFound, "{wrong}");
    }
}

/// A provider that is still connecting, and answers as soon as somebody waits for it, or never.
struct ConnectingProvider {
    known: Arc<dyn Provider>,
    is_known: AtomicBool,
    answers: bool,
}

fn connecting(name: &str, answers: bool) -> Arc<dyn Provider> {
    let forecast =
        tool_with("forecast", "Tells the temperature of the next days.", json!({"type": "object"}));
    connecting_to(provider(name, [forecast]), answers)
}

fn connecting_to(known: Arc<dyn Provider>, answers: bool) -> Arc<dyn Provider> {
    Arc::new(ConnectingProvider { known, is_known: AtomicBool::new(false), answers })
}

#[async_trait]
impl Provider for ConnectingProvider {
    fn name(&self) -> Identifier {
        self.known.name()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        if self.is_known.load(Ordering::SeqCst) { self.known.tools() } else { Vec::new() }
    }

    fn unknown_reason(&self) -> Option<String> {
        (!self.is_known.load(Ordering::SeqCst)).then(|| "is still connecting".to_owned())
    }

    async fn wait_until_known(&self) {
        match self.answers {
            true => self.is_known.store(true, Ordering::SeqCst),
            false => std::future::pending().await,
        }
    }
}

pub(crate) async fn connecting_providers_are_waited_for() {
    let line = "sdk.weather.forecast() – Tells the temperature of the next days.";
    for (tool, arguments) in [
        ("search_docs", json!({"query": "temperature", "limit": 1})),
        ("search_docs", json!({"query": "temperature", "provider": "weather"})),
        ("list_functions", json!({"provider": "weather"})),
    ] {
        let bench = Bench::of(settings(), limits(), vec![connecting("weather", true)]);
        let text = answer(&bench, tool, arguments).await;
        assert!(text.ends_with(line), "{tool}: {text}");
    }
    let bench = Bench::of(settings(), limits(), vec![connecting("weather", true)]);
    let overview = answer(&bench, "list_functions", json!({})).await;
    assert!(overview.contains("weather – 1 function: forecast"), "{overview}");
    let bench = Bench::of(settings(), limits(), vec![connecting("weather", true)]);
    let docs = answer(&bench, "get_function_docs", json!({"name": "sdk.weather.forecast"})).await;
    assert!(docs.contains("Tells the temperature"), "{docs}");
}

pub(crate) async fn functions_discovered_after_the_catalog_was_built_are_checked() {
    let bench = Bench::of(settings(), limits(), vec![connecting("weather", true)]);
    answer(&bench, "list_functions", json!({"provider": "weather"})).await;
    let (_, message) = bench.failure("return sdk.weather.forecst{}").await;
    assert!(message.contains("nothing was called") && message.contains("`forecast`"), "{message}");
}

pub(crate) async fn providers_that_do_not_answer_are_named() {
    let slow = connecting("slow", false);
    let bench = Bench::of(settings(), limits(), vec![slow, connecting("weather", true)]);
    let text = answer(&bench, "search_docs", json!({"query": "temperature", "limit": 1})).await;
    assert_eq!(
        text,
        "not searched, since their functions are not known yet: slow\n\
         sdk.weather.forecast() – Tells the temperature of the next days."
    );
}

pub(crate) async fn arguments_of_the_first_call_are_fitted_like_those_of_any_other() {
    let schema = json!({
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "labels": {"type": "array"},
            "note": {"type": "object", "properties": {"tags": {"type": "array"}}},
        },
        "required": ["id", "note"],
    });
    let received: Arc<Mutex<Vec<Value>>> = Arc::default();
    let store = || {
        let received = received.clone();
        let store = tool("store", move |arguments, _| {
            received.lock().unwrap().push(Value::Object(arguments));
            Box::pin(async { Ok(Value::Null.into()) })
        });
        connecting_to(provider("notes", [store.schema(schema.clone()).body("note", true)]), true)
    };
    // A body as the second argument, and `{}` where the schema wants a list, by the first call of its catalog.
    let fitted = json!({"id": 1, "labels": [], "note": {"tags": []}});
    for script in [
        "sdk.notes.store({ id = 1, labels = {} }, { tags = {} })",
        "sdk.notes.store{ id = 1, labels = {}, note = { tags = {} } }",
        "sdk.notes.store{ id = 1, labels = {}, tags = {} }",
    ] {
        let bench = Bench::of(settings(), limits(), vec![store()]);
        bench.value(&format!("{script}\nreturn 1")).await;
        assert_eq!(received.lock().unwrap().pop(), Some(fitted.clone()), "{script}");
    }
    let bench = Bench::of(settings(), limits(), vec![store()]);
    let (_, message) = bench.failure("sdk.notes.store({ id = 'x' }, { tags = {} })").await;
    assert!(message.contains("parameter `id`"), "{message}");
}
