//! What an agent sees first: the tool `execute`, and those that find what it can call.
//!
//! An agent that has to call ten functions sends one script instead. What the functions answer stays in
//! the script; only what it makes of them, and what it logged, comes back. Which functions there are, however
//! many, it asks for as it needs them.

mod answer;
mod check;
mod discover;
mod execute;
mod kept;

use ctx_core::{BuiltinProvider, Identifier, Provider, Resources, Tool};
use ctx_luau::Scripts;
use discover::{Directories, FunctionDocs, GetFunctionDocs, ListFunctions, SearchDocs};
use execute::Execute;
use kept::{KeptFiles, KeptResults};
use std::sync::Arc;

/// The provider `ctx`.
pub struct Gateway {
    execute: Arc<Execute>,
    directories: Arc<Directories>,
    kept: KeptResults,
    files: KeptFiles,
}

impl Gateway {
    /// Scripts that are sent run as these do. `has_knowledge` tells whether there are documents to search.
    pub fn new(scripts: Scripts, has_knowledge: bool) -> Self {
        let kept = KeptResults::default();
        let execute = Arc::new(Execute::new(scripts, kept.clone(), has_knowledge));
        Self { execute, directories: Arc::default(), kept, files: KeptFiles::default() }
    }

    /// What of `ctx` is for scripts alone, to be in the same catalog: results that were too large for an
    /// answer, and files. They are kept as long as the gateway is.
    pub fn kept(&self) -> [Arc<dyn Provider>; 2] {
        [Arc::new(self.kept.clone()), Arc::new(self.files.clone())]
    }
}

impl Provider for Gateway {
    fn name(&self) -> Identifier {
        BuiltinProvider::Ctx.identifier()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        vec![
            self.execute.clone(),
            Arc::new(ListFunctions::new(self.directories.clone())),
            Arc::new(SearchDocs::new(self.directories.clone())),
            Arc::new(GetFunctionDocs::new()),
        ]
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        Some(Arc::new(FunctionDocs::new(self.directories.clone())))
    }

    fn builtin(&self) -> bool {
        true
    }
}
