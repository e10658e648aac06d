//! The static check before a script runs: whether the functions that it calls exist, and accept its
//! arguments.
//!
//! All problems are reported at once, before anything is called. Code that cannot be analysed is accepted:
//! the catalog validates the arguments of every call anyway.

mod foreign_idioms;
mod references;
mod signatures;

use crate::discover::{hint, truncate};
use ctx_core::{BuiltinProvider, Catalog, CatalogEntry, Identifier, ToolError, nearest};
use ctx_luau::{DefinedNames, TokenTree, describe_undefined, execute_globals};
use ctx_types::{MismatchKind, TypeMismatch};
use foreign_idioms::{ForeignIdiom, find_foreign_idioms};
use references::{ScriptReferences, SourceCall, collect_references};
pub(crate) use signatures::SignatureCache;
use std::collections::{BTreeSet, HashMap};

/// Maximum number of reported problems.
const PROBLEMS_MAX: usize = 20;

/// Calls of a script that are checked statically; further ones are validated only when they are made.
const CALLS_MAX: usize = 1_000;

/// Maximum size of a checked script; the engine refuses longer ones.
const SCRIPT_BYTES_MAX: usize = 256 << 10;

/// Maximum number of providers that a message lists.
const PROVIDERS_SHOWN: usize = 10;

/// Types of the language, which may occur in annotations.
const TYPE_NAMES: [&str; 9] =
    ["any", "boolean", "buffer", "never", "number", "string", "thread", "unknown", "userdata"];

/// Refuses a script that would certainly fail.
pub(crate) fn check_script(
    script: &str,
    catalog: &Catalog,
    signatures: &SignatureCache,
) -> Result<(), ToolError> {
    if script.len() > SCRIPT_BYTES_MAX {
        return Ok(());
    }
    // Syntax errors are left to the engine, too.
    let Some(tree) = TokenTree::parse(script) else { return Ok(()) };
    let (references, defined) = (collect_references(&tree), DefinedNames::collect(script, &tree));
    let mut problems = Vec::new();
    let mut lookup = FunctionLookup { catalog, by_original_name: None, signatures };
    for call in references.calls.iter().take(CALLS_MAX) {
        let root = if call.is_sdk { "sdk" } else { &call.provider };
        let is_defined_by_script =
            defined.line_of(root).is_some() || (call.is_paginated && defined.line_of("paginate").is_some());
        if is_defined_by_script || problems.len() >= PROBLEMS_MAX {
            continue;
        }
        for (problem, signature) in call_problems(call, &mut lookup, &references.uncalled) {
            let (line, column) = position(script, call.at);
            problems.push(format!("{line}:{column}: {problem}"));
            if let Some(signature) = signature {
                problems.push(format!("    {signature}"));
            }
        }
    }
    let idioms = find_foreign_idioms(script, &tree);
    for (idiom, at) in idioms.iter().take(PROBLEMS_MAX) {
        let (line, column) = position(script, *at);
        problems.push(format!("{line}:{column}: {}", idiom.hint()));
    }
    // The syntax of functions and loops of JavaScript is not analysed, so the names that they bind would look
    // undefined.
    if !idioms
        .iter()
        .any(|(idiom, _)| matches!(idiom, ForeignIdiom::ArrowFunction | ForeignIdiom::BraceBlock))
    {
        let undefined = undefined_names(script, &tree, &references, &defined, catalog);
        // A `{ name: value }` may be found as an idiom and as an undefined name; it is reported once.
        let new_problems: Vec<String> =
            undefined.into_iter().filter(|problem| !problems.contains(problem)).collect();
        problems.extend(new_problems);
    }
    if problems.is_empty() {
        return Ok(());
    }
    problems.truncate(PROBLEMS_MAX);
    let message = format!("the script was not run, and nothing was called:\n{}", problems.join("\n"));
    Err(ToolError::bad_request(message))
}

/// Messages about names that nothing defines.
fn undefined_names(
    script: &str,
    tree: &TokenTree<'_>,
    references: &ScriptReferences,
    defined: &DefinedNames,
    catalog: &Catalog,
) -> Vec<String> {
    let providers: BTreeSet<&str> = catalog.providers().map(Identifier::as_str).collect();
    let is_known = |name: &str| {
        defined.defines(name)
            || providers.contains(name)
            || TYPE_NAMES.contains(&name)
            // The first parameter of `function object:method()`.
            || name == "self"
            || execute_globals().any(|known| known == name)
    };
    let mut unknown: Vec<(&String, &usize)> =
        references.names_read.iter().filter(|(name, _)| !is_known(name)).collect();
    unknown.sort_by_key(|(_, at)| **at);
    let problems = unknown.into_iter().take(PROBLEMS_MAX).map(|(name, at)| {
        let (line, column) = position(script, tree.byte_offset(*at));
        let others = providers.iter().copied().filter(|name| !is_builtin_global(name));
        // Luau reads `{ name: f(x) }` as a method call on the variable `name`, which does not exist.
        let problem = match tree.is_item(*at) && tree.is_symbol(at + 1, ":") {
            true => ForeignIdiom::ColonField.hint().to_owned(),
            false => describe_undefined(&truncate(name), defined, others),
        };
        format!("{line}:{column}: {problem}")
    });
    problems.collect()
}

/// Whether this is a built-in provider: scripts have no global of its name, or it is a host API.
fn is_builtin_global(provider: &str) -> bool {
    BuiltinProvider::from_name(provider).is_some_and(BuiltinProvider::has_bare_names)
}

/// A hint with the first few providers: ``; there are `a`, `b`, … ``
fn provider_list<'a>(providers: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = providers.into_iter().map(|name| format!("`{name}`")).collect();
    let more = if names.len() > PROVIDERS_SHOWN { ", …" } else { "" };
    format!("; there are {}{more}", names[..names.len().min(PROVIDERS_SHOWN)].join(", "))
}

/// The problems of a call, each with the function's signature where it helps.
fn call_problems(
    call: &SourceCall,
    lookup: &mut FunctionLookup<'_>,
    uncalled: &BTreeSet<String>,
) -> Vec<(String, Option<String>)> {
    let catalog = lookup.catalog;
    let provider = Identifier::sanitize(&call.provider);
    if catalog.is_pending(&provider) {
        // Its functions are not known yet: the call itself will show.
        return Vec::new();
    }
    // Tested first: most dotted names are the language's own, and there are many functions.
    let is_known = catalog.providers().any(|known| *known == provider);
    let found = is_known.then(|| lookup.find(&provider, &call.name)).flatten();
    let provides =
        found.is_some() || (is_known && catalog.functions().any(|entry| *entry.name.provider() == provider));
    if !call.is_sdk && (!provides || is_builtin_global(&call.provider)) {
        // A name of the script itself, or of the language.
        return Vec::new();
    }
    // A name may be as long as the script; neither messages nor the search for similar names should be.
    let (shown_provider, shown_name) = (truncate(&call.provider), truncate(&call.name));
    let function_name = format!("sdk.{shown_provider}.{shown_name}");
    if !provides {
        if uncalled.contains(&call.provider) {
            return Vec::new();
        }
        if let Some(reason) = catalog.unusable_reason(&provider) {
            return vec![(format!("{function_name}: {reason}"), None)];
        }
        let providers: BTreeSet<&str> =
            catalog.functions().map(|entry| entry.name.provider().as_str()).collect();
        let similar = match nearest(&shown_provider, providers.iter().copied()) {
            Some(similar) => hint(Some(similar)),
            None => provider_list(providers),
        };
        return vec![(format!("{function_name}: there is no provider `{shown_provider}`{similar}"), None)];
    }
    let Some(entry) = found else {
        if uncalled.contains(&format!("{}.{}", call.provider, call.name)) {
            return Vec::new();
        }
        let functions = catalog.functions().filter(|entry| *entry.name.provider() == provider);
        let similar = match catalog.unusable_reason(&provider) {
            Some(reason) => format!(" ({reason})"),
            None => hint(nearest(&shown_name, functions.map(|entry| entry.name.tool().as_str()))),
        };
        return vec![(format!("{function_name}: {provider} has no function `{shown_name}`{similar}"), None)];
    };
    let Some(arguments) = &call.arguments else { return Vec::new() };
    let (misfits, signature) = lookup.signatures.check(entry, arguments);
    let certain: Vec<&TypeMismatch> = misfits.iter().filter(|misfit| misfit.problem.is_certain()).collect();
    let last = certain.len().saturating_sub(1);
    let problems = certain.iter().enumerate().map(|(index, misfit)| {
        let signature = (index == last).then(|| format!("sdk.{provider}.{signature}"));
        (format!("{function_name}: {}", describe_misfit(misfit)), signature)
    });
    problems.collect()
}

fn describe_misfit(misfit: &TypeMismatch) -> String {
    let place = misfit.luau_path();
    match &misfit.problem {
        // The wording of the catalog.
        MismatchKind::Missing if !place.is_empty() => format!("missing required parameter: {place}"),
        problem if place.is_empty() => format!("argument {} {problem}", misfit.argument + 1),
        problem => format!("`{place}` {problem}"),
    }
}

/// Lookup of the functions that a script calls.
struct FunctionLookup<'a> {
    catalog: &'a Catalog,
    /// Functions by provider and original name; built on first use.
    by_original_name: Option<HashMap<(&'a str, &'a str), &'a CatalogEntry>>,
    signatures: &'a SignatureCache,
}

impl<'a> FunctionLookup<'a> {
    /// A function by its catalog name or its original name.
    fn find(&mut self, provider: &Identifier, name: &str) -> Option<&'a CatalogEntry> {
        // Fast path: a catalog name needs no index of all functions.
        let named = self.catalog.entry(&format!("{provider}.{name}"));
        if let Some(entry) = named.filter(|entry| entry.name.provider() == provider) {
            return Some(entry);
        }
        let by_original_name = self.by_original_name.get_or_insert_with(|| {
            let mut names = HashMap::new();
            for entry in self.catalog.functions() {
                // The first of duplicate names wins.
                names.entry((entry.name.provider().as_str(), entry.spec.name.as_str())).or_insert(entry);
            }
            names
        });
        by_original_name.get(&(provider.as_str(), name)).copied()
    }
}

/// Line and column, both from 1.
fn position(script: &str, at: usize) -> (usize, usize) {
    let before = script.get(..at).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
    (before.matches('\n').count() + 1, column)
}

#[cfg(test)]
mod tests;
