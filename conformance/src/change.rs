//! Tools that change the lists of tools and prompts as a user does: by saving a script.

use async_trait::async_trait;
use ctx::{Call, ErrorKind, Output, Tool, ToolError, ToolSpec};
use serde_json::{Map, Value, json};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The description in the scripts as they are committed.
const UNCHANGED: &str = "Changed 0 times";

/// Saves a script in the workspace, which is the current directory, with another description each time.
pub(crate) struct Change {
    spec: Arc<ToolSpec>,
    script: PathBuf,
    times: AtomicU64,
}

impl Change {
    pub(crate) fn new(name: &str, listed: &str, script: &str) -> Self {
        let description = format!("Changes the list of {listed}");
        let spec = ToolSpec::new(name, description, json!({"type": "object"}));
        Self { spec: Arc::new(spec), script: script.into(), times: AtomicU64::new(0) }
    }

    async fn save(&self) -> io::Result<u64> {
        let times = self.times.fetch_add(1, Ordering::Relaxed) + 1;
        let text = tokio::fs::read_to_string(&self.script).await?;
        let before = UNCHANGED.replace('0', &(times - 1).to_string());
        let now = UNCHANGED.replace('0', &times.to_string());
        tokio::fs::write(&self.script, text.replace(&before, &now)).await?;
        Ok(times)
    }
}

#[async_trait]
impl Tool for Change {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn run(&self, _: Map<String, Value>, _: &Call) -> Result<Output, ToolError> {
        let script = self.script.display();
        let saved = self.save().await;
        let times = saved.map_err(|error| ToolError::new(ErrorKind::Tool, format!("{script}: {error}")))?;
        Ok(Value::String(format!("{script} was changed, for the {times}. time")).into())
    }
}
