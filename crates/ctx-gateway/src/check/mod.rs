//! The check before a script runs: whether the functions it names are there, and can take what it gives them.
//!
//! Everything that is wrong is told at once, before anything was called. What cannot be seen is not judged:
//! the door checks the arguments of every call anyway.

mod calls;
mod lex;

use crate::discover::{cut, hint};
use calls::{Written, look};
use ctx_core::{Catalog, Entry, Identifier, ToolError, nearest};
use ctx_types::{Function, Misfit, Problem};
use std::collections::BTreeSet;

/// Problems told at once.
const PROBLEMS_MAX: usize = 20;

/// Providers that are no globals of scripts, or are something else there.
const NO_GLOBALS: [&str; 3] = ["context", "tools", "ctx"];

/// Refuses a script that would surely fail.
pub(crate) fn check(script: &str, catalog: &Catalog) -> Result<(), ToolError> {
    // A script that cannot be read is the engine's to refuse.
    let Some(tokens) = lex::tokens(script) else { return Ok(()) };
    let seen = look(&tokens);
    let mut problems = Vec::new();
    for call in &seen.calls {
        let root = if call.is_sdk { "sdk" } else { &call.provider };
        let is_own = seen.bound.contains(root) || (call.is_paged && seen.bound.contains("paginate"));
        if is_own || problems.len() >= PROBLEMS_MAX {
            continue;
        }
        for (problem, signature) in problems_of(call, catalog, &seen.looked_at) {
            let (line, column) = position(script, call.at);
            problems.push(format!("{line}:{column}: {problem}"));
            if let Some(signature) = signature {
                problems.push(format!("    {signature}"));
            }
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    let message = format!("the script was not run, and nothing was called:\n{}", problems.join("\n"));
    Err(ToolError::bad_request(message))
}

/// What is wrong with a call, and how the function is called.
fn problems_of(
    call: &Written,
    catalog: &Catalog,
    looked_at: &BTreeSet<String>,
) -> Vec<(String, Option<String>)> {
    let provider = Identifier::sanitize(&call.provider);
    if catalog.is_unknown(&provider) {
        // Whether it has such a function shows when it is called.
        return Vec::new();
    }
    // Asked first: most of what is called by a dotted name is the language's own, and functions are many.
    let is_known = catalog.providers().any(|known| *known == provider);
    let found = is_known.then(|| find(catalog, &provider, &call.name)).flatten();
    let provides =
        found.is_some() || (is_known && catalog.functions().any(|entry| *entry.name.provider() == provider));
    if !call.is_sdk && (!provides || NO_GLOBALS.contains(&call.provider.as_str())) {
        // A name of the script's own, or of the language.
        return Vec::new();
    }
    // A name may be as long as its script; neither messages nor the search for the nearest should be.
    let (provider_shown, name_shown) = (cut(&call.provider), cut(&call.name));
    let shown = match call.is_sdk {
        true => format!("sdk.{provider_shown}.{name_shown}"),
        false => format!("{provider_shown}.{name_shown}"),
    };
    if !provides {
        if looked_at.contains(&call.provider) {
            return Vec::new();
        }
        let known: BTreeSet<&str> = catalog.functions().map(|entry| entry.name.provider().as_str()).collect();
        let near = hint(nearest(&provider_shown, known));
        return vec![(format!("{shown}: there is no provider `{provider_shown}`{near}"), None)];
    }
    let Some(entry) = found else {
        if looked_at.contains(&format!("{}.{}", call.provider, call.name)) {
            return Vec::new();
        }
        let known = catalog.functions().filter(|entry| *entry.name.provider() == provider);
        let near = hint(nearest(&name_shown, known.map(|entry| entry.name.tool().as_str())));
        return vec![(format!("{shown}: {provider} has no function `{name_shown}`{near}"), None)];
    };
    let Some(arguments) = &call.arguments else { return Vec::new() };
    let function = Function::near(&entry.name, &entry.spec);
    let misfits = function.misfits(arguments);
    let certain: Vec<&Misfit> = misfits.iter().filter(|misfit| misfit.problem.is_certain()).collect();
    let last = certain.len().saturating_sub(1);
    let told = certain.iter().enumerate().map(|(place, misfit)| {
        let signature = (place == last).then(|| function.signature());
        (format!("{shown}: {}", told(misfit)), signature)
    });
    told.collect()
}

fn told(misfit: &Misfit) -> String {
    let place = misfit.place();
    match &misfit.problem {
        // As the door says it.
        Problem::Missing if !place.is_empty() => format!("missing required parameter: {place}"),
        problem if place.is_empty() => format!("argument {} {problem}", misfit.argument + 1),
        problem => format!("`{place}` {problem}"),
    }
}

/// A function by the name that the catalog or its origin gives it.
fn find<'a>(catalog: &'a Catalog, provider: &Identifier, name: &str) -> Option<&'a Entry> {
    let of_provider = |entry: &&Entry| entry.name.provider() == provider;
    // However many there are, one that is named as the catalog does costs nothing to find.
    let named = catalog.entry(&format!("{provider}.{name}")).filter(of_provider);
    named.or_else(|| catalog.functions().filter(of_provider).find(|entry| entry.spec.name == name))
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
