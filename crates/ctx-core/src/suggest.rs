//! "Did you mean": the nearest of the names that exist.

/// The candidate most like `wrong`, if one is close enough to be worth saying.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(wrong, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + wrong.len().min(candidate.len()) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_close_name_is_suggested() {
        assert_eq!(nearest("git:platfrom", ["git:platform", "filesystem:docs"]), Some("git:platform"));
        assert_eq!(nearest("zebra", ["bind", "token"]), None);
    }
}
