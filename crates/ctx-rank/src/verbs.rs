//! Intent by verbs: the kind of action that a query asks for, and the kind that a function performs. A question about
//! files must not find a function that deletes one.

/// Kinds of actions, one bit each.
const READ: u8 = 1;
const CREATE: u8 = 2;
const UPDATE: u8 = 4;
const DELETE: u8 = 8;
const STOP: u8 = 16;
const START: u8 = 32;

/// Words at the start of a question, which asks to read.
const QUESTION_WORDS: [&str; 12] =
    ["all", "are", "did", "does", "has", "how", "is", "was", "what", "where", "which", "who"];

/// Actions by verb, for names of functions and for queries. Sorted.
const VERBS: &[(&str, u8)] = &[
    ("abort", STOP),
    ("accept", START),
    ("add", CREATE),
    ("adjust", UPDATE),
    ("again", START),
    ("all", READ),
    ("any", READ),
    ("approve", START),
    ("are", READ),
    ("ask", START),
    ("assign", CREATE),
    ("attach", CREATE),
    ("away", DELETE),
    ("ban", STOP),
    ("block", STOP),
    ("cancel", STOP),
    ("change", UPDATE),
    ("check", READ),
    ("clear", DELETE),
    ("close", UPDATE),
    ("convert", UPDATE),
    ("count", READ),
    ("create", CREATE),
    ("decline", STOP),
    ("delete", DELETE),
    ("describe", READ),
    ("destroy", DELETE),
    ("did", READ),
    ("disable", STOP),
    ("dismiss", UPDATE | STOP),
    ("dispatch", START),
    ("display", READ),
    ("does", READ),
    ("download", READ),
    ("drop", DELETE),
    ("edit", UPDATE),
    ("enable", START),
    ("end", STOP),
    ("erase", DELETE),
    ("export", START),
    ("fetch", READ),
    ("file", CREATE),
    ("find", READ),
    ("forget", DELETE),
    ("generate", CREATE),
    ("get", READ),
    ("give", CREATE),
    ("halt", STOP),
    ("has", READ),
    ("how", READ),
    ("insert", CREATE),
    ("invite", CREATE),
    ("is", READ),
    ("kick", DELETE),
    ("know", READ),
    ("launch", START),
    ("list", READ),
    ("lock", STOP),
    ("look", READ),
    ("lookup", READ),
    ("make", CREATE),
    ("mark", UPDATE),
    ("merge", START),
    ("modify", UPDATE),
    ("move", UPDATE),
    ("names", READ),
    ("nest", CREATE),
    ("new", CREATE),
    ("note", CREATE),
    ("off", STOP),
    ("on", START),
    ("open", CREATE),
    ("patch", UPDATE),
    ("pause", STOP),
    ("point", UPDATE),
    ("post", CREATE),
    ("publish", CREATE),
    ("purge", DELETE),
    ("put", CREATE),
    ("query", READ),
    ("re", START),
    ("read", READ),
    ("redeliver", START),
    ("redo", START),
    ("register", CREATE),
    ("reject", STOP),
    ("remove", DELETE),
    ("rename", UPDATE),
    ("replace", UPDATE),
    ("request", START),
    ("rerequest", START),
    ("rerun", START),
    ("resolve", UPDATE),
    ("restart", START),
    ("resume", START),
    ("retrieve", READ),
    ("retry", START),
    ("review", START),
    ("revoke", DELETE),
    ("run", START),
    ("search", READ),
    ("see", READ),
    ("send", CREATE),
    ("set", UPDATE),
    ("share", CREATE),
    ("show", READ),
    ("shut", STOP),
    ("start", CREATE | START),
    ("stop", STOP),
    ("store", CREATE),
    ("suspend", STOP),
    ("switch", UPDATE),
    ("take", DELETE),
    ("tell", READ),
    ("transfer", UPDATE),
    ("trigger", START),
    ("turn", UPDATE),
    ("unassign", DELETE),
    ("update", UPDATE),
    ("upload", CREATE),
    ("view", READ),
    ("was", READ),
    ("what", READ),
    ("where", READ),
    ("which", READ),
    ("who", READ),
    ("write", CREATE),
];

/// Verbs in queries that are nouns in names of functions: `daily_report` reports nothing. Sorted.
const QUERY_ONLY_VERBS: &[(&str, u8)] = &[("report", CREATE)];

/// The action that a query asks for; zero if none of its words is a known verb.
pub(crate) fn query_action<'a>(mut words: impl Iterator<Item = &'a str>) -> u8 {
    let Some(first) = words.next() else { return 0 };
    if QUESTION_WORDS.binary_search(&first).is_ok() {
        return READ;
    }
    let action = |word| action_of(word, QUERY_ONLY_VERBS).or_else(|| action_of(word, VERBS));
    std::iter::once(first).chain(words).find_map(action).unwrap_or_default()
}

/// The actions of a function: by the first verb of its name, and by the first word of its description.
pub(crate) fn function_actions<'a>(mut name: impl Iterator<Item = &'a str>, about: Option<&str>) -> u8 {
    let named = name.find_map(|word| action_of(word, VERBS)).unwrap_or_default();
    named | about.and_then(|word| action_of(word, VERBS)).unwrap_or_default()
}

/// Agreement of two actions: 1, -1, or 0 if one is unknown.
pub(crate) fn agreement(query_action: u8, function_actions: u8) -> f64 {
    match (query_action == 0 || function_actions == 0, query_action & function_actions) {
        (true, _) => 0.0,
        (false, 0) => -1.0,
        (false, _) => 1.0,
    }
}

fn action_of(word: &str, verbs: &[(&str, u8)]) -> Option<u8> {
    verbs.binary_search_by_key(&word, |(verb, _)| verb).ok().map(|index| verbs[index].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agree(question: &str, name: &str) -> f64 {
        agreement(query_action(question.split(' ')), function_actions(name.split('_'), None))
    }

    #[test]
    fn questions_are_answered_by_reading() {
        assert!(agree("which files are there", "list_files") > 0.0);
        assert!(agree("who may delete files", "delete_file") < 0.0);
    }

    #[test]
    fn verbs_agree_with_those_of_their_kind() {
        assert!(agree("stop a job", "job_cancel") > 0.0);
        assert!(agree("stop a job", "job_create") < 0.0);
        assert!(agree("erase a file", "remove_file") > 0.0);
        assert!(agree("report a bug", "usage_report").abs() < 0.5);
        assert!(agree("files", "list_files").abs() < 0.5);
        assert!(agree("", "").abs() < 0.5);
    }

    #[test]
    fn the_tables_are_sorted() {
        assert!(VERBS.is_sorted() && QUERY_ONLY_VERBS.is_sorted() && QUESTION_WORDS.is_sorted());
    }
}
