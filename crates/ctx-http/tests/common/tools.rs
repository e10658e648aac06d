//! Tools that end in every way, and a gate that holds calls until the test releases them.

use super::within_deadline;
use ctx_core::{ErrorKind, Output, ToolError};
pub(crate) use ctx_testkit::{Arguments, TestTool, echo, provider};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// A tool whose body gets the arguments and the cancellation token of its call.
pub(crate) fn tool<F>(
    name: &str,
    body: impl Fn(Arguments, CancellationToken) -> F + Send + Sync + 'static,
) -> TestTool
where
    F: Future<Output = Result<Output, ToolError>> + Send + 'static,
{
    ctx_testkit::tool(name, move |arguments, call| Box::pin(body(arguments, call.cancellation().clone())))
}

/// A tool that always returns `value`.
pub(crate) fn returning(name: &str, value: Value) -> TestTool {
    tool(name, move |_, _| {
        let value = value.clone();
        async { Ok(value.into()) }
    })
}

/// Every way a tool can end.
pub(crate) fn standard_tools() -> [TestTool; 6] {
    let ticket = json!({
        "type": "object",
        "properties": {"title": {"type": "string"}, "priority": {"enum": ["low", "high"], "default": "low"}},
        "required": ["title"],
    });
    [
        echo("echo"),
        echo("create_ticket").schema(ticket),
        tool("slow", async |_, _| std::future::pending().await).with_timeout(super::SHORT),
        tool("failing", async |_, _| {
            let message = "tools/failing.lua:42: attempt to index nil value";
            Err(ToolError::new(ErrorKind::Tool, message))
        }),
        tool("panicking", async |_, _| panic!("the detail nobody may read")),
        echo("limited").rate("2/h"),
    ]
}

/// Holds the calls of its tool until the test releases them.
pub(crate) struct CallGate {
    entered: Semaphore,
    opened: Semaphore,
    dropped: Semaphore,
    cancellation: Mutex<CancellationToken>,
}

impl CallGate {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            entered: Semaphore::new(0),
            opened: Semaphore::new(0),
            dropped: Semaphore::new(0),
            cancellation: Mutex::default(),
        })
    }

    /// A tool whose calls wait at this gate, and then return `through`.
    pub(crate) fn tool(self: &Arc<Self>, name: &str) -> TestTool {
        let gate = self.clone();
        tool(name, move |_, cancellation| {
            let held = HeldCall { gate: gate.clone() };
            async move {
                *held.gate.cancellation.lock().expect("a lock") = cancellation;
                held.gate.entered.add_permits(1);
                held.gate.opened.acquire().await.expect("an open semaphore").forget();
                Ok(json!("through").into())
            }
        })
    }

    /// Waits until a call has arrived.
    pub(crate) async fn entered(&self) {
        acquire(&self.entered, "a call to come in").await;
    }

    /// Releases one call.
    pub(crate) fn open(&self) {
        self.opened.add_permits(1);
    }

    /// Waits until a call's future is dropped and its token cancelled.
    pub(crate) async fn cancelled(&self) {
        acquire(&self.dropped, "a call to be dropped").await;
        let cancellation = self.cancellation.lock().expect("a lock").clone();
        within_deadline("the cancellation", cancellation.cancelled()).await;
    }
}

async fn acquire(semaphore: &Semaphore, what: &str) {
    within_deadline(what, semaphore.acquire()).await.expect("an open semaphore").forget();
}

/// A call at the gate.
struct HeldCall {
    gate: Arc<CallGate>,
}

impl Drop for HeldCall {
    fn drop(&mut self) {
        self.gate.dropped.add_permits(1);
    }
}
