//! `ctx completions`: prints the completion script of a shell.

use crate::cli::{GlobalOptions, definition, examples};
use crate::error::CommandResult;

/// Print a shell completion script.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Bash", "ctx completions bash > ~/.local/share/bash-completion/completions/ctx"),
    ("Zsh, for a folder in your fpath", "ctx completions zsh > ~/.zfunc/_ctx"),
    ("Fish", "ctx completions fish > ~/.config/fish/completions/ctx.fish"),
]))]
pub(crate) struct Completions {
    /// The shell.
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(self, global: &GlobalOptions) -> CommandResult {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut definition(), "ctx", &mut script);
        global.output().print(&String::from_utf8_lossy(&script))
    }
}
