//! `ctx man`

use crate::cli::{Global, definition};
use crate::error::{CommandError, CommandResult};
use clap_mangen::Man as Page;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Write man pages: one for each command into a folder, or the main one to stdout.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// The folder; it is made if there is none. `man -l DIR/ctx-search.1` shows a page of it.
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self, global: &Global) -> CommandResult {
        let output = global.output();
        let Some(folder) = &self.folder else {
            let mut page = Vec::new();
            Page::new(built())
                .render(&mut page)
                .map_err(|error| CommandError::new(format!("cannot write the page: {error}")))?;
            return output.print(&String::from_utf8_lossy(&page));
        };
        let written = write_pages(folder)
            .map_err(|error| CommandError::new(format!("cannot write to {}: {error}", folder.display())))?;
        output.answer(&serde_json::json!({ "pages": written }), || {
            format!("wrote {} to {}", crate::output::count(written.len() as u64, "page"), folder.display())
        })
    }
}

/// The command line with the names of nested commands filled in (`ctx-tool-test`) and without the `help` of each.
fn built() -> clap::Command {
    let mut command = definition().disable_help_subcommand(true);
    command.build();
    command
}

/// Writes a page for every command that is shown; returns their names.
fn write_pages(folder: &Path) -> io::Result<Vec<String>> {
    fs::create_dir_all(folder)?;
    let mut written = Vec::new();
    let mut left = vec![built()];
    while let Some(command) = left.pop() {
        left.extend(command.get_subcommands().filter(|child| !child.is_hide_set()).cloned());
        let page = Page::new(command);
        let name = page.get_filename();
        let mut text = Vec::new();
        page.render(&mut text)?;
        fs::write(folder.join(&name), text)?;
        written.push(name);
    }
    written.sort();
    Ok(written)
}
