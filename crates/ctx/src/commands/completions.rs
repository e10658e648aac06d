//! `ctx completions`

use crate::cli::{Global, definition};
use crate::error::CommandResult;

/// Print shell completions.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell to print them for.
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(self, global: &Global) -> CommandResult {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut definition(), "ctx", &mut script);
        global.output().print(&String::from_utf8_lossy(&script))
    }
}
