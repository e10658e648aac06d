//! The hidden provider: only the program itself may call its tools; to everyone else they do not exist.

use crate::common::{Runs, answer, echo, error_of, from_cli, provider, refusal, relay, tool, with};
use ctx_core::{BuiltinProvider, Call, Caller, Catalog, ErrorKind, Limits, ToolError};
use serde_json::{Value, json};
use std::sync::Arc;

fn administered() -> Arc<Catalog> {
    let admin = provider("admin", [echo("list_runs")]);
    with([relay("relay")]).provider(provider("github", [echo("get")])).provider(admin).build()
}

fn others() -> [Caller; 4] {
    let named = "cli".to_owned();
    [Caller::Http, Caller::Mcp(named.clone()), Caller::Mcp(String::new()), Caller::Library(named)]
}

fn not_found(name: &str) -> (ErrorKind, String) {
    (ErrorKind::NotFound, format!("no tool registered with name: {name}"))
}

#[tokio::test]
async fn the_command_line_calls_a_hidden_tool() {
    let arguments = json!({"limit": 1});
    assert_eq!(answer(&administered(), "admin.list_runs", arguments.clone()).await, arguments);
}

#[tokio::test]
async fn nobody_else_can_call_a_hidden_tool_or_learns_that_it_is_there() {
    let catalog = administered();
    for caller in others() {
        for name in ["admin.list_runs", "admin__list_runs", "list_runs", "admin.list_run", "admin.x"] {
            let call = Call::new(catalog.clone(), caller.clone());
            assert_eq!(error_of(Catalog::call(name, json!({}), call).await), not_found(name), "{caller}");
            let error = catalog.permit(name, &caller, None).await.expect_err("a refusal");
            assert_eq!((error.kind(), error.message().to_owned()), not_found(name), "{caller}");
        }
        let call = Call::new(catalog.clone(), caller.clone());
        let fitted =
            Catalog::call_with_adapter("admin.list_runs", json!({}), |_, _, arguments| Ok(arguments), call);
        assert_eq!(error_of(fitted.await), not_found("admin.list_runs"), "{caller}");
    }
}

#[tokio::test]
async fn a_tool_or_a_script_that_a_command_runs_cannot_call_a_hidden_tool() {
    let inner = json!({"calls": [["admin.list_runs", {}]]});
    assert_eq!(refusal(&administered(), "relay", inner).await, not_found("admin.list_runs"));
}

#[tokio::test]
async fn a_misspelt_name_suggests_no_hidden_tool_even_to_the_command_line() {
    let catalog = administered();
    for name in ["admin.list_run", "admin__list_runs", "admin.list_runss"] {
        assert_eq!(refusal(&catalog, name, json!({})).await, not_found(name));
    }
}

#[test]
fn no_listing_has_a_hidden_tool() {
    let catalog = administered();
    let is_hidden = |name: &str| name.contains("admin") || name.contains("list_runs");
    assert!(!catalog.entries().any(|entry| is_hidden(&entry.name.to_string())));
    assert!(!catalog.functions().any(|entry| is_hidden(&entry.name.to_string())));
    assert!(!catalog.client_tools().any(|entry| is_hidden(&entry.name.to_string())));
    assert!(!catalog.providers().any(|name| is_hidden(name.as_str())));
    assert!(!catalog.warnings().iter().any(|warning| is_hidden(warning)));
    for name in ["admin.list_runs", "admin__list_runs", "list_runs"] {
        assert!(catalog.entry(name).is_none() && catalog.input_schema(name).is_none(), "{name}");
    }
    let hidden: Vec<_> = BuiltinProvider::ALL.into_iter().filter(|builtin| builtin.is_hidden()).collect();
    assert_eq!(hidden, [BuiltinProvider::Admin]);
    assert!(!BuiltinProvider::Admin.has_functions() && !BuiltinProvider::Admin.has_bare_names());
}

#[tokio::test]
async fn a_hidden_tool_outlives_the_catalog_that_is_replaced() {
    let old = administered();
    let admin = provider("admin", [echo("list_runs")]);
    let new = with([]).provider(admin).replacing(&old).build();
    assert_eq!(answer(&new, "admin.list_runs", json!({})).await, json!({}));
    let without = with([]).replacing(&old).build();
    assert_eq!(refusal(&without, "admin.list_runs", json!({})).await, not_found("admin.list_runs"));
}

#[tokio::test]
async fn hidden_calls_are_not_recorded_and_their_results_have_no_limit() {
    let long = tool("long", |_, _| Box::pin(async { Ok(Value::String("x".repeat(5_000)).into()) }));
    let failing = tool("failing", |_, _| Box::pin(async { Err(ToolError::internal("it failed", "why")) }));
    let runs = Arc::new(Runs::default());
    let limits = Limits { result_bytes: 1_000, ..Limits::default() };
    let admin = provider("admin", [long, failing]);
    let catalog = with([echo("echo")]).provider(admin).limits(limits).runs(runs.clone()).build();

    assert_eq!(answer(&catalog, "admin.long", json!({})).await.as_str().map(str::len), Some(5_000));
    let failed = refusal(&catalog, "admin.failing", json!({})).await;
    assert_eq!(failed, (ErrorKind::Internal, "it failed".to_owned()));
    // A caller that goes away leaves no run, either.
    drop(Catalog::call("admin.long", json!({}), from_cli(&catalog)));
    answer(&catalog, "echo", json!({})).await;
    let recorded: Vec<String> = runs.take().into_iter().map(|run| run.tool).collect();
    assert_eq!(recorded, ["tools.echo"]);
}
