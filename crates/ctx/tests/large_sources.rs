//! Sources beyond the usual size: a huge file, and very many small ones.
//!
//! Linux only: other systems do not enforce the memory limit.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{CommandOutput, TestWorkspace};
use serde_json::json;
use std::fs::{self, File};

/// Sufficient memory for any sync in KB, including a thread stack per processor.
const MEMORY: usize = 300_000;
const GIGABYTE: u64 = 1 << 30;

/// Runs a command with a memory limit of [`MEMORY`].
#[track_caller]
fn within_memory(w: &TestWorkspace, command: &str) -> CommandOutput {
    w.shell(&format!("ulimit -d {MEMORY} && exec ctx {command}"))
}

#[test]
fn a_file_of_a_gigabyte_is_passed_over_whatever_it_is_called() {
    const ENDINGS: [&str; 8] = ["csv", "docx", "html", "ipynb", "md", "pdf", "txt", "zip"];
    let w = TestWorkspace::new().file("docs/good.md", "harbour");
    for ending in ENDINGS {
        // Sparse: uses no disk space, but reading it would take time and memory.
        File::create(w.path(&format!("docs/huge.{ending}"))).unwrap().set_len(GIGABYTE).unwrap();
    }
    let report = within_memory(&w, "sync --json").success().json()["sources"][0].clone();
    assert_eq!((&report["added"], &report["warning_count"]), (&json!(1), &json!(ENDINGS.len())));
    for (warning, ending) in report["warnings"].as_array().unwrap().iter().zip(ENDINGS) {
        let reason = "it has 1073741824 bytes; the limit is 50000000 (limits.document_bytes)";
        assert_eq!(*warning, json!({"source_id": format!("huge.{ending}"), "reason": reason}));
    }
    assert_eq!(w.ctx("search harbour --json").found_ids(), ["good.md"]);
}

#[test]
fn a_file_that_there_is_no_memory_for_is_a_warning_even_where_it_is_allowed() {
    let w = TestWorkspace::new()
        .config("[connectors.filesystem.docs]\nroot = \"docs\"\n[limits]\ndocument_bytes = 2000000000\n")
        .file("docs/good.md", "harbour");
    File::create(w.path("docs/huge.txt")).unwrap().set_len(GIGABYTE).unwrap();
    within_memory(&w, "sync")
        .success()
        .stderr_contains("huge.txt: not enough memory to read its 1073741824 bytes");
    assert_eq!(w.ctx("search harbour --json").found_ids(), ["good.md"]);
}

#[test]
fn very_many_files_are_all_indexed_in_little_memory_and_read_once() {
    const FOLDERS: usize = 40;
    const FILES: usize = 500;
    let w = TestWorkspace::new();
    for folder in 0..FOLDERS {
        fs::create_dir_all(w.path(&format!("docs/{folder}"))).unwrap();
        for file in 0..FILES {
            let path = format!("docs/{folder}/{file}.md");
            w.write(&path, format!("# Note {file}\nBerth{folder}x{file} in the harbour.\n"));
        }
    }
    let sync = || {
        let report = within_memory(&w, "sync --json").success().json()["sources"][0].clone();
        ["added", "updated", "deleted", "unchanged"].map(|key| report[key].as_u64().unwrap() as usize)
    };
    let all = FOLDERS * FILES;
    assert_eq!(sync(), [all, 0, 0, 0]);
    assert_eq!(w.ctx("stats --json").json()["documents"], all);
    for name in ["0/0", "7/123", "19/499"] {
        let word = format!("berth{}", name.replace('/', "x"));
        assert_eq!(w.ctx(&format!("search {word} --json")).found_ids(), [format!("{name}.md")]);
    }
    assert_eq!(sync(), [0, 0, 0, all]);
    let gone = (0..FOLDERS).filter(|folder| folder % 4 != 3);
    gone.for_each(|folder| w.remove(&format!("docs/{folder}")));
    assert_eq!(sync(), [0, 0, all / 4 * 3, all / 4]);
    assert_eq!(w.ctx("search berth0x0 --json").found_ids(), [""; 0]);
    assert_eq!(w.ctx("search berth7x123 --json").found_ids(), ["7/123.md"]);
    w.ctx("doctor").success();
}
