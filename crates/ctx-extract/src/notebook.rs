//! Jupyter notebooks: Markdown cells as they are, code cells fenced, with their text outputs.

use super::bounds::Bounds;
use super::composer::Composer;
use super::{ExtractError, ExtractedText, Extractor, RawDocument, TextStructure, failed, markdown, text};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use std::fmt;
use std::marker::PhantomData;

pub(super) const EXTRACTOR: Extractor = Extractor { accepts, extract, needs_worker: true };

fn accepts(raw: &RawDocument) -> bool {
    raw.is_text() && raw.matches_hints(&["application/x-ipynb+json"], &["ipynb"])
}

#[derive(Deserialize)]
struct Notebook {
    #[serde(default, deserialize_with = "deserialize_non_empty")]
    cells: Vec<Cell>,
    /// The place of cells before notebook format 4.
    #[serde(default, deserialize_with = "deserialize_non_empty")]
    worksheets: Vec<Worksheet>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Worksheet {
    #[serde(default, deserialize_with = "deserialize_non_empty")]
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
    source: MultilineString,
    #[serde(default, deserialize_with = "deserialize_non_empty")]
    outputs: Vec<CellOutput>,
}

/// The text output of a code cell.
#[derive(Deserialize)]
#[serde(from = "RawOutput")]
struct CellOutput(String);

#[derive(Deserialize)]
struct RawOutput {
    #[serde(default)]
    text: MultilineString,
    data: Option<Data>,
    ename: Option<String>,
    evalue: Option<String>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "text/plain", default)]
    plain: MultilineString,
}

impl From<RawOutput> for CellOutput {
    fn from(output: RawOutput) -> Self {
        Self(match (output.data, output.ename) {
            (Some(data), _) => data.plain.0,
            (None, Some(name)) => format!("{name}: {}", output.evalue.unwrap_or_default()),
            (None, None) => output.text.0,
        })
    }
}

/// Elements that may be empty. Empty ones are dropped while parsing, because a small file can contain millions of them.
trait HasText {
    fn has_text(&self) -> bool;
}

impl HasText for CellOutput {
    fn has_text(&self) -> bool {
        !self.0.is_empty()
    }
}

impl HasText for Cell {
    fn has_text(&self) -> bool {
        !self.source.0.is_empty() || !self.outputs.is_empty()
    }
}

impl HasText for Worksheet {
    fn has_text(&self) -> bool {
        !self.cells.is_empty()
    }
}

fn deserialize_non_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + HasText>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    struct NonEmptyVisitor<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de> + HasText> Visitor<'de> for NonEmptyVisitor<T> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a sequence")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
            let mut non_empty = Vec::new();
            while let Some(element) = elements.next_element::<T>()? {
                if element.has_text() {
                    non_empty.push(element);
                }
            }
            Ok(non_empty)
        }
    }

    from.deserialize_seq(NonEmptyVisitor(PhantomData))
}

/// A string or a list of strings, joined; empty for any other JSON value.
#[derive(Default)]
struct MultilineString(String);

impl<'de> Deserialize<'de> for MultilineString {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(MultilineStringVisitor { lines: true }.deserialize(from)?.unwrap_or_default()))
    }
}

/// Deserializes a [`MultilineString`] as a stream; other JSON values are skipped without being buffered.
struct MultilineStringVisitor {
    /// Whether a list of strings is accepted.
    lines: bool,
}

impl<'de> DeserializeSeed<'de> for MultilineStringVisitor {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<String>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MultilineStringVisitor {
    type Value = Option<String>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<String>, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Option<String>, A::Error> {
        let mut text = self.lines.then(String::new);
        while let Some(whole) = &mut text {
            match elements.next_element_seed(Self { lines: false })? {
                Some(Some(line)) => whole.push_str(&line),
                Some(None) => text = None,
                None => return Ok(text),
            }
        }
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Option<String>, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Option<String>, E> {
        Ok(None)
    }
}

fn extract(raw: &RawDocument, bounds: &Bounds) -> Result<ExtractedText, ExtractError> {
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
        let source = &cell.source.0;
        match cell.cell_type.as_str() {
            "markdown" => composer.markdown(source),
            "code" => composer.code(&language, source),
            _ => composer.paragraph(source),
        }
        for output in &cell.outputs {
            let printed = &output.0;
            composer.code("", &printed[..printed.floor_char_boundary(bounds.limits.output_bytes)]);
        }
        if composer.is_full() {
            break;
        }
    }
    let (body, note) = composer.finish();
    Ok(ExtractedText {
        title: title.or_else(|| markdown::title(&body)),
        body,
        note,
        structure: TextStructure::Markdown,
        content_type: "application/x-ipynb+json".to_owned(),
        ..ExtractedText::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples::extract;
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
                {"cell_type": "raw", "source": ["a", 7, [["b"]]]},
                {"cell_type": "raw", "source": null, "outputs": [{}, {"text": 7}]},
            ],
        });
        let extracted =
            extract(RawDocument::new(notebook.to_string().into_bytes(), "a.ipynb", None)).unwrap();
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
            let failed = extract(RawDocument::new(text.as_bytes().to_vec(), "a.ipynb", None));
            assert!(
                matches!(&failed, Err(ExtractError::Failed(reason)) if reason.starts_with("it is not a notebook"))
            );
        }
    }
}
