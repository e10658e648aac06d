//! A page of the documentation: its code blocks, and the commands in a block.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Languages of shell blocks.
const SHELL: [&str; 4] = ["sh", "shell", "bash", "console"];
/// Languages of output blocks.
const OUTPUT: [&str; 2] = ["text", "json"];

pub(crate) struct Page {
    /// The path from the repository's root.
    pub(crate) name: String,
    pub(crate) blocks: Vec<CodeBlock>,
}

pub(crate) struct CodeBlock {
    pub(crate) language: String,
    pub(crate) text: String,
}

impl CodeBlock {
    pub(crate) fn is_shell(&self) -> bool {
        SHELL.contains(&self.language.as_str())
    }

    pub(crate) fn is_output(&self) -> bool {
        OUTPUT.contains(&self.language.as_str())
    }
}

impl Page {
    /// The README and every page of the guide.
    pub(crate) fn all(root: &Path) -> Vec<Self> {
        let guide = fs::read_dir(root.join("docs/guide")).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = guide
            .map(|name| format!("docs/guide/{}", name.to_str().unwrap()))
            .filter(|name| name.ends_with(".md"))
            .collect();
        names.push("README.md".to_owned());
        names.sort();
        names.into_iter().map(|name| Self::read(root, name)).collect()
    }

    fn read(root: &Path, name: String) -> Self {
        let text = fs::read_to_string(root.join(&name)).unwrap();
        let mut blocks: Vec<CodeBlock> = Vec::new();
        let mut is_open = false;
        for line in text.lines() {
            match (line.strip_prefix("```"), is_open) {
                (Some(language), false) => {
                    blocks.push(CodeBlock { language: language.to_owned(), text: String::new() });
                    is_open = true;
                }
                (Some(_), true) => is_open = false,
                (None, true) => blocks.last_mut().unwrap().text.push_str(&format!("{line}\n")),
                (None, false) => {}
            }
        }
        assert!(!is_open, "{name}: a block is not closed");
        Self { name, blocks }
    }
}

/// Splits a shell block into commands, including continuation lines, here-documents and loops.
pub(crate) fn commands(block: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut command = String::new();
    for line in block.lines() {
        // Strips the prompt.
        let line = if command.is_empty() { line.strip_prefix("$ ").unwrap_or(line) } else { line };
        if command.is_empty() && (line.trim().is_empty() || line.starts_with('#')) {
            continue;
        }
        command.push_str(&format!("{line}\n"));
        if is_whole(&command) {
            commands.push(std::mem::take(&mut command));
        }
    }
    assert!(command.is_empty(), "a command that does not end: {command}");
    commands
}

fn is_whole(command: &str) -> bool {
    if command.ends_with("\\\n") {
        return false;
    }
    // A here-document without its end marker is accepted by shells, so completeness is checked here.
    if let Some((_, rest)) = command.lines().next().and_then(|line| line.split_once("<<")) {
        let word = rest.trim().trim_matches(['\'', '"']);
        return command.lines().skip(1).any(|line| line == word);
    }
    let checked = Command::new("/bin/sh").args(["-n", "-c", command]).output().unwrap();
    checked.status.success()
}

/// The lines of a page that are not in the printed output. `…` matches anything, and numbers may differ.
pub(crate) fn missing_lines<'a>(shown: &'a str, printed: &str) -> Vec<&'a str> {
    let printed: Vec<String> = printed.lines().map(without_figures).collect();
    let fits = |line: &str| {
        let parts = without_figures(line);
        printed.iter().any(|printed| {
            let mut rest = printed.as_str();
            parts.split('…').all(|part| match rest.split_once(part.trim()) {
                Some((_, after)) => {
                    rest = after;
                    true
                }
                None => false,
            })
        })
    };
    shown.lines().filter(|line| !line.trim().is_empty() && !fits(line)).collect()
}

/// The line with every number replaced by `#`, and with single spaces.
fn without_figures(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        let mut text = String::new();
        for c in word.chars() {
            match c.is_ascii_digit() {
                true if text.ends_with('#') => {}
                true => text.push('#'),
                false => text.push(c),
            }
        }
        text
    });
    words.collect::<Vec<_>>().join(" ")
}
