//! Opens a page in the user's browser.

use std::io;
use std::process::{Command, Stdio};

/// The environment variable with the command of another browser; the address is appended to it.
const VARIABLE: &str = "BROWSER";

/// Opens an address, without waiting for the browser.
pub(super) fn open(url: &str) -> io::Result<()> {
    let configured = std::env::var(VARIABLE).unwrap_or_default();
    let mut words = configured.split_whitespace();
    let mut command = match words.next() {
        Some(program) => {
            let mut command = Command::new(program);
            command.args(words);
            command
        }
        None => default_opener(),
    };
    let mut child =
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    // Reaps the child process, which would otherwise stay a zombie.
    std::thread::spawn(move || child.wait());
    Ok(())
}

#[cfg(target_os = "macos")]
fn default_opener() -> Command {
    Command::new("open")
}

#[cfg(windows)]
fn default_opener() -> Command {
    let mut command = Command::new("rundll32");
    command.arg("url.dll,FileProtocolHandler");
    command
}

#[cfg(not(any(target_os = "macos", windows)))]
fn default_opener() -> Command {
    Command::new("xdg-open")
}
