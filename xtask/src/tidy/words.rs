//! Rules about names and comments: plain technical English, one name for one concept (CONTRIBUTING.md, How we write).

use std::collections::{BTreeMap, BTreeSet};

/// Number of crates in which a type name may stand; in more, it needs a qualifier that says its role.
const CRATES_MAX: usize = 2;

/// Type names that say nothing about the role of the type: participles, pronouns, places.
const BANNED_TYPES: &[&str] = &[
    "Alone",
    "Answered",
    "Applied",
    "Asked",
    "Asking",
    "Beside",
    "Beyond",
    "Broken",
    "Brought",
    "Checked",
    "Compiled",
    "Completing",
    "Described",
    "Discovered",
    "Encoded",
    "Ended",
    "Exposed",
    "Far",
    "Faulty",
    "Fetched",
    "Filled",
    "Following",
    "Forbidden",
    "Found",
    "Frozen",
    "Full",
    "Given",
    "Gone",
    "Granted",
    "Half",
    "Heard",
    "Inside",
    "Kept",
    "Known",
    "Large",
    "Last",
    "Late",
    "Left",
    "Listed",
    "Live",
    "Loaded",
    "Located",
    "Lost",
    "Made",
    "Many",
    "Measured",
    "Missing",
    "More",
    "Moved",
    "Named",
    "Need",
    "Needed",
    "Newer",
    "News",
    "Next",
    "Nobody",
    "NoMore",
    "NotRead",
    "Now",
    "Numbered",
    "Outside",
    "Over",
    "Own",
    "Pass",
    "Patience",
    "Pending",
    "Played",
    "Published",
    "Pulled",
    "Ranked",
    "Raw",
    "Reached",
    "Read",
    "Reading",
    "Received",
    "Refused",
    "Registered",
    "Reloading",
    "Remembered",
    "Repeated",
    "Replaced",
    "Running",
    "Said",
    "Scored",
    "Seen",
    "Sent",
    "Served",
    "Shown",
    "Skipped",
    "Stripping",
    "Surroundings",
    "Surveyed",
    "Taken",
    "Talk",
    "Telling",
    "Thing",
    "Told",
    "Trouble",
    "Typed",
    "Unanswered",
    "Unfit",
    "Unique",
    "Unknown",
    "Unreadable",
    "Unset",
    "Unsure",
    "Untrusted",
    "Waiting",
    "Wanted",
    "Watched",
    "Way",
    "What",
    "When",
    "Whole",
    "Written",
];

/// Function names that are no verb with an object, or a verb of everyday speech for a term.
const BANNED_FUNCTIONS: &[&str] = &[
    "asked", "at_hand", "brought", "given", "go_on", "goes_on", "gone", "hear", "heard", "kept", "lets_in",
    "listed", "made", "said", "shown", "take_up", "tell", "tend", "told", "what",
];

/// Phrases of comments and documentation that stand for a term of the field.
const BANNED_PHRASES: &[&str] = &[
    "a small picture of",
    "at hand",
    "is told of",
    "lets only known people in",
    "lets us in",
    "lets them in",
    "on another's behalf",
    "what is got",
    "what lets",
    "who may come in",
];

/// The type definitions of the sources, by name, with the crates that have one.
#[derive(Default)]
pub(super) struct TypeNames(BTreeMap<String, BTreeSet<String>>);

impl TypeNames {
    /// Reports type names that stand in too many crates.
    pub(super) fn check(&self, breaches: &mut Vec<String>) {
        for (name, crates) in self.0.iter().filter(|(_, crates)| crates.len() > CRATES_MAX) {
            let crates: Vec<_> = crates.iter().map(String::as_str).collect();
            breaches.push(format!(
                "{}: each has a type `{name}`; say its role, as in `{name}Options` or `Cached{name}`",
                crates.join(", ")
            ));
        }
    }
}

/// Checks names and comments of a Rust file, and collects its types.
pub(super) fn check_rust(path: &str, text: &str, types: &mut TypeNames, breaches: &mut Vec<String>) {
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.trim_start();
        if let Some(comment) = comment(code) {
            check_comment(path, number, comment, breaches);
            continue;
        }
        let Some((keyword, name)) = definition(code) else { continue };
        if keyword == "fn" {
            if BANNED_FUNCTIONS.contains(&name) {
                breaches.push(format!("{path}:{number}: `fn {name}`; a function is a verb with its object"));
            }
            continue;
        }
        if BANNED_TYPES.contains(&name) {
            breaches.push(format!("{path}:{number}: `{name}`; a type is a noun that says its role"));
        }
        // An associated type has the name that its trait gives it; types of tests are read beside their use.
        let associated = keyword == "type" && line.starts_with(' ');
        if !associated
            && !path.contains("/tests")
            && let Some(of) = path.strip_prefix("crates/").and_then(|path| path.split('/').next())
        {
            types.0.entry(name.to_owned()).or_default().insert(of.to_owned());
        }
    }
}

/// Checks the words of a page.
pub(super) fn check_page(path: &str, text: &str, breaches: &mut Vec<String>) {
    for (number, line) in (1..).zip(text.lines()) {
        check_phrases(path, number, line, breaches);
    }
}

fn comment(code: &str) -> Option<&str> {
    ["///", "//!", "//"].iter().find_map(|marker| code.strip_prefix(marker))
}

/// The keyword and the name that a line defines.
fn definition(code: &str) -> Option<(&'static str, &str)> {
    let mut words = code.split_whitespace().peekable();
    while let Some(word) = words.peek() {
        let modifier = word.starts_with("pub") || ["async", "const", "unsafe", "default"].contains(word);
        if !modifier && !word.ends_with(')') {
            break;
        }
        words.next();
    }
    let first = words.next()?;
    let keyword = ["struct", "enum", "trait", "type", "fn"].into_iter().find(|keyword| *keyword == first)?;
    let name = words.next()?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    Some((keyword, name.get(..end)?)).filter(|(_, name)| !name.is_empty())
}

fn check_comment(path: &str, number: usize, comment: &str, breaches: &mut Vec<String>) {
    if ["The same.", "The same", "As above."].contains(&comment.trim()) {
        breaches.push(format!("{path}:{number}: a comment says what it is, in a full phrase"));
    }
    check_phrases(path, number, comment, breaches);
}

fn check_phrases(path: &str, number: usize, text: &str, breaches: &mut Vec<String>) {
    let lowercase = text.to_lowercase();
    for phrase in BANNED_PHRASES.iter().filter(|phrase| contains_words(&lowercase, phrase)) {
        breaches.push(format!("{path}:{number}: \"{phrase}\"; use the term that a reader would search for"));
    }
}

/// Whether the text contains these words, and not just as parts of others.
fn contains_words(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let after = text[start + words.len()..].chars().next();
        ![before, after].into_iter().flatten().any(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(path: &str, text: &str) -> Vec<String> {
        let mut breaches = Vec::new();
        check_rust(path, text, &mut TypeNames::default(), &mut breaches);
        breaches
    }

    #[test]
    fn names_without_a_role_and_comments_without_content_are_breaches() {
        for wrong in [
            "pub(crate) struct Told(String);",
            "enum What {",
            "    async fn go_on(&self) {",
            "/// The same.",
            "// The key that lets us in.",
        ] {
            assert_eq!(breaches("crates/ctx/src/a.rs", wrong).len(), 1, "{wrong}");
        }
        for right in [
            "struct ErrorText(String);",
            "/// The same bytes, decoded.",
            "// Code that handles the error.",
            "fn next_round() {}",
            "let told = 1;",
            "    type Error = Lost;",
        ] {
            assert_eq!(breaches("crates/ctx/src/a.rs", right), Vec::<String>::new(), "{right}");
        }
    }

    #[test]
    fn a_type_name_stands_in_two_crates_at_most() {
        let mut types = TypeNames::default();
        let mut breaches = Vec::new();
        for path in ["crates/ctx/src/a.rs", "crates/ctx/src/b.rs", "crates/ctx-http/src/a.rs"] {
            check_rust(path, "pub(super) struct Reader<'a> {", &mut types, &mut breaches);
        }
        types.check(&mut breaches);
        assert_eq!(breaches, Vec::<String>::new());
        check_rust("crates/ctx-core/src/a.rs", "struct Reader;", &mut types, &mut breaches);
        check_rust("crates/ctx-net/tests/a.rs", "struct Reader;", &mut types, &mut breaches);
        types.check(&mut breaches);
        assert_eq!(breaches.len(), 1);
        assert!(breaches[0].starts_with("ctx, ctx-core, ctx-http: each has a type `Reader`"));
    }
}
