//! [`Directory`]: the functions of one catalog, each with a line of text, and a search index over them.

use super::text::{function_line, hint, truncate};
use ctx_core::{Catalog, CatalogEntry, ToolError, ToolName, nearest};
use ctx_rank::{SmallText, SmallTextIndex};
use ctx_types::Function;
use std::borrow::Cow;
use std::ops::Range;

/// Suffix for the line of a function that was seen to answer JSON text.
const JSON_TEXT_MARK: &str = " (returns JSON text: json.decode)";

/// The functions of a catalog, by full name.
pub(crate) struct Directory {
    functions: Vec<FunctionEntry>,
    /// The range of each provider's functions, which are adjacent.
    providers: Vec<(String, Range<usize>)>,
    texts: SmallTextIndex,
}

/// One function of a directory.
pub(super) struct FunctionEntry {
    pub(super) name: ToolName,
    /// `github.create_issue(title, body?) – Opens an issue.`
    pub(super) line: String,
    pub(super) tags: Vec<String>,
}

impl FunctionEntry {
    /// The line, with a suffix if the function was seen to answer JSON text. That is looked up for each
    /// answer, because it is learnt while the catalog is in use.
    pub(super) fn marked_line(&self, catalog: &Catalog) -> Cow<'_, str> {
        match catalog.returns_json_text(&self.name) {
            true => Cow::Owned(format!("{}{JSON_TEXT_MARK}", self.line)),
            false => Cow::Borrowed(&self.line),
        }
    }
}

impl Directory {
    /// Indexes a catalog. CPU-bound: call it on the blocking thread pool.
    pub(super) fn build(catalog: &Catalog) -> Self {
        let mut functions = Vec::new();
        let mut search_texts = Vec::new();
        let mut providers: Vec<(String, Range<usize>)> = Vec::new();
        for (index, CatalogEntry { name, spec, .. }) in catalog.functions().enumerate() {
            let function = Function::with_nearest_types(name, spec);
            let name_words = format!("{} {}", name.provider(), name.tool());
            let about = format!("{}\n{}", spec.title.as_deref().unwrap_or_default(), spec.description);
            search_texts.push((name_words, about, search_detail(&function, &spec.tags)));
            functions.push(FunctionEntry {
                name: name.clone(),
                line: function_line(&function),
                tags: spec.tags.clone(),
            });
            match providers.last_mut().filter(|(last, _)| last == name.provider().as_str()) {
                Some((_, range)) => range.end = index + 1,
                None => providers.push((name.provider().to_string(), index..index + 1)),
            }
        }
        let texts: Vec<SmallText<'_>> = search_texts
            .iter()
            .map(|(name, about, detail)| SmallText { name, description: about, detail })
            .collect();
        Self { functions, providers, texts: SmallTextIndex::new(&texts) }
    }

    /// All functions, grouped by provider.
    pub(super) fn all(&self) -> &[FunctionEntry] {
        &self.functions
    }

    /// The functions of one provider; an error suggests the most similar name.
    pub(super) fn provider(&self, name: &str) -> Result<&[FunctionEntry], ToolError> {
        self.range_of(name).map(|range| self.functions_in(range))
    }

    /// The functions that match a query, best first.
    pub(super) fn search(
        &self,
        query: &str,
        provider: Option<&str>,
        limit: usize,
    ) -> Result<Vec<&FunctionEntry>, ToolError> {
        let all = 0..self.functions.len();
        let indices = provider.map_or(Ok(&all), |provider| self.range_of(provider))?;
        let found = self.texts.best(query, limit, |index| indices.contains(&index));
        Ok(found.into_iter().filter_map(|index| self.functions.get(index)).collect())
    }

    fn functions_in(&self, range: &Range<usize>) -> &[FunctionEntry] {
        self.functions.get(range.clone()).unwrap_or_default()
    }

    fn range_of(&self, provider: &str) -> Result<&Range<usize>, ToolError> {
        let known = self.providers.iter().find(|(name, _)| name == provider);
        known.map(|(_, range)| range).ok_or_else(|| {
            let similar = nearest(provider, self.providers.iter().map(|(name, _)| name.as_str()));
            ToolError::not_found(format!("no provider is called {}{}", truncate(provider), hint(similar)))
        })
    }
}

/// Further search text: the names of parameters, types and fields, tags, and the descriptions of parameters.
fn search_detail(function: &Function, tags: &[String]) -> String {
    let mut words: Vec<&str> = function.names();
    words.extend(tags.iter().map(String::as_str));
    words.extend(function.parameters().iter().filter_map(|field| field.notes.description.as_deref()));
    words.join("\n")
}
