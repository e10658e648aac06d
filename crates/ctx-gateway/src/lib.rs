//! Many calls in one script: the tool `execute`.
//!
//! An agent that has to call ten functions sends one script instead. What the functions answer stays in
//! the script; only what it makes of them, and what it logged, comes back.

mod answer;
mod execute;

use ctx_core::{Identifier, Provider, Tool};
use ctx_luau::Scripts;
use execute::Execute;
use std::sync::Arc;

/// The provider of what is built in besides knowledge.
const PROVIDER: &str = "ctx";

/// The provider `ctx`.
pub struct Gateway {
    execute: Arc<Execute>,
}

impl Gateway {
    /// Scripts that are sent run as these do.
    pub fn new(scripts: Scripts) -> Self {
        Self { execute: Arc::new(Execute::new(scripts)) }
    }
}

impl Provider for Gateway {
    fn name(&self) -> Identifier {
        Identifier::sanitize(PROVIDER)
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        vec![self.execute.clone()]
    }

    fn builtin(&self) -> bool {
        true
    }
}
