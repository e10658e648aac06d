//! The gateway for AI agents: the tool `execute`, and the tools that find the functions that its scripts can
//! call.
//!
//! An agent sends one script instead of many tool calls. The results of the functions stay in the script, and
//! only the script's own result and log come back. Documentation of the functions is fetched as needed,
//! however many there are.

mod check;
mod discover;
mod execute;
mod kept;
mod output;

pub use discover::DirectoryStore;

use ctx_core::{BuiltinProvider, Catalog, Identifier, Provider, Resources, Tool};
use ctx_luau::Scripts;
use discover::{Directories, FunctionResources, GetFunctionDocsTool, ListFunctionsTool, SearchDocsTool};
use execute::ExecuteTool;
use kept::{KeptFiles, KeptResults};
use std::sync::Arc;

/// The provider `ctx`.
pub struct Gateway {
    execute: Arc<ExecuteTool>,
    directories: Arc<Directories>,
    results: KeptResults,
    files: KeptFiles,
}

impl Gateway {
    /// Creates the provider; `execute` runs its scripts with `scripts`. `has_knowledge` says whether there
    /// are documents to search.
    pub fn new(scripts: Scripts, has_knowledge: bool) -> Self {
        let results = KeptResults::default();
        let execute = Arc::new(ExecuteTool::new(scripts, results.clone(), has_knowledge));
        Self { execute, directories: Arc::new(Directories::new(None)), results, files: KeptFiles::default() }
    }

    /// Keeps what is expensive to make for discovery in `store`, for later starts.
    #[must_use]
    pub fn with_directory_store(self, store: Arc<dyn DirectoryStore>) -> Self {
        Self { directories: Arc::new(Directories::new(Some(store))), ..self }
    }

    /// Makes in advance what the first question about the functions of this catalog, the current one, would have to
    /// wait for. Takes seconds for ten thousand functions that were never seen, and milliseconds for those that were:
    /// call it on a thread that may block.
    pub fn prepare_discovery(&self, catalog: &Arc<Catalog>) {
        self.directories.prepare(catalog);
    }

    /// Further providers for the same catalog, visible to scripts only: kept results, which were too large
    /// for an answer, and kept files. Both are kept for as long as the gateway exists, at most.
    pub fn kept_providers(&self) -> [Arc<dyn Provider>; 2] {
        [Arc::new(self.results.clone()), Arc::new(self.files.clone())]
    }
}

impl Provider for Gateway {
    fn name(&self) -> Identifier {
        BuiltinProvider::Ctx.identifier()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        vec![
            self.execute.clone(),
            Arc::new(ListFunctionsTool::new(self.directories.clone())),
            Arc::new(SearchDocsTool::new(self.directories.clone())),
            Arc::new(GetFunctionDocsTool::new()),
        ]
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        Some(Arc::new(FunctionResources::new(self.directories.clone())))
    }

    fn builtin(&self) -> bool {
        true
    }
}
