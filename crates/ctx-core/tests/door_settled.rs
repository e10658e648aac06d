//! Providers that are still being reached: who waits for them, how long, and which tools are there then.

use async_trait::async_trait;
use ctx_core::{Catalog, Identifier, Provider, Tool};
use ctx_testkit::{provider, tool};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(3);

/// A provider that answers after a while, or fails, or does neither.
struct Connecting {
    known: Arc<dyn Provider>,
    is_known: AtomicBool,
    answer: Option<(Duration, bool)>,
}

/// One that answers after so many seconds, well or not.
fn connecting(name: &str, answer: Option<(u64, bool)>) -> Arc<dyn Provider> {
    let known = provider(name, [tool("read", |_, _| Box::pin(async { Ok(Value::Null.into()) }))]);
    let answer = answer.map(|(seconds, is_good)| (Duration::from_secs(seconds), is_good));
    Arc::new(Connecting { known, is_known: AtomicBool::new(false), answer })
}

#[async_trait]
impl Provider for Connecting {
    fn name(&self) -> Identifier {
        self.known.name()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        if self.is_known.load(Ordering::SeqCst) { self.known.tools() } else { Vec::new() }
    }

    fn unknown(&self) -> Option<String> {
        (!self.is_known.load(Ordering::SeqCst)).then(|| "is still being reached".to_owned())
    }

    async fn settle(&self) {
        match self.answer {
            Some((after, is_good)) => {
                tokio::time::sleep(after).await;
                self.is_known.store(is_good, Ordering::SeqCst);
            }
            None => std::future::pending().await,
        }
    }
}

fn catalog(providers: &[Arc<dyn Provider>]) -> Arc<Catalog> {
    providers.iter().fold(Catalog::builder(), |builder, provider| builder.provider(provider.clone())).build()
}

fn functions(catalog: &Catalog) -> Vec<String> {
    catalog.functions().map(|entry| entry.name.to_string()).collect()
}

fn missing(catalog: &Catalog) -> Vec<&str> {
    catalog.unknown().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_wait_ends_as_soon_as_each_has_answered_or_failed() {
    let begun = Instant::now();
    let before = catalog(&[
        connecting("one", Some((1, true))),
        connecting("two", Some((2, true))),
        connecting("broken", Some((1, false))),
    ]);
    let after = before.settled(|_| true, PATIENCE).await;
    assert_eq!(begun.elapsed().as_secs(), 2);
    assert_eq!(functions(&after), ["one.read", "two.read"]);
    assert_eq!(missing(&after), ["broken"]);
    // Whoever began with the first catalog keeps it.
    assert!(functions(&before).is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_bounded_and_who_is_late_stays_missing() {
    let begun = Instant::now();
    let before = catalog(&[connecting("late", None), connecting("one", Some((1, true)))]);
    let after = before.settled(|_| true, PATIENCE).await;
    assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
    assert_eq!((functions(&after), missing(&after)), (vec!["one.read".to_owned()], vec!["late"]));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_who_is_not_wanted_or_is_known() {
    let begun = Instant::now();
    let known = provider("known", [tool("read", |_, _| Box::pin(async { Ok(Value::Null.into()) }))]);
    let before = catalog(&[known, connecting("late", None)]);
    let after = before.settled(|name| name.as_str() == "known", PATIENCE).await;
    assert!(begun.elapsed().is_zero() && Arc::ptr_eq(&before, &after));
}
