//! Tools made of closures, and a gate that holds a call until the test lets it go.

use super::patiently;
use async_trait::async_trait;
use ctx_core::{
    Annotations, Call, ErrorKind, Identifier, Output, Provider, RateLimit, Tool, ToolError, ToolSpec,
};
use serde_json::{Map, Value, json};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

type Arguments = Map<String, Value>;
type Running = Pin<Box<dyn Future<Output = Result<Output, ToolError>> + Send>>;

/// A tool whose work is a closure.
pub(crate) struct TestTool {
    spec: ToolSpec,
    rate_limit: Option<RateLimit>,
    timeout: Option<Duration>,
    body: Box<dyn Fn(Arguments, CancellationToken) -> Running + Send + Sync>,
}

pub(crate) fn tool<F>(
    name: &str,
    body: impl Fn(Arguments, CancellationToken) -> F + Send + Sync + 'static,
) -> TestTool
where
    F: Future<Output = Result<Output, ToolError>> + Send + 'static,
{
    let spec = ToolSpec {
        name: name.to_owned(),
        title: None,
        description: format!("The test's {name}."),
        input_schema: json!({"type": "object", "properties": {}}),
        output_schema: None,
        annotations: Annotations::default(),
    };
    let body = Box::new(move |arguments, token| Box::pin(body(arguments, token)) as Running);
    TestTool { spec, rate_limit: None, timeout: None, body }
}

/// Answers with its arguments.
pub(crate) fn echo(name: &str) -> TestTool {
    tool(name, async |arguments, _| Ok(Value::Object(arguments).into()))
}

/// Answers with this, whatever it is asked.
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
        tool("slow", async |_, _| std::future::pending().await).timeout(super::SHORT),
        tool("failing", async |_, _| {
            let message = "tools/failing.lua:42: attempt to index nil value";
            Err(ToolError::new(ErrorKind::Tool, message))
        }),
        tool("panicking", async |_, _| panic!("the detail nobody may read")),
        echo("limited").rate("2/h"),
    ]
}

impl TestTool {
    pub(crate) fn schema(mut self, input_schema: Value) -> Self {
        self.spec.input_schema = input_schema;
        self
    }

    pub(crate) fn rate(self, rate: &str) -> Self {
        Self { rate_limit: Some(rate.parse().expect("a rate")), ..self }
    }

    pub(crate) fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }
}

#[async_trait]
impl Tool for TestTool {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::new(self.spec.clone())
    }

    async fn run(&self, arguments: Arguments, call: &Call) -> Result<Output, ToolError> {
        (self.body)(arguments, call.cancellation().clone()).await
    }

    fn rate_limit(&self) -> Option<RateLimit> {
        self.rate_limit
    }

    fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}

struct TestProvider {
    name: Identifier,
    tools: Vec<Arc<dyn Tool>>,
}

impl Provider for TestProvider {
    fn name(&self) -> Identifier {
        self.name.clone()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.clone()
    }

    fn builtin(&self) -> bool {
        self.name.as_str() == "context"
    }

    /// Upstream tools are not shown unless their owner says so.
    fn exposed(&self) -> bool {
        self.name.as_str() != "hidden"
    }
}

pub(crate) fn provider<const N: usize>(name: &str, tools: [TestTool; N]) -> Arc<dyn Provider> {
    let tools = tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>).collect();
    Arc::new(TestProvider { name: Identifier::sanitize(name), tools })
}

/// Holds the calls of its tool until the test lets them go.
pub(crate) struct Gate {
    entered: Semaphore,
    opened: Semaphore,
    dropped: Semaphore,
    cancellation: Mutex<CancellationToken>,
}

impl Gate {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            entered: Semaphore::new(0),
            opened: Semaphore::new(0),
            dropped: Semaphore::new(0),
            cancellation: Mutex::default(),
        })
    }

    /// A tool that waits here and then answers `through`.
    pub(crate) fn tool(self: &Arc<Self>, name: &str) -> TestTool {
        let gate = self.clone();
        tool(name, move |_, cancellation| {
            let passage = Passage { gate: gate.clone() };
            async move {
                *passage.gate.cancellation.lock().expect("a lock") = cancellation;
                passage.gate.entered.add_permits(1);
                passage.gate.opened.acquire().await.expect("an open semaphore").forget();
                Ok(json!("through").into())
            }
        })
    }

    /// Waits until a call has come in.
    pub(crate) async fn entered(&self) {
        take(&self.entered, "a call to come in").await;
    }

    /// Lets one call go.
    pub(crate) fn open(&self) {
        self.opened.add_permits(1);
    }

    /// Waits until a call's future is dropped and its token cancelled.
    pub(crate) async fn cancelled(&self) {
        take(&self.dropped, "a call to be dropped").await;
        let cancellation = self.cancellation.lock().expect("a lock").clone();
        patiently("the cancellation", cancellation.cancelled()).await;
    }
}

async fn take(semaphore: &Semaphore, what: &str) {
    patiently(what, semaphore.acquire()).await.expect("an open semaphore").forget();
}

/// One call at the gate.
struct Passage {
    gate: Arc<Gate>,
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.gate.dropped.add_permits(1);
    }
}
