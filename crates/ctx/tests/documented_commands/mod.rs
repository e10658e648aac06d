//! Runs every shell block of the README and the guide, from the top of each page, in a fresh home.
//!
//! A command that fails and is not in `table.rs` with a reason fails the test, and so does an entry of the
//! table that no page needs.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails the test it helps")]

mod machine;
mod page;
mod table;
mod terminal;

use machine::Machine;
use page::{Page, commands, missing_lines};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use table::{BEGIN, NOT_PRINTED, TREATMENTS, Treatment};

pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn every_command_of_the_readme_and_the_guide_does_what_it_says() {
    let pages = Page::all(root());
    assert!(pages.len() > 10, "the guide is not there");
    let only = pages.iter().filter(|page| page.blocks.iter().any(page::CodeBlock::is_shell));
    let problems: String = only.map(walk).collect();
    assert!(problems.is_empty(), "{problems}");
}

#[test]
fn commands_stand_in_shell_blocks() {
    for page in Page::all(root()) {
        // Other languages are code, where `ctx` may be an identifier.
        for block in page.blocks.iter().filter(|block| block.language.is_empty() || block.is_output()) {
            let is_typed = |line: &&str| line.starts_with("$ ") || line.starts_with("ctx ");
            let typed = block.text.lines().find(is_typed);
            assert_eq!(typed, None, "{}: a command in a block that is not marked as sh", page.name);
        }
    }
}

#[test]
fn the_table_has_nothing_that_no_page_needs() {
    let pages = Page::all(root());
    let tests: String = fs::read_dir(root().join("crates/ctx/tests"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    for (page, beginning, treatment) in TREATMENTS {
        let blocks = pages.iter().filter(|other| other.name == *page).flat_map(|page| &page.blocks);
        let mut typed = blocks.filter(|block| block.is_shell()).flat_map(|block| commands(&block.text));
        assert!(typed.any(|command| command.starts_with(beginning)), "{page} has no command `{beginning}`");
        match treatment {
            Treatment::TestedBy(test) => {
                assert!(tests.contains(&format!("fn {test}()")), "there is no test {test}");
            }
            Treatment::CannotRun(reason) => {
                assert!(!reason.is_empty(), "{page}: `{beginning}` needs a reason")
            }
            _ => {}
        }
    }
    for (page, beginning) in NOT_PRINTED {
        let mut blocks = pages.iter().filter(|other| other.name == *page).flat_map(|page| &page.blocks);
        assert!(blocks.any(|block| block.text.starts_with(beginning)), "{page} has no block `{beginning}`");
    }
}

#[test]
fn a_block_is_split_into_whole_commands() {
    let block = "# first\nctx a # why\n$ ctx b \\\n  --c\nfor x in 1; do\n  echo $x\ndone\ncat <<'END'\nfor\nEND\ncurl -d '{\n}'\n";
    assert_eq!(
        commands(block),
        [
            "ctx a # why\n",
            "ctx b \\\n  --c\n",
            "for x in 1; do\n  echo $x\ndone\n",
            "cat <<'END'\nfor\nEND\n",
            "curl -d '{\n}'\n"
        ]
    );
    let printed = "took 12 ms\n/a/b/ctx.toml  ready\n";
    assert_eq!(missing_lines("took 7 ms\n…/ctx.toml ready\n", printed), [""; 0]);
    assert_eq!(missing_lines("took 7 s\n", printed), ["took 7 s"]);
}

/// Follows a page from its top; returns the problems that a reader would have.
fn walk(page: &Page) -> String {
    let machine = Machine::new(root());
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for block in &page.blocks {
        let count = counts.entry(&block.language).or_default();
        machine.lay_out(&format!("{}-{count}", block.language), &block.text);
        *count += 1;
    }
    let mut problems = String::new();
    let mut tell = |command: &str, problem: &str| {
        writeln!(problems, "{}: {}\n{problem}", page.name, command.trim()).unwrap();
    };
    let begun = machine.run(BEGIN);
    if begun.code != Some(0) {
        tell(BEGIN, &begun.stdout);
    }
    for (place, block) in page.blocks.iter().enumerate().filter(|(_, block)| block.is_shell()) {
        let mut printed = String::new();
        let mut is_run = false;
        for command in commands(&block.text) {
            let Some((command, must_fail)) = prepare(page, &machine, &command, &mut tell) else { continue };
            let done = machine.run(&command);
            is_run = true;
            if (done.code == Some(0)) == must_fail {
                tell(&command, &format!("exit code {:?}\n{}", done.code, done.stdout));
            }
            if done.stdout.contains('\u{1b}') {
                tell(&command, "escape sequences, though nothing shows them");
            }
            printed.push_str(&done.stdout);
        }
        let shown = page.blocks.get(place + 1).filter(|next| is_run && next.is_output());
        let is_printed = |text: &str| {
            !NOT_PRINTED.iter().any(|(name, beginning)| *name == page.name && text.starts_with(beginning))
        };
        if let Some(shown) = shown.filter(|shown| is_printed(&shown.text)) {
            let missing = missing_lines(&shown.text, &printed);
            if !missing.is_empty() {
                tell(&block.text, &format!("it does not print:\n{}\nbut:\n{printed}", missing.join("\n")));
            }
        }
    }
    let stopped = machine.run("stop-server");
    if stopped.code != Some(0) {
        tell("stop-server", &stopped.stdout);
    }
    problems
}

/// Runs the preparation of a command; returns the command as a reader would type it, and whether it must
/// fail. `None` if it cannot run here.
fn prepare(
    page: &Page,
    machine: &Machine,
    command: &str,
    tell: &mut impl FnMut(&str, &str),
) -> Option<(String, bool)> {
    let (mut command, mut must_fail) = (command.to_owned(), false);
    let typed = command.clone();
    let own =
        TREATMENTS.iter().filter(|(name, beginning, _)| *name == page.name && typed.starts_with(beginning));
    for (_, _, treatment) in own {
        match treatment {
            Treatment::After(first) => {
                let done = machine.run(first);
                if done.code != Some(0) {
                    tell(first, &done.stdout);
                }
            }
            Treatment::With(placeholder, value) => command = command.replace(placeholder, value),
            Treatment::Fails => must_fail = true,
            Treatment::TestedBy(_) | Treatment::CannotRun(_) => return None,
        }
    }
    Some((command, must_fail))
}
