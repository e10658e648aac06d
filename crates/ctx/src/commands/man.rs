//! `ctx man`: writes man pages from the definition of the command line.

use crate::cli::{GlobalOptions, definition, examples};
use crate::error::{CommandError, CommandResult};
use clap_mangen::Man as ManPage;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Write man pages: one per command to a folder, or the main page to stdout.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Read the main page", "ctx man | man -l -"),
    ("Write the pages of all commands", "ctx man ~/.local/share/man/man1"),
]))]
pub(crate) struct Man {
    /// The folder, which is created if it does not exist. `man -l DIR/ctx-search.1` shows one of its pages.
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self, global: &GlobalOptions) -> CommandResult {
        let output = global.output();
        let Some(folder) = &self.folder else {
            let mut page = Vec::new();
            ManPage::new(built_command())
                .render(&mut page)
                .map_err(|error| CommandError::new(format!("cannot write the page: {error}")))?;
            return output.print(&String::from_utf8_lossy(&page));
        };
        let written = write_pages(folder)
            .map_err(|error| CommandError::new(format!("cannot write to {}: {error}", folder.display())))?;
        output.print_result(&serde_json::json!({ "pages": written }), || {
            format!("wrote {} to {}", crate::output::count(written.len() as u64, "page"), folder.display())
        })
    }
}

/// The command line with the full names of nested commands (`ctx-tool-test`) and without their `help` subcommands.
fn built_command() -> clap::Command {
    let mut command = definition().disable_help_subcommand(true);
    command.build();
    command
}

/// Writes a page for every visible command; returns the file names.
fn write_pages(folder: &Path) -> io::Result<Vec<String>> {
    fs::create_dir_all(folder)?;
    let mut written = Vec::new();
    let mut pending = vec![built_command()];
    while let Some(command) = pending.pop() {
        pending.extend(command.get_subcommands().filter(|child| !child.is_hide_set()).cloned());
        let page = ManPage::new(command);
        let name = page.get_filename();
        let mut text = Vec::new();
        page.render(&mut text)?;
        fs::write(folder.join(&name), text)?;
        written.push(name);
    }
    written.sort();
    Ok(written)
}
