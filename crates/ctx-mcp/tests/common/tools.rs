//! Test tools that wait, report progress, log and ask questions; a provider of resources.

use super::with_timeout;
use async_trait::async_trait;
use ctx_core::{
    Call, Catalog, ErrorKind, Identifier, Progress, Provider, Question, QuestionKind, Resource,
    ResourceChange, ResourceContent, ResourcePage, Resources, Tool, ToolError,
};
use ctx_testkit::{TestTool, tool};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::sync::{Semaphore, broadcast};

/// Holds the calls of its tool until the test lets them go.
pub(crate) struct CallGate {
    entered: Semaphore,
    opened: Semaphore,
}

impl CallGate {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { entered: Semaphore::new(0), opened: Semaphore::new(0) })
    }

    /// A tool that waits here and then answers `through`.
    pub(crate) fn tool(self: &Arc<Self>, name: &str) -> TestTool {
        let gate = self.clone();
        tool(name, move |_, _| {
            let gate = gate.clone();
            Box::pin(async move {
                gate.pass().await;
                Ok(json!("through").into())
            })
        })
    }

    /// Enters the gate, and waits until it is opened.
    pub(crate) async fn pass(&self) {
        self.entered.add_permits(1);
        self.opened.acquire().await.expect("an open semaphore").forget();
    }

    /// Waits until a call has come in.
    pub(crate) async fn wait_for_call(&self) {
        with_timeout("a call to come in", self.entered.acquire()).await.expect("an open semaphore").forget();
    }

    /// Lets one call go.
    pub(crate) fn open(&self) {
        self.opened.add_permits(1);
    }
}

/// A tool that reports this many steps of progress, logs a line of each level, and ends.
pub(crate) fn notifying_tool(name: &str, steps: u32) -> TestTool {
    tool(name, move |_, call| {
        Box::pin(async move {
            let peer = call.peer();
            for step in 1..=steps {
                peer.progress(Progress {
                    done: f64::from(step),
                    total: Some(f64::from(steps)),
                    message: None,
                });
            }
            peer.log(tracing::Level::DEBUG, "a detail");
            peer.log(tracing::Level::INFO, "a fact");
            peer.log(tracing::Level::WARN, "a doubt");
            Ok(json!("done").into())
        })
    })
}

/// An elicitation of a person's name.
pub(crate) fn elicitation() -> QuestionKind {
    let schema = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "minLength": 2}},
        "required": ["name"],
    });
    QuestionKind::Elicitation { message: "Who are you?".to_owned(), schema }
}

/// A tool that asks a question with the key `who`, and returns the answer.
pub(crate) fn question_tool(name: &str, want: QuestionKind) -> TestTool {
    tool_with_body(name, move |call| {
        let question = Question { key: Some("who".to_owned()), kind: want.clone() };
        Box::pin(async move { Ok(call.ask(question).await?) })
    })
}

type BodyFuture<'a> = futures::future::BoxFuture<'a, Result<Value, ToolError>>;

/// A tool with this body.
pub(crate) fn tool_with_body(
    name: &str,
    body: impl for<'a> Fn(&'a Call) -> BodyFuture<'a> + Send + Sync + 'static,
) -> TestTool {
    tool(name, move |_, call| {
        let answer = body(call);
        Box::pin(async move { answer.await.map(Into::into) })
    })
}

/// A provider of this many resources, and the sender of their changes.
pub(crate) fn resources(count: usize) -> (Arc<dyn Provider>, broadcast::Sender<ResourceChange>) {
    let changes = broadcast::Sender::new(16);
    (Arc::new(BookProvider(count, changes.clone())), changes)
}

#[derive(Clone)]
struct BookProvider(usize, broadcast::Sender<ResourceChange>);

impl Provider for BookProvider {
    fn name(&self) -> Identifier {
        Identifier::sanitize("shelf")
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Resources for BookProvider {
    fn prefix(&self) -> &str {
        "book://"
    }

    async fn list(&self, from: Option<&str>, most: usize, _: &Catalog) -> Result<ResourcePage, ToolError> {
        let invalid_cursor = || ToolError::new(ErrorKind::BadRequest, "no such place");
        let from: usize = from.map_or(Ok(0), |from| from.parse().map_err(|_| invalid_cursor()))?;
        let to = self.0.min(from + most);
        let named = |number| Resource {
            uri: format!("book://{number}"),
            name: format!("book {number}"),
            ..Resource::default()
        };
        let next = (to < self.0).then(|| to.to_string());
        Ok(ResourcePage { resources: (from..to).map(named).collect(), next })
    }

    async fn read(&self, uri: &str, _: &Call) -> Result<Vec<ResourceContent>, ToolError> {
        let number: Option<usize> = uri.strip_prefix("book://").and_then(|number| number.parse().ok());
        number.filter(|number| *number < self.0).ok_or_else(|| ToolError::not_found("no such book"))?;
        let text = Some("Once upon a time".to_owned());
        Ok(vec![ResourceContent { uri: uri.to_owned(), text, ..ResourceContent::default() }])
    }

    fn changes(&self) -> Option<broadcast::Receiver<ResourceChange>> {
        Some(self.1.subscribe())
    }
}

/// A sampling request.
pub(crate) fn sampling() -> QuestionKind {
    let mut request = Map::new();
    let message = json!({"role": "user", "content": {"type": "text", "text": "Hello?"}});
    request.insert("messages".to_owned(), json!([message]));
    QuestionKind::Sampling(request)
}
