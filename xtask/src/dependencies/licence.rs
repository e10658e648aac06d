//! Evaluates SPDX licence expressions against the list of accepted licences.

use anyhow::{Result, bail, ensure};

/// Permissive licences, and those with file-level copyleft.
const ACCEPTED: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Maximum nesting of parentheses; published expressions have one or two levels.
const DEPTH_MAX: usize = 8;

/// Whether the expression can be satisfied with accepted licences: all operands of `AND`, and one of `OR`;
/// older manifests write `/` for `OR`.
pub(super) fn is_allowed(expression: &str) -> Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut words = words.as_slice();
    let is_allowed = parse_or(&mut words, DEPTH_MAX)?;
    ensure!(words.is_empty(), "`{}` is too much in `{expression}`", words.join(" "));
    Ok(is_allowed)
}

fn parse_or(words: &mut &[&str], depth: usize) -> Result<bool> {
    let mut is_allowed = parse_and(words, depth)?;
    while let ["OR", rest @ ..] = words {
        *words = rest;
        is_allowed |= parse_and(words, depth)?;
    }
    Ok(is_allowed)
}

fn parse_and(words: &mut &[&str], depth: usize) -> Result<bool> {
    let mut is_allowed = parse_operand(words, depth)?;
    while let ["AND", rest @ ..] = words {
        *words = rest;
        is_allowed &= parse_operand(words, depth)?;
    }
    Ok(is_allowed)
}

fn parse_operand(words: &mut &[&str], depth: usize) -> Result<bool> {
    let (is_allowed, rest) = match *words {
        ["(", rest @ ..] => {
            ensure!(depth > 0, "too many parentheses");
            *words = rest;
            let is_allowed = parse_or(words, depth - 1)?;
            let [")", rest @ ..] = *words else { bail!("a parenthesis is not closed") };
            (is_allowed, rest)
        }
        [name, "WITH", exception, rest @ ..] => {
            (ACCEPTED.contains(&format!("{name} WITH {exception}").as_str()), rest)
        }
        [name, rest @ ..] => (ACCEPTED.contains(name), rest),
        [] => bail!("a licence is missing"),
    };
    *words = rest;
    Ok(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_spdx_has_them() {
        let allowed = [
            "MIT",
            "MIT/Apache-2.0",
            "Apache-2.0 / MIT / MPL-2.0",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
            "GPL-3.0 OR MIT AND ISC",
        ];
        for expression in allowed {
            assert!(is_allowed(expression).unwrap(), "{expression}");
        }
        let refused = [
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "GPL-2.0 WITH LLVM-exception",
            "MIT WITH unheard-of-exception",
            "(MIT OR Apache-2.0) AND (GPL-2.0 OR LGPL-2.1)",
        ];
        for expression in refused {
            assert!(!is_allowed(expression).unwrap(), "{expression}");
        }
        let broken = "(".repeat(DEPTH_MAX + 1) + "MIT";
        for expression in ["", "MIT OR", "(MIT", "MIT MIT", "MIT)", &broken] {
            assert!(is_allowed(expression).is_err(), "{expression}");
        }
    }
}
