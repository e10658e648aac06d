//! Parses files of questions with their expected documents: one JSON object per line.

use crate::error::{CommandError, CommandResult};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;

/// Maximum size of a file of questions: about a hundred thousand questions.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// The highest grade.
const GRADE_MAX: u64 = 100;
/// Maximum number of invalid lines shown; further ones are only counted.
const PROBLEMS_SHOWN: usize = 20;

/// Items of a file, each with its line number.
pub(super) type LineItems<T> = Vec<(usize, T)>;

/// A query, and the documents that answer it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct EvalQuestion {
    pub(super) query: String,
    /// Grades by document name, as written in the file.
    pub(super) expect: BTreeMap<String, u32>,
}

/// A parsed line, not yet validated.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "struct Written")]
struct QuestionLine {
    query: String,
    expect: Value,
}

/// Reads a file of questions.
pub(super) fn read(path: &Path) -> CommandResult<LineItems<EvalQuestion>> {
    let shown = path.display();
    let failed = |error: std::io::Error| CommandError::usage(format!("cannot read {shown}: {error}"));
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(CommandError::usage(format!("{shown} has more than {FILE_BYTES_MAX} bytes")));
    }
    parse(&text).map_err(|problems| invalid_lines(path, problems)).and_then(|questions| {
        if questions.is_empty() {
            return Err(CommandError::usage(format!("{shown} has no questions")).hint(
                "write one a line: {\"query\": \"how do I restore a backup?\", \"expect\": [\"backup.md\"]}",
            ));
        }
        Ok(questions)
    })
}

/// The error for invalid lines.
pub(super) fn invalid_lines(path: &Path, problems: LineItems<String>) -> CommandError {
    let left_out = problems.len().saturating_sub(PROBLEMS_SHOWN);
    let shown = problems.iter().take(PROBLEMS_SHOWN);
    let mut messages: Vec<String> =
        shown.map(|(line, problem)| format!("{}:{line}: {problem}", path.display())).collect();
    if left_out > 0 {
        messages.push(format!("{left_out} more lines are invalid"));
    }
    CommandError { messages, ..CommandError::usage("") }
}

/// All questions, or all invalid lines.
fn parse(text: &str) -> Result<LineItems<EvalQuestion>, LineItems<String>> {
    let (mut questions, mut problems) = (Vec::new(), Vec::new());
    let mut lines: HashMap<String, usize> = HashMap::new();
    for (line, line_text) in (1..).zip(text.trim_start_matches('\u{FEFF}').lines()) {
        if line_text.trim().is_empty() {
            continue;
        }
        match question(line_text) {
            Err(problem) => problems.push((line, problem)),
            Ok(question) => match lines.insert(question.query.clone(), line) {
                Some(first) => problems.push((line, format!("the same query as in line {first}"))),
                None => questions.push((line, question)),
            },
        }
    }
    if problems.is_empty() { Ok(questions) } else { Err(problems) }
}

fn question(line: &str) -> Result<EvalQuestion, String> {
    let parsed: QuestionLine = serde_json::from_str(line).map_err(|error| {
        // The text is a single line, so serde's line number is always 1.
        let position = format!(" at line {} column {}", error.line(), error.column());
        format!("{} (column {})", error.to_string().trim_end_matches(&position), error.column())
    })?;
    if parsed.query.trim().is_empty() {
        return Err("the query is empty".to_owned());
    }
    let expect = match parsed.expect {
        Value::Array(names) => names.into_iter().map(ungraded).collect::<Result<_, _>>()?,
        Value::Object(grades) => grades.into_iter().map(graded).collect::<Result<_, _>>()?,
        Value::String(name) => BTreeMap::from([ungraded(Value::String(name))?]),
        _ => return Err("`expect` is neither a list of documents nor an object of grades".to_owned()),
    };
    if expect.is_empty() {
        return Err("`expect` names no document".to_owned());
    }
    Ok(EvalQuestion { query: parsed.query, expect })
}

fn ungraded(name: Value) -> Result<(String, u32), String> {
    match name {
        Value::String(name) if !name.trim().is_empty() => Ok((name, 1)),
        other => Err(format!("`expect` has {other}, which names no document")),
    }
}

fn graded((name, grade): (String, Value)) -> Result<(String, u32), String> {
    let number = grade.as_u64().filter(|grade| (1..=GRADE_MAX).contains(grade));
    number
        .and_then(|grade| u32::try_from(grade).ok())
        .map(|grade| (name.clone(), grade))
        .ok_or_else(|| format!("the grade of `{name}` is {grade}, not a whole number from 1 to {GRADE_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn problem(line: &str) -> String {
        question(line).unwrap_err()
    }

    #[test]
    fn expectations_are_one_name_a_list_or_grades() {
        let expect = |line: &str| question(line).unwrap().expect.into_iter().collect::<Vec<_>>();
        let grade = |name: &str, grade| (name.to_owned(), grade);
        assert_eq!(expect(r#"{"query": "q", "expect": "a.md"}"#), [grade("a.md", 1)]);
        assert_eq!(
            expect(r#"{"query": "q", "expect": ["b.md", "a.md", "b.md"]}"#),
            [grade("a.md", 1), grade("b.md", 1)]
        );
        assert_eq!(expect(r#"{"expect": {"a.md": 2}, "query": "q"}"#), [grade("a.md", 2)]);
    }

    #[test]
    fn a_line_that_is_no_question_says_why() {
        assert_eq!(problem("{\"query\": \"q\","), "EOF while parsing a value (column 14)");
        assert_eq!(problem(r#"{"query": "q"}"#), "missing field `expect` (column 14)");
        assert_eq!(
            problem(r#"{"query": "q", "expected": []}"#),
            "unknown field `expected`, expected `query` or `expect` (column 25)"
        );
        assert_eq!(problem(r#"{"query": " ", "expect": ["a"]}"#), "the query is empty");
        assert_eq!(problem(r#"{"query": "q", "expect": []}"#), "`expect` names no document");
        assert_eq!(problem(r#"{"query": "q", "expect": [1]}"#), "`expect` has 1, which names no document");
        assert_eq!(
            problem(r#"{"query": "q", "expect": 1}"#),
            "`expect` is neither a list of documents nor an object of grades"
        );
        for grade in ["0", "101", "1.5", "-1", "\"2\"", "null"] {
            let line = format!(r#"{{"query": "q", "expect": {{"a": {grade}}}}}"#);
            assert_eq!(
                problem(&line),
                format!("the grade of `a` is {grade}, not a whole number from 1 to 100")
            );
        }
    }

    #[test]
    fn every_invalid_line_is_reported_by_number_and_blank_lines_are_skipped() {
        let ask = |query: &str| format!("{{\"query\": \"{query}\", \"expect\": [\"a\"]}}");
        let text = format!("\u{FEFF}{}\r\n\n  \n{}\n", ask("one"), ask("two"));
        let lines: Vec<usize> = parse(&text).unwrap().into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 4]);
        let text = format!("{}\n?\n{}\n", ask("one"), ask("one"));
        let problems = parse(&text).unwrap_err();
        assert_eq!(
            problems,
            [(2, "expected value (column 1)".to_owned()), (3, "the same query as in line 1".to_owned())]
        );
    }

    proptest! {
        #[test]
        fn every_invalid_text_has_a_problem_with_a_line(text in "\\PC*") {
            if let Err(problems) = parse(&text) {
                prop_assert!(problems.iter().all(|(line, problem)| *line > 0 && !problem.is_empty()));
            }
        }

        #[test]
        fn questions_round_trip(query in "\\PC*[a-z]\\PC*", name in "[a-z/.:-]{1,20}", grade in 1..=100_u32) {
            let question = EvalQuestion { query, expect: BTreeMap::from([(name, grade)]) };
            let line = serde_json::to_string(&question).unwrap();
            prop_assert_eq!(parse(&line).unwrap(), [(1, question)]);
        }
    }
}
