//! The golden set: questions in a person's own words, and more than a thousand real functions to find the
//! answers among.

use crate::Test;
use crate::bench::{Bench, limits, settings};
use ctx_core::Catalog;
use ctx_testkit::{SearchQuestion, questions, real_functions};
use serde_json::json;
use std::collections::HashSet;

pub(crate) const TESTS: &[Test] = tests![golden:
    the_right_function_is_among_the_first_five,
    questions_quote_no_description,
];

/// The right function must be among the first `FIRST` results, for `FOUND_MIN` of `ASKED` questions.
const FIRST: usize = 5;
const FOUND_MIN: usize = 57;
const ASKED: usize = 60;
const FUNCTIONS_MIN: usize = 1_000;

/// Number of consecutive words that count as a quotation.
const QUOTATION_WORDS: usize = 4;

fn bench() -> Bench {
    Bench::of(settings(), limits(), real_functions())
}

/// The rank of the first right function, if it is among the results.
async fn rank(bench: &Bench, question: &SearchQuestion) -> Option<usize> {
    let arguments = json!({ "query": question.question, "limit": 50 });
    let answer = Catalog::call("search_docs", arguments, bench.call()).await.unwrap().value;
    let names =
        answer.as_str().unwrap().lines().filter_map(|line| line.strip_prefix("sdk.")?.split_once('('));
    names
        .map(|(name, _)| name)
        .position(|name| question.expected_functions.iter().any(|right| right == name))
        .map(|at| at + 1)
}

async fn the_right_function_is_among_the_first_five() {
    let bench = bench();
    assert!(bench.catalog.functions().count() >= FUNCTIONS_MIN);
    let selected: Vec<SearchQuestion> =
        questions().into_iter().filter(|question| !question.held_out).collect();
    assert_eq!(selected.len(), ASKED);
    let mut missed = Vec::new();
    for question in &selected {
        let rank = rank(&bench, question).await;
        if rank.is_none_or(|rank| rank > FIRST) {
            missed.push(format!("{}: {rank:?}, {:?}", question.question, question.expected_functions));
        }
    }
    missed.iter().for_each(|missed| eprintln!("not among the first {FIRST}: {missed}"));
    assert!(missed.len() <= ASKED - FOUND_MIN, "{} of {ASKED} were not found", missed.len());
}

async fn questions_quote_no_description() {
    let bench = bench();
    let known: Vec<(String, HashSet<Vec<String>>)> = bench
        .catalog
        .functions()
        .map(|entry| (entry.name.to_string(), word_sequences(&entry.spec.description)))
        .collect();
    let mut quoting = Vec::new();
    for question in questions() {
        let question_words = word_sequences(&question.question);
        for right in &question.expected_functions {
            let (_, description_words) =
                known.iter().find(|(name, _)| name == right).unwrap_or_else(|| panic!("no {right}"));
            quoting.extend(
                question_words.intersection(description_words).map(|quoted| format!("{right}: {quoted:?}")),
            );
        }
    }
    assert_eq!(quoting, [""; 0]);
}

/// All sequences of so many consecutive words.
fn word_sequences(text: &str) -> HashSet<Vec<String>> {
    let words: Vec<String> = text
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.windows(QUOTATION_WORDS).map(<[String]>::to_vec).collect()
}
