//! Notebooks: text as it is, code fenced, and what the code printed.

use super::bounds::Bounds;
use super::composer::Composer;
use super::{Extracted, Extractor, NoText, Raw, Structure, failed, markdown, text};
use serde::Deserialize;
use serde::de::IgnoredAny;

pub(super) const EXTRACTOR: Extractor = Extractor { accepts, extract, isolated: false };

fn accepts(raw: &Raw) -> bool {
    raw.is_text() && raw.hinted(&["application/x-ipynb+json"], &["ipynb"])
}

#[derive(Deserialize)]
struct Notebook {
    #[serde(default)]
    cells: Vec<Cell>,
    /// Where cells were before the fourth format.
    #[serde(default)]
    worksheets: Vec<Worksheet>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Worksheet {
    #[serde(default)]
    cells: Vec<Cell>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    title: Option<String>,
    kernelspec: Option<Kernel>,
    language_info: Option<Language>,
}

#[derive(Deserialize)]
struct Kernel {
    language: Option<String>,
}

#[derive(Deserialize)]
struct Language {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Cell {
    cell_type: String,
    #[serde(default, alias = "input")]
    source: Text,
    #[serde(default)]
    outputs: Vec<Output>,
}

#[derive(Deserialize)]
struct Output {
    #[serde(default)]
    text: Text,
    data: Option<Data>,
    ename: Option<String>,
    evalue: Option<String>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "text/plain", default)]
    plain: Text,
}

/// One text, or its lines.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Whole(String),
    Lines(Vec<String>),
    Other(IgnoredAny),
}

impl Default for Text {
    fn default() -> Self {
        Self::Whole(String::new())
    }
}

impl Text {
    fn joined(&self) -> String {
        match self {
            Self::Whole(text) => text.clone(),
            Self::Lines(lines) => lines.concat(),
            Self::Other(_) => String::new(),
        }
    }
}

fn extract(raw: &Raw, bounds: &Bounds) -> Result<Extracted, NoText> {
    let text = text::decode(&raw.bytes, None)?;
    let notebook: Notebook = match serde_json::from_str(&text) {
        Ok(notebook) => notebook,
        Err(error) => return failed(format!("it is not a notebook: {error}")),
    };
    let Metadata { title, kernelspec, language_info } = notebook.metadata;
    let language = kernelspec
        .and_then(|kernel| kernel.language)
        .or_else(|| language_info.and_then(|language| language.name))
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        .unwrap_or_default();
    let mut composer = Composer::new(bounds);
    let cells = notebook.cells.iter().chain(notebook.worksheets.iter().flat_map(|sheet| &sheet.cells));
    for cell in cells {
        let source = cell.source.joined();
        match cell.cell_type.as_str() {
            "markdown" => composer.markdown(&source),
            "code" => composer.code(&language, &source),
            _ => composer.paragraph(&source),
        }
        for output in &cell.outputs {
            let printed = printed(output);
            composer.code("", &printed[..printed.floor_char_boundary(bounds.limits.output_bytes)]);
        }
        if composer.is_full() {
            break;
        }
    }
    let (body, note) = composer.finish();
    Ok(Extracted {
        title: title.or_else(|| markdown::title(&body)),
        body,
        note,
        structure: Structure::Markdown,
        content_type: "application/x-ipynb+json".to_owned(),
        ..Extracted::default()
    })
}

fn printed(output: &Output) -> String {
    match (&output.data, &output.ename) {
        (Some(data), _) => data.plain.joined(),
        (None, Some(name)) => format!("{name}: {}", output.evalue.as_deref().unwrap_or_default()),
        (None, None) => output.text.joined(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::extract;
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_become_text_code_and_what_was_printed() {
        let notebook = json!({
            "nbformat": 4, "metadata": {"kernelspec": {"language": "python", "name": "p"}},
            "cells": [
                {"cell_type": "markdown", "source": ["# Tides\n", "When the sea comes."]},
                {"cell_type": "code", "source": "print('é')", "outputs": [
                    {"output_type": "stream", "text": ["é\n"]},
                    {"output_type": "display_data", "data": {"image/png": "aaaa", "text/plain": ["<Figure>"]}},
                    {"output_type": "stream", "text": "x".repeat(10_000)},
                    {"output_type": "error", "ename": "E", "evalue": "bad", "traceback": ["..."]},
                ]},
                {"cell_type": "raw", "source": {"odd": 1}},
            ],
        });
        let extracted = extract(Raw::new(notebook.to_string().into_bytes(), "a.ipynb", None)).unwrap();
        let printed = "x".repeat(8 << 10);
        let expected = format!(
            "# Tides\nWhen the sea comes.\n\n```python\nprint('é')\n```\n\n```\né\n```\n\n```\n<Figure>\n```\n\n```\n{printed}\n```\n\n```\nE: bad\n```\n"
        );
        assert_eq!(extracted.body, expected);
        assert_eq!(extracted.title.as_deref(), Some("Tides"));
    }

    #[test]
    fn what_is_no_notebook_says_why() {
        for text in ["{", "3", "{\"cells\": 3}", &"[".repeat(100_000)] {
            let failed = extract(Raw::new(text.as_bytes().to_vec(), "a.ipynb", None));
            assert!(
                matches!(&failed, Err(NoText::Failed(reason)) if reason.starts_with("it is not a notebook"))
            );
        }
    }
}
