//! Tools made of closures, and a provider that lists them.

use async_trait::async_trait;
use ctx_core::{
    BodyArgument, Call, Identifier, Output, Provider, RateLimit, Schema, Tool, ToolError, ToolSpec,
};
use serde_json::{Map, Value, json};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The arguments of a tool.
pub type Arguments = Map<String, Value>;
/// The future of a running tool.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<Output, ToolError>> + Send + 'a>>;
type ToolClosure = Box<dyn for<'a> Fn(Arguments, &'a Call) -> ToolFuture<'a> + Send + Sync>;

/// A tool that runs a closure.
pub struct TestTool {
    spec: Arc<ToolSpec>,
    rate_limit: Option<RateLimit>,
    timeout: Option<Duration>,
    stop_grace: Duration,
    body: ToolClosure,
}

/// A tool of this name that runs this closure.
pub fn tool(
    name: &str,
    body: impl for<'a> Fn(Arguments, &'a Call) -> ToolFuture<'a> + Send + Sync + 'static,
) -> TestTool {
    let schema = json!({"type": "object", "properties": {}});
    let spec = Arc::new(ToolSpec::new(name, format!("The test's {name}."), schema));
    TestTool { spec, rate_limit: None, timeout: None, stop_grace: Duration::ZERO, body: Box::new(body) }
}

/// A tool that returns its arguments.
pub fn echo(name: &str) -> TestTool {
    tool(name, |arguments, _| Box::pin(async { Ok(Value::Object(arguments).into()) }))
}

impl TestTool {
    /// Sets the schema of its arguments.
    #[must_use]
    pub fn schema(mut self, input_schema: impl Into<Schema>) -> Self {
        Arc::make_mut(&mut self.spec).input_schema = input_schema.into();
        self
    }

    /// Sets the argument that is the request body, and whether callers may pass the body's fields next to the other
    /// arguments.
    #[must_use]
    pub fn body(mut self, name: &str, has_fields: bool) -> Self {
        Arc::make_mut(&mut self.spec).body = Some(BodyArgument { name: name.to_owned(), has_fields });
        self
    }

    /// Sets its description.
    #[must_use]
    pub fn description(mut self, description: &str) -> Self {
        description.clone_into(&mut Arc::make_mut(&mut self.spec).description);
        self
    }

    /// Sets its tags.
    #[must_use]
    pub fn tags(mut self, tags: &[&str]) -> Self {
        Arc::make_mut(&mut self.spec).tags = tags.iter().map(ToString::to_string).collect();
        self
    }

    /// Sets its rate limit.
    #[must_use]
    pub fn rate(self, rate: &str) -> Self {
        Self { rate_limit: Some(rate.parse().expect("a rate")), ..self }
    }

    /// Sets its timeout.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Sets its stop grace: the time to end by itself after its call is cancelled.
    #[must_use]
    pub fn stops_within(self, stop_grace: Duration) -> Self {
        Self { stop_grace, ..self }
    }
}

#[async_trait]
impl Tool for TestTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn run(&self, arguments: Arguments, call: &Call) -> Result<Output, ToolError> {
        (self.body)(arguments, call).await
    }

    fn rate_limit(&self) -> Option<RateLimit> {
        self.rate_limit
    }

    fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    fn stop_grace(&self) -> Duration {
        self.stop_grace
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

    fn exposed(&self) -> bool {
        self.name.as_str() != "hidden"
    }
}

/// A provider of these tools. One named `context` counts as built in, one named `hidden` is not
/// listed to clients.
pub fn provider(name: &str, tools: impl IntoIterator<Item = TestTool>) -> Arc<dyn Provider> {
    let tools = tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>).collect();
    Arc::new(TestProvider { name: Identifier::sanitize(name), tools })
}
