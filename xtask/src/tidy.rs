//! `cargo xtask tidy`: rules about files and dependencies that no other tool enforces.

mod words;

use crate::run::{cargo, output, root};
use anyhow::{Result, bail};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Maximum number of lines of a file; a longer one should be split.
const LINES_MAX: usize = 800;

/// Restricted packages, with the crates that may depend on them.
pub(crate) const KNOWN_ONLY_BY: &[(&str, &[&str])] = &[
    ("axum", &["ctx-http"]),
    ("clap", &["ctx"]),
    ("frostem", &["ctx-rank"]),
    ("html5gum", &["ctx-extract"]),
    ("hyper", &["ctx-http", "ctx-net"]),
    ("jsonwebtoken", &["ctx-http"]),
    ("lopdf", &["ctx-extract"]),
    ("mlua", &["ctx-luau"]),
    ("object_store", &["ctx-knowledge"]),
    ("quick-xml", &["ctx-extract"]),
    ("reqwest", &["ctx-net"]),
    ("rmcp", &["ctx-mcp"]),
    ("rusqlite", &["ctx-store"]),
    ("rustls", &["ctx-net"]),
    ("seccompiler", &["ctx-worker"]),
    ("tantivy", &["ctx-knowledge"]),
    ("toml", &["ctx"]),
    ("toml_edit", &["ctx"]),
    ("utoipa", &["ctx-http"]),
];

/// The allowed dependencies between our crates, as in ARCHITECTURE.md; dev-dependencies are not restricted.
pub(crate) const ARROWS: &[(&str, &[&str])] = &[
    (
        "ctx",
        &[
            "ctx-core",
            "ctx-gateway",
            "ctx-http",
            "ctx-knowledge",
            "ctx-luau",
            "ctx-mcp",
            "ctx-openapi",
            "ctx-rank",
            "ctx-store",
            "ctx-types",
        ],
    ),
    ("ctx-core", &[]),
    ("ctx-embed", &[]),
    ("ctx-extract", &[]),
    ("ctx-gateway", &["ctx-core", "ctx-luau", "ctx-rank", "ctx-types"]),
    ("ctx-http", &["ctx-core", "ctx-mcp", "ctx-net"]),
    (
        "ctx-knowledge",
        &["ctx-core", "ctx-embed", "ctx-extract", "ctx-net", "ctx-rank", "ctx-store", "ctx-worker"],
    ),
    ("ctx-luau", &["ctx-core", "ctx-net", "ctx-worker"]),
    ("ctx-mcp", &["ctx-core", "ctx-net"]),
    ("ctx-net", &["ctx-core"]),
    ("ctx-openapi", &["ctx-core", "ctx-net"]),
    ("ctx-rank", &["ctx-embed"]),
    ("ctx-store", &["ctx-core"]),
    ("ctx-testkit", &["ctx-core"]),
    ("ctx-types", &["ctx-core"]),
    ("ctx-worker", &[]),
    // The public library is all that an embedding program needs.
    ("ctx-conformance", &["ctx"]),
    ("harness-example", &["ctx"]),
    (
        "ctx-bench",
        &[
            "ctx-core",
            "ctx-embed",
            "ctx-gateway",
            "ctx-luau",
            "ctx-net",
            "ctx-openapi",
            "ctx-testkit",
            "ctx-types",
            "xtask",
        ],
    ),
    // No crate of the product: every check would wait until it is compiled.
    ("xtask", &[]),
];

/// The constructor for extraction without a sandbox, which only tests may use, and the file that defines it.
const IN_PROCESS: &str = "Extraction::in_process";
const IN_PROCESS_DEFINED: &str = "crates/ctx-knowledge/src/extraction.rs";

/// File names without meaning.
const EMPTY_NAMES: [&str; 4] = ["utils.rs", "util.rs", "helpers.rs", "misc.rs"];

/// Runs the checks and reports every breach.
pub(crate) fn check() -> Result<()> {
    let mut breaches = Vec::new();
    check_manifests(&mut breaches)?;
    check_files(&mut breaches)?;
    if breaches.is_empty() {
        return Ok(());
    }
    breaches.sort();
    bail!("{} breaches:\n{}", breaches.len(), breaches.join("\n"))
}

fn check_manifests(breaches: &mut Vec<String>) -> Result<()> {
    let text = output(&mut cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"]))?;
    let metadata: Value = serde_json::from_str(&text)?;
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let wanted = dependency["name"].as_str().unwrap_or_default();
            let only_in_tests = dependency["kind"] == "dev";
            check_dependency(name, wanted, only_in_tests, breaches);
        }
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        if !fs::read_to_string(manifest)?.contains("[lints]\nworkspace = true") {
            breaches.push(format!("{name}: its manifest does not take the workspace's lints"));
        }
    }
    Ok(())
}

fn check_dependency(name: &str, wanted: &str, only_in_tests: bool, breaches: &mut Vec<String>) {
    if let Some((_, allowed)) = KNOWN_ONLY_BY.iter().find(|(known, _)| *known == wanted)
        && !allowed.contains(&name)
    {
        breaches.push(format!("{name}: only {} may know {wanted}", allowed.join(" and ")));
    }
    let ours = ARROWS.iter().any(|(known, _)| *known == wanted);
    let Some((_, arrows)) = ARROWS.iter().find(|(known, _)| *known == name) else {
        breaches.push(format!("{name}: tidy does not know this crate; add its arrows"));
        return;
    };
    if ours && !only_in_tests && !arrows.contains(&wanted) {
        breaches.push(format!("{name}: no arrow leads to {wanted}"));
    }
}

fn check_files(breaches: &mut Vec<String>) -> Result<()> {
    let listed = output(
        Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(root()),
    )?;
    let mut types = words::TypeNames::default();
    for path in listed.lines() {
        // Deleted, but still in git's index.
        let Ok(text) = fs::read_to_string(root().join(path)) else { continue };
        if path.ends_with(".md") {
            words::check_page(path, &text, breaches);
        }
        if !path.ends_with(".rs") {
            continue;
        }
        // Its tables and tests contain what they look for.
        if path != "xtask/src/tidy/words.rs" {
            words::check_rust(path, &text, &mut types, breaches);
        }
        let file = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        if !text.starts_with("//!") {
            breaches.push(format!("{path}: begins without a `//!` line that says what it is"));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            breaches.push(format!("{path}: {lines} lines; more than {LINES_MAX} are two rooms"));
        }
        if EMPTY_NAMES.contains(&&*file) {
            breaches.push(format!("{path}: the name says nothing; name it for what is in it"));
        }
        if text.contains(IN_PROCESS)
            && path.contains("/src/")
            && path != IN_PROCESS_DEFINED
            && !path.starts_with("xtask/")
        {
            breaches
                .push(format!("{path}: hostile formats are read in workers; `{IN_PROCESS}` is for tests"));
        }
        if is_forgotten_test(path) {
            breaches.push(format!("{path}: not run, since `main.rs` of these tests has no `mod` for it"));
        }
        let unsafe_blocks = text.match_indices("unsafe {").count();
        let reasons = text.match_indices("SAFETY:").count();
        if unsafe_blocks > reasons && !path.starts_with("xtask/") {
            breaches.push(format!("{path}: an `unsafe` block without a SAFETY line"));
        }
    }
    types.check(breaches);
    Ok(())
}

/// Whether a file of tests never runs, because neither `main.rs` beside it, which is the root of the crate's
/// test binary, nor the manifest names it.
fn is_forgotten_test(path: &str) -> bool {
    let Some((folder, file)) = path.split_once("/tests/").filter(|_| path.starts_with("crates/")) else {
        return false;
    };
    let names = |file: &str, name: String| {
        fs::read_to_string(root().join(folder).join(file))
            .is_ok_and(|text| text.lines().any(|line| line == name))
    };
    let is_program = file.strip_suffix("/main.rs").is_some_and(|name| {
        names("Cargo.toml", "autotests = false".to_owned())
            && !names("Cargo.toml", format!("name = \"{name}\""))
    });
    let module =
        file.strip_suffix("/mod.rs").or_else(|| file.strip_suffix(".rs")).filter(|name| !name.contains('/'));
    let is_module = module.is_some_and(|name| {
        name != "main"
            && root().join(folder).join("tests/main.rs").exists()
            && !names("tests/main.rs", format!("mod {name};"))
    });
    is_program || is_module
}
