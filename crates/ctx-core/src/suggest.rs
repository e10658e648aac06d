//! "Did you mean" suggestions: the known name with the smallest edit distance.
//!
//! Names come from untrusted sources (callers, upstream servers, scripts), and the search runs on threads of the async
//! runtime. So the length of the names, their number and the total work are bounded.

/// Maximum bytes of a name; longer names are not compared.
const NAME_BYTES_MAX: usize = 128;

/// Maximum candidates per search: enough for ten thousand tools, each with its full name (`github.search`) and the name
/// that clients see (`github__search`).
const CANDIDATES_MAX: usize = 20_000;

/// Maximum total number of edit-distance table cells in one search: a few milliseconds of work.
const CELLS_MAX: usize = 500_000;

/// The candidate nearest to `wrong`, if one is close enough to suggest. The cost is bounded: long names are skipped,
/// and when the limit on table cells is reached, the search returns the best candidate so far.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_few(wrong, candidates, 1).pop()
}

/// Like [`nearest`], but returns all candidates that tie for the smallest distance, in their order; at most
/// `count_max`.
pub fn nearest_few<'a>(
    wrong: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    count_max: usize,
) -> Vec<&'a str> {
    if wrong.len() > NAME_BYTES_MAX {
        return Vec::new();
    }
    let wrong_counts = CharacterCounts::of(wrong);
    let mut likely: Vec<(usize, usize, &'a str)> = Vec::new();
    for (index, candidate) in candidates.into_iter().take(CANDIDATES_MAX).enumerate() {
        if candidate.len() <= NAME_BYTES_MAX {
            let distance_lower_bound = wrong_counts.distance_lower_bound(candidate);
            if distance_lower_bound <= distance_threshold(wrong, candidate) {
                likely.push((distance_lower_bound, index, candidate));
            }
        }
    }
    // Sorted by lower bound, so that the search can stop at the first bound above the smallest distance found so far.
    likely.sort_unstable();
    let mut cells_left = CELLS_MAX;
    let mut best_distance = usize::MAX;
    let mut best: Vec<(usize, &'a str)> = Vec::new();
    for (distance_lower_bound, index, candidate) in likely {
        let cells = (wrong.len() + 1) * (candidate.len() + 1);
        if distance_lower_bound > best_distance || cells > cells_left {
            break;
        }
        cells_left -= cells;
        let distance = strsim::damerau_levenshtein(wrong, candidate);
        if distance > distance_threshold(wrong, candidate) || distance > best_distance {
            continue;
        }
        if distance < best_distance {
            best.clear();
            best_distance = distance;
        }
        best.push((index, candidate));
    }
    // Back in the order of the candidates, so that the earlier ones win ties.
    best.sort_unstable();
    best.into_iter().take(count_max).map(|(_, candidate)| candidate).collect()
}

/// Maximum edit distance of a suggestion; it grows with the shorter name.
fn distance_threshold(wrong: &str, candidate: &str) -> usize {
    1 + wrong.len().min(candidate.len()) / 3
}

/// How often each character occurs in a name. The key is the low seven bits of the code point: exact for ASCII, and a
/// collision of other characters can only make [`Self::distance_lower_bound`] smaller.
struct CharacterCounts {
    counts: [u16; Self::BUCKETS],
    length: usize,
}

impl CharacterCounts {
    const BUCKETS: usize = 128;

    fn of(name: &str) -> Self {
        let mut counted = Self { counts: [0; Self::BUCKETS], length: 0 };
        for character in name.chars() {
            counted.counts[character as usize % Self::BUCKETS] += 1;
            counted.length += 1;
        }
        counted
    }

    /// A lower bound of the edit distance to a name, in linear time: the length of the longer name minus the number of
    /// characters that both have.
    fn distance_lower_bound(&self, name: &str) -> usize {
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

    /// Reference implementation: compares every candidate.
    fn exhaustive<'a>(wrong: &str, candidates: &[&'a str]) -> Option<&'a str> {
        let near = |candidate: &&'a str| {
            let distance = strsim::damerau_levenshtein(wrong, candidate);
            (distance <= distance_threshold(wrong, candidate)).then_some((distance, *candidate))
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
    fn an_endless_list_of_costly_candidates_is_cut_off() {
        // All candidates tie, so the lower bound never ends the search; only the limits on candidates and cells do.
        let wrong = "ab".repeat(NAME_BYTES_MAX / 2);
        let swapped = "ba".repeat(NAME_BYTES_MAX / 2 - 4);
        let endless = std::iter::repeat_n(swapped.as_str(), usize::MAX);
        assert!(nearest(&wrong, endless).is_some());
    }

    proptest! {
        #[test]
        fn short_names_get_the_result_of_an_exhaustive_search(
            wrong in "[a-eé_.]{0,12}",
            candidates in proptest::collection::vec("[a-eé_.]{0,12}", 0..20),
        ) {
            let candidates: Vec<&str> = candidates.iter().map(String::as_str).collect();
            prop_assert_eq!(nearest(&wrong, candidates.iter().copied()), exhaustive(&wrong, &candidates));
        }
    }
}
