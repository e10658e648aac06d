//! Function names of operations: snake case, unique, of bounded length.

use ctx_core::Identifier;
use std::collections::{HashMap, HashSet};

/// Names that are taken.
#[derive(Default)]
pub(super) struct UniqueNames {
    taken: HashSet<String>,
    /// The next number to try for a name that is taken. Without it, a thousand equal names would need a
    /// thousand attempts each.
    next: HashMap<String, usize>,
}

impl UniqueNames {
    /// The name, or if it is taken, the name with a number: `x`, `x_2`, `x_3`.
    pub(super) fn take(&mut self, name: &str) -> String {
        self.take_fitted(name, str::to_owned)
    }

    /// Like [`Self::take`], with `fit` applied to each candidate before it is compared.
    fn take_fitted(&mut self, name: &str, fit: impl Fn(&str) -> String) -> String {
        let fitting = fit(name);
        if self.taken.insert(fitting.clone()) {
            return fitting;
        }
        loop {
            let ordinal = self.next.entry(name.to_owned()).or_insert(2);
            let numbered = fit(&format!("{name}_{ordinal}"));
            *ordinal += 1;
            if self.taken.insert(numbered.clone()) {
                return numbered;
            }
        }
    }

    /// Whether a name is taken.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.taken.contains(name)
    }
}

/// The function name of an operation: from its `operationId`, else from its method and path.
pub(super) fn operation_name(names: &mut UniqueNames, id: Option<&str>, method: &str, path: &str) -> String {
    let of_id = id.map(snake_case).filter(|name| !name.is_empty());
    let name = of_id.unwrap_or_else(|| snake_case(&format!("{method} {path}")));
    names.take_fitted(&name, |name| Identifier::sanitize(name).shortened().to_string())
}

/// `getHTTPStatus` as `get_http_status`, `pets/list` as `pets_list`.
fn snake_case(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let at = |index: usize| letters.get(index).copied().unwrap_or(' ');
    let mut name = String::with_capacity(text.len() + 8);
    for (index, letter) in letters.iter().enumerate() {
        if !letter.is_ascii_alphanumeric() {
            if !name.is_empty() && !name.ends_with('_') {
                name.push('_');
            }
            continue;
        }
        let before = if index == 0 { ' ' } else { at(index - 1) };
        let (after, later) = (at(index + 1), at(index + 2));
        let ends_acronym = before.is_ascii_uppercase() && after.is_ascii_lowercase();
        // The `s` of `IDs` does not begin a new word.
        let is_plural = after == 's' && !later.is_ascii_lowercase();
        let begins = before.is_ascii_lowercase() || before.is_ascii_digit() || (ends_acronym && !is_plural);
        if letter.is_ascii_uppercase() && begins && !name.ends_with('_') {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name.truncate(name.trim_end_matches('_').len());
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(id: &str) -> String {
        operation_name(&mut UniqueNames::default(), Some(id), "get", "/pets/{id}/toys")
    }

    #[test]
    fn names_are_snake_case() {
        for (id, expected) in [
            ("getHTTPStatus", "get_http_status"),
            ("pets/list", "pets_list"),
            ("listPets", "list_pets"),
            ("ListPetsV2", "list_pets_v2"),
            ("getV2Items", "get_v2_items"),
            ("getUserIDs", "get_user_ids"),
            ("GET_users", "get_users"),
            ("get-user--by.name", "get_user_by_name"),
            ("2fa", "_2fa"),
            ("end", "_end"),
            ("", "get_pets_id_toys"),
            ("größe", "gr_e"),
            ("日本", "get_pets_id_toys"),
            ("__x__", "x"),
        ] {
            assert_eq!(name(id), expected, "{id}");
        }
        assert_eq!(operation_name(&mut UniqueNames::default(), None, "get", "/"), "get");
    }

    #[test]
    fn long_names_are_truncated_and_distinct() {
        let long = |last: char| name(&format!("{}{last}", "x".repeat(100)));
        assert_eq!(long('a').len(), 64);
        assert_ne!(long('a'), long('b'));
        assert_eq!(long('a'), long('a'));
        let mut names = UniqueNames::default();
        let twice = [(); 2].map(|()| operation_name(&mut names, Some(&"y".repeat(64)), "get", "/"));
        assert_ne!(twice[0], twice[1]);
        assert!(twice.iter().all(|name| name.len() <= 64));
    }

    #[test]
    fn many_equal_names_are_numbered_in_linear_time() {
        let mut names = UniqueNames::default();
        let last = (0..20_000).map(|_| operation_name(&mut names, Some("x"), "get", "/")).last();
        assert_eq!(last.as_deref(), Some("x_20000"));
    }

    proptest! {
        #[test]
        fn names_are_valid_unique_and_stable(
            ids in proptest::collection::vec(proptest::option::of("[a-zA-Z0-9_ /.é-]{0,80}"), 0..30)
        ) {
            let all = || {
                let mut names = UniqueNames::default();
                let of = |id: &Option<String>| operation_name(&mut names, id.as_deref(), "post", "/a/{b}");
                ids.iter().map(of).collect::<Vec<_>>()
            };
            let names = all();
            for name in &names {
                prop_assert!(name.parse::<Identifier>().is_ok() && name.len() <= 64, "{}", name);
            }
            prop_assert_eq!(names.iter().collect::<HashSet<_>>().len(), ids.len());
            prop_assert_eq!(&names, &all());
        }
    }
}
