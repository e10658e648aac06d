//! Retrieval quality (nDCG, recall, MRR) on BEIR collections, over HTTP.
//!
//! A collection is a folder in the format of BEIR: documents, queries, and relevance grades of some documents for some
//! queries. Collections have their own licences and are not part of this repository.

use super::{corpus, process};
use anyhow::{Context, Result, bail, ensure};
use ctx_core::RetrievalMetrics;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};
use xtask::{HttpConnection, ServerProcess};

const MODES: [&str; 3] = ["keyword", "semantic", "hybrid"];
/// Number of results per query; the metrics consider no more.
const LIMIT: usize = 10;
/// The modification time of all documents, since the Unix epoch.
const MODIFIED_AT: Duration = Duration::from_secs(1_700_000_000);

/// The options of `retrieval`.
#[derive(Debug, Default)]
pub(super) struct Options {
    data: PathBuf,
    collection: Option<String>,
    model: Option<String>,
    keep: bool,
}

impl Options {
    pub(super) fn read(arguments: &[&str]) -> Result<Self> {
        let mut options = Self::default();
        let mut left = arguments.iter().copied();
        while let Some(name) = left.next() {
            let mut value = || left.next().with_context(|| format!("{name} needs a value"));
            match name {
                "--data" => options.data = PathBuf::from(value()?),
                "--collection" => options.collection = Some(value()?.to_owned()),
                "--model" => options.model = Some(value()?.to_owned()),
                "--keep" => options.keep = true,
                _ => bail!("retrieval has no option `{name}`"),
            }
        }
        ensure!(options.data.is_dir(), "--data must name a folder of collections");
        Ok(options)
    }

    /// The `[embedding]` section for the model; empty for the default.
    fn settings(&self) -> Result<&'static str> {
        Ok(match self.model.as_deref() {
            None => "",
            Some("none") => "[embedding]\nprovider = \"disabled\"\n",
            Some("fast") => "[embedding]\nmodel = \"fast\"\n",
            Some("best") => "[embedding]\nmodel = \"best\"\n",
            Some(other) => bail!("there is no model `{other}`; known: fast, best, none"),
        })
    }
}

/// A query with relevance grades.
struct JudgedQuery {
    text: String,
    /// Grades by file name.
    expected: HashMap<String, u32>,
}

pub(super) fn measure(binary: &Path, options: &Options) -> Result<()> {
    let settings = options.settings()?;
    let mut folders: Vec<PathBuf> = fs::read_dir(&options.data)?
        .map(|entry| Ok(entry?.path()))
        .filter(|path| path.as_ref().is_ok_and(|path| path.join("corpus.jsonl").is_file()))
        .collect::<Result<_>>()?;
    folders.sort();
    let name = |folder: &Path| folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    folders.retain(|folder| options.collection.as_ref().is_none_or(|selected| *selected == name(folder)));
    ensure!(!folders.is_empty(), "no such collection in {}", options.data.display());

    let mut table = String::new();
    for folder in folders {
        let (name, queries) = (name(&folder), judged_queries(&folder)?);
        let workspace = corpus::folder(&format!("retrieval-{name}"));
        let documents = write_documents(&folder, &workspace, settings)?;
        if !options.keep {
            corpus::reset(&workspace)?;
        }
        let mut cost = process::cost(Command::new(binary).arg("sync").current_dir(&workspace))?.wall;
        if matches!(options.model.as_deref(), Some("fast" | "best")) {
            let mut embed = Command::new(binary);
            cost += process::cost(embed.args(["embed", "pending"]).current_dir(&workspace))?.wall;
        }
        println!("{name}: {documents} documents indexed in {cost:.1} s");
        for mode in MODES {
            let row = run_queries(binary, &workspace, mode, &queries)?;
            writeln!(table, "| {name} | {mode} | {row} |")?;
        }
    }
    println!("\n| collection | mode | nDCG@10 | recall@10 | MRR@10 | questions | seconds |");
    println!("|---|---|---|---|---|---|---|\n{table}");
    println!("Gains are the grades themselves (linear), as in BEIR's own figures.");
    Ok(())
}

/// Runs all queries in one mode; returns the cells of a table row.
fn run_queries(binary: &Path, workspace: &Path, mode: &str, queries: &[JudgedQuery]) -> Result<String> {
    let mut server = ServerProcess::of(binary, workspace)?;
    let mut connection = HttpConnection::open(&server.address)?;
    let started = Instant::now();
    let mut figures = Vec::with_capacity(queries.len());
    for query in queries {
        let body = json!({ "query": query.text, "mode": mode, "limit": LIMIT }).to_string();
        let (status, answer) = connection.post("/tools/search", &body)?;
        let answer: Value = serde_json::from_str(&answer)?;
        if answer["error"]["code"] == "embeddings_disabled" {
            server.stop()?;
            return Ok("unavailable: no embeddings | | | | ".to_owned());
        }
        ensure!(status == 200, "{status} {answer}");
        let results = answer["results"].as_array().context("no results")?;
        let found: Vec<String> = results.iter().map(|hit| text(hit, "source_id")).collect();
        figures.push(RetrievalMetrics::of(&found, &query.expected));
    }
    let seconds = started.elapsed().as_secs_f64();
    drop(connection);
    server.stop()?;
    let RetrievalMetrics { ndcg_10, recall_10, mrr_10, .. } = RetrievalMetrics::mean(&figures);
    Ok(format!("{ndcg_10:.3} | {recall_10:.3} | {mrr_10:.3} | {} | {seconds:.1}", queries.len()))
}

/// Writes a file per document and returns their number. Unchanged files are not written again, so that a kept index
/// stays current.
fn write_documents(collection: &Path, workspace: &Path, settings: &str) -> Result<usize> {
    let folder = workspace.join("docs");
    fs::create_dir_all(&folder)?;
    corpus::configure(workspace, settings)?;
    let documents = lines(&collection.join("corpus.jsonl"))?;
    for document in &documents {
        let title = text(document, "title");
        let heading = if title.is_empty() { String::new() } else { format!("# {title}\n\n") };
        let content = format!("{heading}{}\n", text(document, "text"));
        let path = folder.join(file_name(&text(document, "_id")));
        if fs::read(&path).ok().as_deref() != Some(content.as_bytes()) {
            fs::write(&path, content)?;
            // Equal scores are ordered by time, and then by id. With the same time for all, the order is stable.
            File::options().write(true).open(path)?.set_modified(SystemTime::UNIX_EPOCH + MODIFIED_AT)?;
        }
    }
    Ok(documents.len())
}

/// The queries that have a grade for at least one document.
fn judged_queries(collection: &Path) -> Result<Vec<JudgedQuery>> {
    let mut grades: BTreeMap<String, HashMap<String, u32>> = BTreeMap::new();
    let table = fs::read_to_string(collection.join("qrels.tsv"))?;
    // The first line contains the column names.
    for line in table.lines().skip(1) {
        let [query, document, grade] = line.split('\t').collect::<Vec<_>>()[..] else {
            bail!("qrels.tsv: `{line}` has not three columns");
        };
        // Some collections use negative grades for irrelevant documents.
        let grade: i64 = grade.trim().parse().with_context(|| format!("qrels.tsv: `{line}`"))?;
        let grade = u32::try_from(grade.max(0))?;
        grades.entry(query.to_owned()).or_default().insert(file_name(document), grade);
    }
    let all = lines(&collection.join("queries.jsonl"))?;
    let judged = |line: &Value| {
        let expected = grades.remove(&text(line, "_id"))?;
        Some(JudgedQuery { text: text(line, "text"), expected })
    };
    Ok(all.iter().filter_map(judged).collect())
}

fn lines(path: &Path) -> Result<Vec<Value>> {
    let content = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    content.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

/// A file name that is unique for the id.
fn file_name(id: &str) -> String {
    let mut name = String::new();
    for char in id.chars() {
        if char.is_ascii_alphanumeric() || char == '-' {
            name.push(char);
        } else {
            name.push_str(&format!("_{:x}_", u32::from(char)));
        }
    }
    format!("{name}.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_has_a_file_of_its_own() {
        let names: Vec<String> = ["a/b", "a_b", "a", "..", "a_2f_b", "é"].map(file_name).to_vec();
        let distinct: std::collections::HashSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
        assert!(names.iter().all(|name| !name.contains('/') && !name.starts_with('.')));
    }

    #[test]
    fn a_collection_is_read_as_its_tables_say() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("queries.jsonl"),
            "{\"_id\": \"1\", \"text\": \"wings\"}\n{\"_id\": \"2\", \"text\": \"unjudged\"}\n",
        )
        .unwrap();
        fs::write(
            folder.path().join("qrels.tsv"),
            "query-id\tcorpus-id\tscore\n1\t184\t4\n1\t29\t0\n1\t7\t-1\n",
        )
        .unwrap();
        let queries = judged_queries(folder.path()).unwrap();
        assert_eq!(queries.len(), 1);
        assert_eq!(queries[0].text, "wings");
        assert_eq!(queries[0].expected["184.md"], 4);
        assert_eq!((queries[0].expected["29.md"], queries[0].expected["7.md"]), (0, 0));
    }
}
