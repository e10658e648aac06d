//! Checks for each operation of a description that it can be called, and that the request conforms to the document.

use super::conformance::{RawDocument, RawOperation};
use super::corpora::{Corpus, CorpusSpec, SpecForm, display_path};
use super::sample::{PropertySelection, sample};
use ctx_core::{ArgumentSchema, Identifier, ToolName, ToolSpec};
use ctx_openapi::{Survey, SurveyedOperation};
use ctx_types::{Function, Type};
use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The URL that all descriptions are said to come from.
pub(super) const URL: &str = "https://api.example/specs/openapi.json";
/// Maximum length of a function's name.
const NAME_MAX: usize = 64;
/// Up to this number of operations, all operations of a description are checked.
const CHECK_ALL_MAX: usize = 1_500;
/// Of more operations about this number, evenly spread: in the largest descriptions, a check takes a tenth of a second.
const SPREAD_COUNT: usize = 500;

/// Counts of descriptions and operations, and the reasons for failed checks.
#[derive(Default)]
pub(super) struct Coverage {
    pub(super) specs: usize,
    pub(super) loaded: usize,
    pub(super) operations: usize,
    /// Number of checked operations, and of those that can be called.
    pub(super) checked: usize,
    pub(super) callable: usize,
    /// Number of callable operations whose result has a type.
    pub(super) typed: usize,
    /// Reasons why operations cannot be called, each with the number of operations and an example.
    pub(super) reasons: BTreeMap<String, (usize, String)>,
}

impl Coverage {
    pub(super) fn add(&mut self, other: &Self) {
        self.specs += other.specs;
        self.loaded += other.loaded;
        self.operations += other.operations;
        self.checked += other.checked;
        self.callable += other.callable;
        self.typed += other.typed;
        for (reason, (count, example)) in &other.reasons {
            self.reasons.entry(reason.clone()).or_insert_with(|| (0, example.clone())).0 += count;
        }
    }

    fn record_failure(&mut self, reason: &str, count: usize, example: impl FnOnce() -> String) {
        self.reasons.entry(without_names(reason)).or_insert_with(|| (0, example())).0 += count;
    }
}

/// Checks all descriptions in parallel, the largest first.
pub(super) fn check_all(corpora: &[Corpus]) -> Vec<Coverage> {
    let mut jobs: Vec<(usize, &CorpusSpec)> = corpora
        .iter()
        .enumerate()
        .flat_map(|(index, corpus)| corpus.specs.iter().map(move |spec| (index, spec)))
        .collect();
    let bytes = |spec: &CorpusSpec| std::fs::metadata(&spec.file).map_or(0, |about| about.len());
    jobs.sort_by_key(|(_, spec)| std::cmp::Reverse(bytes(spec)));
    let coverages = Mutex::new(corpora.iter().map(|_| Coverage::default()).collect::<Vec<_>>());
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((index, spec)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let coverage = check_spec(spec);
            let mut coverages = coverages.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some(sum) = coverages.get_mut(*index) {
                sum.add(&coverage);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    coverages.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn check_spec(spec: &CorpusSpec) -> Coverage {
    let mut coverage = Coverage { specs: 1, ..Coverage::default() };
    let file = || display_path(&spec.file);
    let text = match spec.text() {
        Ok(text) => text,
        Err(error) => {
            coverage.record_failure("the bench itself cannot read it", 1, || format!("{}: {error}", file()));
            return coverage;
        }
    };
    let raw = RawDocument::new(&text.value);
    let declared_operations = raw.operations();
    coverage.operations = declared_operations.len();
    let survey = match Survey::of(&text.text, URL) {
        Ok(survey) => survey,
        Err(error) => {
            coverage.checked = declared_operations.len();
            coverage.record_failure("cannot be read", declared_operations.len().max(1), || {
                format!("{}: {error}", file())
            });
            return coverage;
        }
    };
    coverage.loaded = 1;
    if matches!(spec.form, SpecForm::Yaml | SpecForm::Json) {
        let published = spec.published().text().ok().and_then(|text| Survey::of(&text.text, URL).ok());
        if published.as_ref() != Some(&survey) {
            coverage.record_failure("is read in another way than as it is published", 1, file);
        }
    }
    let skipped: BTreeMap<&str, &str> = survey.skipped().collect();
    let mut read = survey.operations();
    let mut names = HashSet::new();
    let step = if declared_operations.len() <= CHECK_ALL_MAX {
        1
    } else {
        declared_operations.len().div_ceil(SPREAD_COUNT)
    };
    for (index, declared) in declared_operations.iter().enumerate() {
        let example = || format!("{} {} {}", file(), declared.method, declared.path);
        let full_name = format!("{} {}", declared.method, declared.path);
        let shown = |(name, _): &(&&str, &&str)| {
            *name == &full_name || *name == &declared.path || is_truncated(name, &full_name)
        };
        if let Some((_, why)) = skipped.iter().find(shown) {
            coverage.checked += 1;
            coverage.record_failure(&format!("skipped: {why}"), 1, example);
            continue;
        }
        let Some(operation) = read.next() else {
            coverage.checked += 1;
            coverage.record_failure("lost", 1, example);
            continue;
        };
        let is_new = names.insert(operation.name());
        if index % step != 0 && is_new {
            continue;
        }
        coverage.checked += 1;
        let fault = if is_new {
            check_operation(&raw, declared, operation)
        } else {
            Err("its name is taken".to_owned())
        };
        match fault {
            Ok(is_typed) => {
                coverage.callable += 1;
                coverage.typed += usize::from(is_typed);
            }
            Err(why) => coverage.record_failure(&why, 1, || format!("{}: {why}", example())),
        }
    }
    coverage
}

/// Whether `shown` is a truncated form of `full_name`.
fn is_truncated(shown: &str, full_name: &str) -> bool {
    shown.strip_suffix('…').is_some_and(|beginning| full_name.starts_with(beginning))
}

/// Checks an operation and returns whether its result has a type; the error is the reason why it cannot be called.
fn check_operation(
    raw: &RawDocument<'_>,
    declared: &RawOperation<'_>,
    operation: SurveyedOperation<'_>,
) -> Result<bool, String> {
    let name: Identifier = operation.name().parse().map_err(|_| "its name is no identifier".to_owned())?;
    if name.as_str().len() > NAME_MAX {
        return Err("its name is too long".to_owned());
    }
    let input_schema = operation.input_schema();
    let arguments = ArgumentSchema::compile(input_schema.clone())
        .map_err(|error| format!("the schema of its arguments is refused: {error}"))?;
    for selection in [PropertySelection::Required, PropertySelection::Full] {
        let sample_arguments = sample(&input_schema, selection)
            .ok_or_else(|| format!("{selection:?}: no arguments were found"))?;
        let prepared =
            arguments.prepare(sample_arguments).map_err(|error| format!("{selection:?}: {error}"))?;
        let request = operation.request(&prepared).map_err(|error| format!("{selection:?}: {error}"))?;
        if let Some(violation) = raw.violation(declared, &request) {
            return Err(format!("{selection:?}: {violation}"));
        }
    }
    let output_schema = operation.output_schema();
    if let Some(schema) = &output_schema {
        ArgumentSchema::compile(schema.clone())
            .map_err(|error| format!("the schema of its answer is refused: {error}"))?;
    }
    let provider: Identifier = Identifier::sanitize("api");
    let output_schema = output_schema.map(Into::into);
    let spec = ToolSpec { output_schema, ..ToolSpec::new(name.as_str(), "", input_schema) };
    let function = Function::of(&ToolName::new(provider, name), &spec);
    let result = function.types().resolve(function.result());
    let is_any = *result == Type::Any;
    if *result == Type::Never
        || function.parameters().iter().any(|one| one.required && one.luau_type == Type::Never)
    {
        return Err("a type of it fits nothing".to_owned());
    }
    if is_any && raw.has_described_response(declared) {
        return Err("what it answers is described, and its type is `any`".to_owned());
    }
    Ok(!is_any)
}

/// A reason without names and values, to count equal reasons together.
fn without_names(reason: &str) -> String {
    let outside = reason.split('`').enumerate().map(|(index, part)| if index % 2 == 0 { part } else { "…" });
    let text: String = outside.collect::<Vec<_>>().join("`");
    let words = text
        .split_whitespace()
        .map(|word| if word.contains(['.', '/', '"']) && word.len() > 12 { "…" } else { word });
    words.take(24).collect::<Vec<_>>().join(" ")
}
