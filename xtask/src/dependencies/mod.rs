//! Checks the licences of all dependencies, and which packages may depend on those that only one crate may
//! use.
//!
//! Reads the resolved graph of `cargo metadata`, for all features and systems. Security advisories are not
//! checked: their database is not a package.

mod licence;

use crate::run::{cargo, output};
use crate::tidy::KNOWN_ONLY_BY;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};

/// Restricted packages with the third-party packages that may depend on them; our own crates are listed in
/// `tidy::KNOWN_ONLY_BY`.
const FOREIGN_DEPENDENTS: &[(&str, &[&str])] = &[
    ("axum", &[]),
    ("clap", &["clap_complete", "clap_mangen"]),
    ("frostem", &["tantivy"]),
    ("jsonwebtoken", &[]),
    ("libsqlite3-sys", &["rusqlite"]),
    ("lopdf", &[]),
    ("mlua", &[]),
    ("reqwest", &[]),
    ("rmcp", &[]),
    ("rusqlite", &[]),
    ("seccompiler", &[]),
    ("tantivy", &[]),
    ("utoipa", &[]),
    // Only rustls is allowed for TLS: one implementation, and no system library.
    ("native-tls", &[]),
    ("openssl-sys", &[]),
];

/// Runs the checks and reports every breach.
pub(crate) fn check() -> Result<()> {
    let text = output(&mut cargo(&["metadata", "--format-version", "1", "--locked", "--all-features"]))?;
    let breaches = breaches(&serde_json::from_str(&text)?)?;
    if breaches.is_empty() {
        return Ok(());
    }
    bail!("{} breaches:\n{}", breaches.len(), Vec::from_iter(breaches).join("\n"))
}

fn breaches(metadata: &Value) -> Result<BTreeSet<String>> {
    let mut breaches = BTreeSet::new();
    let mut names = HashMap::new();
    for package in list(&metadata["packages"]) {
        let name = text(&package["name"])?;
        names.insert(text(&package["id"])?, name);
        let allowed = match package["license"].as_str() {
            Some(expression) => licence::is_allowed(expression).map(|is| (is, expression)),
            None => Ok((false, "a licence that its manifest does not name")),
        };
        let (is_allowed, licence) = allowed.with_context(|| format!("{name}: its licence cannot be read"))?;
        if !is_allowed {
            breaches.insert(format!("{name}: {licence} is not among the licences we accept"));
        }
    }
    for node in list(&metadata["resolve"]["nodes"]) {
        let dependent = names.get(text(&node["id"])?).context("a package without a name")?;
        for dependency in list(&node["deps"]) {
            let name = names.get(text(&dependency["pkg"])?).context("a package without a name")?;
            if !may_depend(dependent, name) {
                breaches.insert(format!("{dependent}: may not depend on {name}"));
            }
        }
    }
    Ok(breaches)
}

fn may_depend(dependent: &str, name: &str) -> bool {
    let listed = |table: &[(&str, &[&str])]| {
        table.iter().find(|(known, _)| *known == name).map(|(_, dependents)| dependents.contains(&dependent))
    };
    listed(FOREIGN_DEPENDENTS).is_none_or(|is_listed| is_listed || listed(KNOWN_ONLY_BY) == Some(true))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().context("`cargo metadata` has another form than expected")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn licences_and_dependents_that_are_not_listed_are_told() {
        let package = |name: &str, licence: Value| json!({ "id": format!("id-{name}"), "name": name, "license": licence });
        let node = |name: &str, dependency: &str| json!({ "id": format!("id-{name}"), "deps": [{ "pkg": format!("id-{dependency}") }] });
        let metadata = json!({
            "packages": [
                package("ctx", json!("MIT OR Apache-2.0")),
                package("ctx-http", json!("MIT OR Apache-2.0")),
                package("clap", json!("MIT")),
                package("clap_complete", json!("MIT/Apache-2.0")),
                package("axum", json!("GPL-3.0-only")),
                package("openssl-sys", json!(null)),
            ],
            "resolve": { "nodes": [
                node("ctx", "clap"),
                node("clap_complete", "clap"),
                node("ctx-http", "clap"),
                node("ctx-http", "axum"),
                node("ctx-http", "openssl-sys"),
            ] },
        });
        let expected = [
            "axum: GPL-3.0-only is not among the licences we accept",
            "ctx-http: may not depend on clap",
            "ctx-http: may not depend on openssl-sys",
            "openssl-sys: a licence that its manifest does not name is not among the licences we accept",
        ];
        assert_eq!(Vec::from_iter(breaches(&metadata).unwrap()), expected);
    }
}
