//! Providers that are still connecting: who waits for them, how long, and which tools exist afterwards.

use crate::common::{Runs, from_cli, refusal};
use async_trait::async_trait;
use ctx_core::{
    Caller, Catalog, CatalogBuilder, Decision, ErrorKind, Identifier, Identity, Limits, Provider, RunOutcome,
    Tool, ToolName, ToolSpec,
};
use ctx_testkit::{TestTool, echo, provider, tool};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(3);

/// A provider that connects after a while, or fails, or does neither.
struct Connecting {
    known: Arc<dyn Provider>,
    is_known: AtomicBool,
    answer: Option<(Duration, bool)>,
    call_timeout: Option<Duration>,
}

/// A provider that connects, or fails, after this many seconds.
fn connecting(name: &str, answer: Option<(u64, bool)>) -> Arc<dyn Provider> {
    connecting_to(name, answer, [tool("read", |_, _| Box::pin(async { Ok(Value::Null.into()) }))])
}

fn connecting_to<const N: usize>(
    name: &str,
    answer: Option<(u64, bool)>,
    tools: [TestTool; N],
) -> Arc<dyn Provider> {
    let answer = answer.map(|(seconds, is_good)| (Duration::from_secs(seconds), is_good));
    let (known, is_known) = (provider(name, tools), AtomicBool::new(false));
    Arc::new(Connecting { known, is_known, answer, call_timeout: None })
}

#[async_trait]
impl Provider for Connecting {
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
        match self.answer {
            Some((after, is_good)) => {
                tokio::time::sleep(after).await;
                self.is_known.store(is_good, Ordering::SeqCst);
            }
            None => std::future::pending().await,
        }
    }

    fn wait_timeout(&self) -> Option<Duration> {
        self.call_timeout
    }
}

fn catalog(providers: &[Arc<dyn Provider>]) -> Arc<Catalog> {
    providers.iter().fold(Catalog::builder(), |builder, provider| builder.provider(provider.clone())).build()
}

fn functions(catalog: &Catalog) -> Vec<String> {
    catalog.functions().map(|entry| entry.name.to_string()).collect()
}

fn missing(catalog: &Catalog) -> Vec<&str> {
    catalog.pending_providers().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_wait_ends_as_soon_as_each_has_answered_or_failed() {
    let begun = Instant::now();
    let before = catalog(&[
        connecting("one", Some((1, true))),
        connecting("two", Some((2, true))),
        connecting("broken", Some((1, false))),
    ]);
    let after = before.wait_for_providers(|_| true, PATIENCE).await;
    assert_eq!(begun.elapsed().as_secs(), 2);
    assert_eq!(functions(&after), ["one.read", "two.read"]);
    assert_eq!(missing(&after), ["broken"]);
    // A call that started with the first catalog keeps it.
    assert!(functions(&before).is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_bounded_and_who_is_late_stays_missing() {
    let begun = Instant::now();
    let before = catalog(&[connecting("late", None), connecting("one", Some((1, true)))]);
    let after = before.wait_for_providers(|_| true, PATIENCE).await;
    assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
    assert_eq!((functions(&after), missing(&after)), (vec!["one.read".to_owned()], vec!["late"]));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_who_is_not_wanted_or_is_known() {
    let begun = Instant::now();
    let known = provider("known", [tool("read", |_, _| Box::pin(async { Ok(Value::Null.into()) }))]);
    let before = catalog(&[known, connecting("late", None)]);
    let after = before.wait_for_providers(|name| name.as_str() == "known", PATIENCE).await;
    assert!(begun.elapsed().is_zero() && Arc::ptr_eq(&before, &after));
}

/// An upstream that answers after two seconds with one tool, whose argument has a default and whose rate is limited.
fn early() -> CatalogBuilder {
    let schema = json!({
        "type": "object",
        "properties": {"text": {"type": "string"}, "times": {"type": "integer", "default": 1}},
        "required": ["text"],
    });
    let say = echo("say-twice").schema(schema).rate("2/h").description("Says it.");
    Catalog::builder().provider(connecting_to("up", Some((2, true)), [say]))
}

#[tokio::test(start_paused = true)]
async fn an_early_call_waits_and_is_validated_completed_and_recorded_like_any_other() {
    let runs = Arc::new(Runs::default());
    let catalog = early().runs(runs.clone()).build();
    let begun = Instant::now();
    let output = Catalog::call("up.say_twice", json!({"text": "late"}), from_cli(&catalog)).await.unwrap();
    assert_eq!((output.value, begun.elapsed().as_secs()), (json!({"text": "late", "times": 1}), 2));
    let (kind, message) = refusal(&catalog, "up.say-twice", json!({"text": 7})).await;
    assert_eq!(kind, ErrorKind::BadRequest, "{message}");
    let runs = runs.take();
    let recorded =
        |place: usize| (runs[place].tool.as_str(), &runs[place].arguments, runs[place].duration.as_secs());
    assert_eq!(recorded(0), ("up.say_twice", &json!({"text": "late"}), 2));
    assert_eq!(recorded(1), ("up.say_twice", &json!({"text": 7}), 0));
    assert_eq!(runs[0].outcome, RunOutcome::Ok);
    // The catalog with which the call started is unchanged.
    assert!(functions(&catalog).is_empty() && missing(&catalog) == ["up"]);
}

#[tokio::test(start_paused = true)]
async fn the_policy_judges_an_early_call_by_the_real_tool() {
    let policy = |name: &ToolName, spec: &ToolSpec, _: &Caller, _: Option<&Identity>| {
        Decision::Deny(format!("{name} says `{}`", spec.description))
    };
    let catalog = early().policy(Arc::new(policy)).build();
    let refused = "up.say_twice is not allowed: up.say_twice says `Says it.`".to_owned();
    let (kind, message) = refusal(&catalog, "up.say_twice", json!({"text": "x"})).await;
    assert_eq!((kind, message), (ErrorKind::Forbidden, refused.clone()));
    let error = catalog.permit("up.say_twice", &Caller::Cli, None).await.unwrap_err();
    assert_eq!(error.message(), refused);
}

#[tokio::test(start_paused = true)]
async fn early_calls_count_against_the_same_limit_as_those_that_follow() {
    let provider = connecting_to("up", Some((1, true)), [echo("say").rate("2/h")]);
    let early = Catalog::builder().provider(provider.clone()).build();
    // Another catalog follows before the upstream is known, and one afterwards.
    let next = Catalog::builder().provider(provider.clone()).replacing(&early).build();
    let say = async |catalog: &Arc<Catalog>| Catalog::call("up.say", json!({}), from_cli(catalog)).await;
    say(&early).await.unwrap();
    say(&next).await.unwrap();
    let last = Catalog::builder().provider(provider).replacing(&next).build();
    let settled = early.wait_for_providers(|_| true, PATIENCE).await;
    for catalog in [&early, &next, &last, &settled] {
        assert_eq!(say(catalog).await.unwrap_err().kind(), ErrorKind::RateLimited);
    }
}

#[tokio::test(start_paused = true)]
async fn an_early_call_fails_with_the_reason_or_the_nearest_name() {
    let catalog = early().build();
    let (kind, message) = refusal(&catalog, "up.say_twise", json!({})).await;
    let expected = "up has no function `say_twise` (did you mean `say_twice`?)";
    assert_eq!((kind, message.as_str()), (ErrorKind::NotFound, expected));
    let runs = Arc::new(Runs::default());
    let broken =
        Catalog::builder().provider(connecting("broken", Some((1, false)))).runs(runs.clone()).build();
    let (kind, message) = refusal(&broken, "broken.read", json!({})).await;
    assert_eq!((kind, message.as_str()), (ErrorKind::NotFound, "broken is still connecting"));
    assert_eq!(runs.take().remove(0).tool, "broken.read");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_never_answers_costs_a_call_its_time_and_no_more() {
    let limits = Limits { call_timeout: Duration::from_secs(5), ..Limits::default() };
    let runs = Arc::new(Runs::default());
    let never = connecting("never", None);
    let catalog = Catalog::builder().provider(never).limits(limits).runs(runs.clone()).build();
    let begun = Instant::now();
    let (kind, message) = refusal(&catalog, "never.read", json!({"a": 1})).await;
    assert_eq!(
        (kind, message.as_str()),
        (ErrorKind::Timeout, "tool 'never__read' timed out after 5 seconds")
    );
    assert_eq!(begun.elapsed().as_secs(), 5);
    let run = runs.take().remove(0);
    assert_eq!((run.tool.as_str(), run.arguments), ("never.read", json!({"a": 1})));

    // An earlier deadline of the call itself applies.
    let deadline = (Instant::now() + Duration::from_secs(1)).into_std();
    let hurried = from_cli(&catalog).with_deadline(deadline);
    let error = Catalog::call("never.read", json!({}), hurried).await.unwrap_err();
    assert_eq!(error.message(), "tool 'never__read' timed out after 1 second");

    let token = CancellationToken::new();
    let cancelled = from_cli(&catalog).with_cancellation(&token);
    token.cancel();
    let error = Catalog::call("never.read", json!({}), cancelled).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_provider_says_how_long_its_calls_may_take() {
    let (known, is_known) = (provider("slow", []), AtomicBool::new(false));
    let slow = Connecting { known, is_known, answer: None, call_timeout: Some(Duration::from_secs(90)) };
    let catalog = catalog(&[Arc::new(slow)]);
    let (_, message) = refusal(&catalog, "slow.read", json!({})).await;
    assert_eq!(message, "tool 'slow__read' timed out after 90 seconds");
}

#[tokio::test(start_paused = true)]
async fn arguments_of_an_early_call_are_fitted_to_the_real_tool() {
    let fit = |spec: &ToolSpec, schema: &Value, arguments: Value| {
        Ok(json!({"text": format!("{} {} {arguments}", spec.name, schema["required"])}))
    };
    let catalog = early().build();
    let output =
        Catalog::call_with_adapter("up.say_twice", json!([]), fit, from_cli(&catalog)).await.unwrap();
    assert_eq!(output.value, json!({"text": "say-twice [\"text\"] []", "times": 1}));
}
