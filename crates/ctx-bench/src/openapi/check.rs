//! Checks for each operation of a description that it can be called, and that the request conforms to the document.

use super::corpora::{Corpus, Form, Spec, told};
use super::demands::{Raw, RawOperation};
use super::sample::{Extent, sample};
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
const WHOLE_MAX: usize = 1_500;
/// Of more operations about this number, evenly spread: in the largest descriptions, a check takes a tenth of a second.
const SPREAD: usize = 500;

/// Counts of descriptions and operations, and the reasons for failed checks.
#[derive(Default)]
pub(super) struct Tally {
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

impl Tally {
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

    fn blame(&mut self, reason: &str, count: usize, example: impl FnOnce() -> String) {
        self.reasons.entry(without_names(reason)).or_insert_with(|| (0, example())).0 += count;
    }
}

/// Checks all descriptions in parallel, the largest first.
pub(super) fn all(corpora: &[Corpus]) -> Vec<Tally> {
    let mut jobs: Vec<(usize, &Spec)> = corpora
        .iter()
        .enumerate()
        .flat_map(|(place, corpus)| corpus.specs.iter().map(move |spec| (place, spec)))
        .collect();
    let bytes = |spec: &Spec| std::fs::metadata(&spec.file).map_or(0, |about| about.len());
    jobs.sort_by_key(|(_, spec)| std::cmp::Reverse(bytes(spec)));
    let tallies = Mutex::new(corpora.iter().map(|_| Tally::default()).collect::<Vec<_>>());
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((place, spec)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let tally = one(spec);
            let mut tallies = tallies.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some(sum) = tallies.get_mut(*place) {
                sum.add(&tally);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    tallies.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn one(spec: &Spec) -> Tally {
    let mut tally = Tally { specs: 1, ..Tally::default() };
    let file = || told(&spec.file);
    let text = match spec.text() {
        Ok(text) => text,
        Err(error) => {
            tally.blame("the bench itself cannot read it", 1, || format!("{}: {error}", file()));
            return tally;
        }
    };
    let raw = Raw::new(&text.raw);
    let wanted = raw.operations();
    tally.operations = wanted.len();
    let survey = match Survey::of(&text.text, URL) {
        Ok(survey) => survey,
        Err(error) => {
            tally.checked = wanted.len();
            tally.blame("cannot be read", wanted.len().max(1), || format!("{}: {error}", file()));
            return tally;
        }
    };
    tally.loaded = 1;
    if matches!(spec.form, Form::Yaml | Form::Json) {
        let published = spec.published().text().ok().and_then(|text| Survey::of(&text.text, URL).ok());
        if published.as_ref() != Some(&survey) {
            tally.blame("is read in another way than as it is published", 1, file);
        }
    }
    let skipped: BTreeMap<&str, &str> = survey.skipped().collect();
    let mut read = survey.operations();
    let mut names = HashSet::new();
    let step = if wanted.len() <= WHOLE_MAX { 1 } else { wanted.len().div_ceil(SPREAD) };
    for (place, wanted) in wanted.iter().enumerate() {
        let example = || format!("{} {} {}", file(), wanted.method, wanted.path);
        let what = format!("{} {}", wanted.method, wanted.path);
        let shown =
            |(told, _): &(&&str, &&str)| *told == &what || *told == &wanted.path || is_cut(told, &what);
        if let Some((_, why)) = skipped.iter().find(shown) {
            tally.checked += 1;
            tally.blame(&format!("skipped: {why}"), 1, example);
            continue;
        }
        let Some(operation) = read.next() else {
            tally.checked += 1;
            tally.blame("lost", 1, example);
            continue;
        };
        let is_new = names.insert(operation.name());
        if place % step != 0 && is_new {
            continue;
        }
        tally.checked += 1;
        let fault = if is_new { fault(&raw, wanted, operation) } else { Err("its name is taken".to_owned()) };
        match fault {
            Ok(is_typed) => {
                tally.callable += 1;
                tally.typed += usize::from(is_typed);
            }
            Err(why) => tally.blame(&why, 1, || format!("{}: {why}", example())),
        }
    }
    tally
}

/// Whether `told` is a truncated form of `what`.
fn is_cut(told: &str, what: &str) -> bool {
    told.strip_suffix('…').is_some_and(|beginning| what.starts_with(beginning))
}

/// Checks an operation and returns whether its result has a type; the error is the reason why it cannot be called.
fn fault(raw: &Raw<'_>, wanted: &RawOperation<'_>, operation: SurveyedOperation<'_>) -> Result<bool, String> {
    let name: Identifier = operation.name().parse().map_err(|_| "its name is no identifier".to_owned())?;
    if name.as_str().len() > NAME_MAX {
        return Err("its name is too long".to_owned());
    }
    let input_schema = operation.input_schema();
    let arguments = ArgumentSchema::compile(input_schema.clone())
        .map_err(|error| format!("the schema of its arguments is refused: {error}"))?;
    for extent in [Extent::Required, Extent::Full] {
        let given =
            sample(&input_schema, extent).ok_or_else(|| format!("{extent:?}: no arguments were found"))?;
        let prepared = arguments.prepare(given).map_err(|error| format!("{extent:?}: {error}"))?;
        let sent = operation.request(&prepared).map_err(|error| format!("{extent:?}: {error}"))?;
        if let Some(breach) = raw.breach(wanted, &sent) {
            return Err(format!("{extent:?}: {breach}"));
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
    if *result == Type::Never || function.parameters().iter().any(|one| one.required && one.of == Type::Never)
    {
        return Err("a type of it fits nothing".to_owned());
    }
    if is_any && raw.is_answer_described(wanted) {
        return Err("what it answers is described, and its type is `any`".to_owned());
    }
    Ok(!is_any)
}

/// A reason without names and values, to count equal reasons together.
fn without_names(reason: &str) -> String {
    let outside = reason.split('`').enumerate().map(|(place, part)| if place % 2 == 0 { part } else { "…" });
    let text: String = outside.collect::<Vec<_>>().join("`");
    let words = text
        .split_whitespace()
        .map(|word| if word.contains(['.', '/', '"']) && word.len() > 12 { "…" } else { word });
    words.take(24).collect::<Vec<_>>().join(" ")
}
