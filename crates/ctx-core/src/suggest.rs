//! "Did you mean": the known name with the smallest edit distance.
//!
//! Names are untrusted (callers, upstreams, scripts), and the search runs on a runtime thread while an error message is
//! made. So the length of the names, their number and the total work are bounded.

/// Bytes of a name that is compared; a longer one is not a typo.
const NAME_BYTES_MAX: usize = 128;

/// Candidates per search: a catalog of ten thousand tools has two names for each.
const CANDIDATES_MAX: usize = 20_000;

/// Edit-distance table cells that one search fills: a few milliseconds of work.
const CELLS_MAX: usize = 500_000;

/// The candidate nearest to `wrong`, if one is close enough to suggest. The cost is bounded: long names are skipped,
/// and when the budget is used up the best candidate so far is returned.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_few(wrong, candidates, 1).pop()
}

/// The candidates nearest to `wrong`: those that no other is nearer than, `count_max` at most, in their order. See
/// [`nearest`].
pub fn nearest_few<'a>(
    wrong: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    count_max: usize,
) -> Vec<&'a str> {
    if wrong.len() > NAME_BYTES_MAX {
        return Vec::new();
    }
    let letters = CharacterCounts::of(wrong);
    let mut likely: Vec<(usize, usize, &'a str)> = Vec::new();
    for (place, candidate) in candidates.into_iter().take(CANDIDATES_MAX).enumerate() {
        if candidate.len() <= NAME_BYTES_MAX {
            let distance_min = letters.distance_min(candidate);
            if distance_min <= distance_max(wrong, candidate) {
                likely.push((distance_min, place, candidate));
            }
        }
    }
    // By lower bound, so that the search can stop at the first bound above the best distance.
    likely.sort_unstable();
    let mut cells_left = CELLS_MAX;
    let mut least = usize::MAX;
    let mut best: Vec<(usize, &'a str)> = Vec::new();
    for (distance_min, place, candidate) in likely {
        let cells = (wrong.len() + 1) * (candidate.len() + 1);
        if distance_min > least || cells > cells_left {
            break;
        }
        cells_left -= cells;
        let distance = strsim::damerau_levenshtein(wrong, candidate);
        if distance > distance_max(wrong, candidate) || distance > least {
            continue;
        }
        if distance < least {
            best.clear();
            least = distance;
        }
        best.push((place, candidate));
    }
    // Ties go to the earlier candidates, so that the result is deterministic.
    best.sort_unstable();
    best.into_iter().take(count_max).map(|(_, candidate)| candidate).collect()
}

fn distance_max(wrong: &str, candidate: &str) -> usize {
    1 + wrong.len().min(candidate.len()) / 3
}

/// Character counts of a name, by the low seven bits: exact for ASCII; collisions of other characters only lower the
/// bound that is computed from them.
struct CharacterCounts {
    counts: [u16; Self::KINDS],
    length: usize,
}

impl CharacterCounts {
    const KINDS: usize = 128;

    fn of(name: &str) -> Self {
        let mut letters = Self { counts: [0; Self::KINDS], length: 0 };
        for letter in name.chars() {
            letters.counts[letter as usize % Self::KINDS] += 1;
            letters.length += 1;
        }
        letters
    }

    /// A lower bound of the edit distance to a name, in linear time: the characters that the two do not share.
    fn distance_min(&self, name: &str) -> usize {
        let other = Self::of(name);
        let both = self.counts.iter().zip(&other.counts);
        let shared: usize = both.map(|(one, another)| usize::from(*one.min(another))).sum();
        self.length.max(other.length) - shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference implementation without bounds.
    fn exhaustive<'a>(wrong: &str, candidates: &[&'a str]) -> Option<&'a str> {
        let near = |candidate: &&'a str| {
            let distance = strsim::damerau_levenshtein(wrong, candidate);
            (distance <= distance_max(wrong, candidate)).then_some((distance, *candidate))
        };
        candidates.iter().filter_map(near).min_by_key(|(distance, _)| *distance).map(|(_, near)| near)
    }

    #[test]
    fn only_a_close_name_is_suggested() {
        assert_eq!(nearest("git:platfrom", ["git:platform", "filesystem:docs"]), Some("git:platform"));
        assert_eq!(nearest("zebra", ["bind", "token"]), None);
    }

    #[test]
    fn candidates_that_are_equally_near_are_suggested_together() {
        let known = ["items", "order", "orders", "orden"];
        assert_eq!(nearest_few("orde", known, 3), ["order", "orden"]);
        assert_eq!(nearest_few("orde", known, 1), ["order"]);
        assert_eq!(nearest_few("zebra", known, 3), [""; 0]);
    }

    #[test]
    fn a_name_of_megabytes_is_not_compared() {
        let long = "a".repeat(4 << 20);
        let longer = format!("{long}b");
        assert_eq!(nearest(&long, ["abc"]), None);
        assert_eq!(nearest(&long, [longer.as_str()]), None);
        assert_eq!(nearest("abc", [long.as_str(), "abd"]), Some("abd"));
    }

    #[test]
    fn a_catalog_of_thousands_is_searched_whole() {
        let names: Vec<String> =
            (0..20_000).map(|n| format!("server_{n}.create_issue_of_kind_{n}")).collect();
        let all = || names.iter().map(String::as_str);
        assert_eq!(
            nearest("server_19999.craete_issue_of_kind_19999", all()),
            Some("server_19999.create_issue_of_kind_19999")
        );
    }

    #[test]
    fn names_chosen_to_be_expensive_end_the_search() {
        // Endless candidates with the same characters in another order, so that the lower bound excludes none.
        let wrong = "ab".repeat(NAME_BYTES_MAX / 2);
        let swapped = "ba".repeat(NAME_BYTES_MAX / 2 - 4);
        let hostile = std::iter::repeat_n(swapped.as_str(), usize::MAX);
        assert!(nearest(&wrong, hostile).is_some());
    }

    proptest! {
        #[test]
        fn the_bounds_change_no_answer_for_ordinary_names(
            wrong in "[a-eé_.]{0,12}",
            candidates in proptest::collection::vec("[a-eé_.]{0,12}", 0..20),
        ) {
            let candidates: Vec<&str> = candidates.iter().map(String::as_str).collect();
            prop_assert_eq!(nearest(&wrong, candidates.iter().copied()), exhaustive(&wrong, &candidates));
        }
    }
}
