//! Converts HTML elements to blocks of text for the [`Composer`].

use super::super::composer::{Composer, one_line};
use std::mem;

/// Elements that are not displayed, or surround the text without being part of it.
const SKIPPED_ELEMENTS: &[&str] = &[
    "script", "style", "noscript", "template", "iframe", "object", "embed", "canvas", "svg", "math", "nav",
    "footer", "button", "select", "textarea", "dialog", "head", "audio", "video", "map", "noembed",
    "noframes",
];

/// Void elements: they have no end tag.
const VOID_ELEMENTS: &[&str] = &[
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track",
    "wbr",
];

/// Inline elements; all others end the line.
const INLINE_ELEMENTS: &[&str] = &[
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font",
    "i", "img", "ins", "kbd", "label", "mark", "picture", "q", "rp", "rt", "ruby", "s", "samp", "small",
    "source", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
];

/// Elements whose end tag is optional: an opening sibling closes them, up to their container.
const IMPLIED_END_TAGS: &[(&str, &[&str], &[&str])] = &[
    ("li", &["li"], &["ul", "ol", "menu"]),
    ("dt", &["dt", "dd"], &["dl"]),
    ("dd", &["dt", "dd"], &["dl"]),
    ("tr", &["tr", "td", "th"], &["table"]),
    ("td", &["td", "th"], &["tr", "table"]),
    ("th", &["td", "th"], &["tr", "table"]),
];

/// Elements allowed in `<head>`; any other one starts the body.
const HEAD_ELEMENTS: &[&str] = &["title", "meta", "link", "script", "style", "base", "noscript", "template"];

/// Placeholder for `<br>` until white space is collapsed; in the source of a page this character is white space.
const LINE_BREAK: &str = "\u{b}";

/// An open element.
struct OpenElement {
    name: String,
    is_skipped: bool,
}

#[derive(Default)]
struct OpenTable {
    /// The finished cells of the current row, and the open cell.
    cells: Vec<String>,
    cell: Option<String>,
    /// Whether the table is only used for layout.
    is_layout: bool,
}

/// The state of the conversion: open elements, lists, tables, and the text collected for the next block.
pub(super) struct BlockBuilder<'a, 'b> {
    composer: &'a mut Composer<'b>,
    only_article: bool,
    open_elements: Vec<OpenElement>,
    /// Numbers of open elements that are skipped, and of open articles.
    skipped_depth: usize,
    article_depth: usize,
    /// The open lists: the next number, or `None` for bullets.
    lists: Vec<Option<usize>>,
    /// Whether a list item has been opened and has no text yet.
    item_pending: bool,
    tables: Vec<OpenTable>,
    heading: Option<usize>,
    /// The language of the open `<pre>` element.
    pre: Option<String>,
    line: String,
    first_heading: Option<String>,
}

impl<'a, 'b> BlockBuilder<'a, 'b> {
    pub(super) fn new(composer: &'a mut Composer<'b>, only_article: bool) -> Self {
        Self {
            composer,
            only_article,
            open_elements: Vec::new(),
            skipped_depth: 0,
            article_depth: 0,
            lists: Vec::new(),
            item_pending: false,
            tables: Vec::new(),
            heading: None,
            pre: None,
            line: String::new(),
            first_heading: None,
        }
    }

    pub(super) fn is_full(&mut self) -> bool {
        self.composer.is_full()
    }

    pub(super) fn is_in(&self, name: &str) -> bool {
        self.open_elements.iter().any(|element| element.name == name)
    }

    pub(super) fn open(&mut self, name: &str, attribute: &dyn Fn(&str) -> Option<String>, is_closed: bool) {
        if let Some((_, siblings, containers)) = IMPLIED_END_TAGS.iter().find(|(known, ..)| *known == name) {
            self.close_sibling(siblings, containers);
        }
        if self.open_elements.last().is_some_and(|element| element.name == "head")
            && !HEAD_ELEMENTS.contains(&name)
        {
            self.pop();
        }
        let is_block = !INLINE_ELEMENTS.contains(&name);
        if is_block && name != "br" && self.open_elements.last().is_some_and(|element| element.name == "p") {
            self.close("p");
        }
        if VOID_ELEMENTS.contains(&name) || is_closed {
            self.handle_void_element(name, attribute);
            return;
        }
        let hidden =
            attribute("hidden").is_some() || attribute("aria-hidden").is_some_and(|value| value == "true");
        let role = attribute("role").unwrap_or_default();
        let is_page_chrome = matches!(&*role, "navigation" | "search" | "contentinfo")
            || name == "aside" && self.article_depth == 0;
        let is_skipped =
            SKIPPED_ELEMENTS.contains(&name) || is_page_chrome || hidden && name != "body" && name != "html";
        // Beyond the depth limit, the text still counts but the element is ignored.
        if self.open_elements.len() < self.composer.bounds().limits.depth {
            self.open_elements.push(OpenElement { name: name.to_owned(), is_skipped });
            self.skipped_depth += usize::from(is_skipped);
            self.article_depth += usize::from(is_article(name));
        }
        if self.skipped_depth == 0 {
            self.start_element(name, attribute);
        }
    }

    /// Handles an element without content.
    fn handle_void_element(&mut self, name: &str, attribute: &dyn Fn(&str) -> Option<String>) {
        match name {
            "br" if self.pre.is_some() => self.text("\n"),
            "br" => self.text(LINE_BREAK),
            "img" => {
                if let Some(text) = attribute("alt").filter(|text| !text.trim().is_empty()) {
                    self.text(&format!(" {text} "));
                }
            }
            _ if INLINE_ELEMENTS.contains(&name) => {}
            _ => self.flush(),
        }
    }

    fn start_element(&mut self, name: &str, attribute: &dyn Fn(&str) -> Option<String>) {
        if let Some(pre) = &mut self.pre {
            if let Some(language) = attribute("class").as_deref().and_then(highlight_language) {
                *pre = language.to_owned();
            }
            return;
        }
        if !INLINE_ELEMENTS.contains(&name) {
            self.flush();
        }
        match name {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.heading = name[1..].parse().ok();
                self.mark_layout_table();
            }
            "ul" | "menu" | "ol" if self.lists.len() < self.composer.bounds().limits.depth => {
                self.lists.push((name == "ol").then_some(1));
            }
            "li" | "dd" => self.item_pending = true,
            "table" => {
                self.mark_layout_table();
                if self.tables.len() < self.composer.bounds().limits.depth {
                    self.tables.push(OpenTable::default());
                }
            }
            "tr" => self.end_row(),
            "td" | "th" => {
                self.end_cell();
                if let Some(table) = self.tables.last_mut() {
                    table.cell = Some(String::new());
                }
            }
            "pre" => {
                let class = attribute("class").unwrap_or_default();
                self.pre = Some(highlight_language(&class).unwrap_or_default().to_owned());
            }
            "code" => self.text("`"),
            _ => {}
        }
    }

    pub(super) fn close(&mut self, name: &str) {
        if let Some(index) = self.open_elements.iter().rposition(|element| element.name == name) {
            while self.open_elements.len() > index {
                self.pop();
            }
        } else if !INLINE_ELEMENTS.contains(&name) && self.skipped_depth == 0 && self.pre.is_none() {
            self.flush();
        }
    }

    fn close_sibling(&mut self, siblings: &[&str], containers: &[&str]) {
        let nearest = self.open_elements.iter().rposition(|element| {
            siblings.contains(&element.name.as_str()) || containers.contains(&element.name.as_str())
        });
        if let Some(index) = nearest
            && !containers.contains(&self.open_elements[index].name.as_str())
        {
            // Closes the outermost sibling: closing a row also closes its cell.
            let inside = |element: &OpenElement| siblings.contains(&element.name.as_str());
            let first = self.open_elements[..index]
                .iter()
                .rposition(|element| !inside(element))
                .map_or(0, |before| before + 1);
            while self.open_elements.len() > first {
                self.pop();
            }
        }
    }

    fn pop(&mut self) {
        let Some(element) = self.open_elements.pop() else { return };
        if self.skipped_depth == 0 {
            self.end_element(&element.name);
        }
        self.skipped_depth -= usize::from(element.is_skipped);
        if is_article(&element.name) {
            self.flush();
            self.article_depth -= 1;
        }
    }

    fn end_element(&mut self, name: &str) {
        if self.pre.is_some() && name != "pre" {
            return;
        }
        if !INLINE_ELEMENTS.contains(&name) {
            self.flush();
        }
        match name {
            "ul" | "menu" | "ol" => drop(self.lists.pop()),
            "li" | "dd" => self.item_pending = false,
            "code" => self.text("`"),
            "td" | "th" => self.end_cell(),
            "tr" => self.end_row(),
            "table" => {
                self.end_row();
                self.tables.pop();
            }
            _ => {}
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        let is_kept = self.skipped_depth == 0 && (!self.only_article || self.article_depth > 0);
        let room = self.composer.bounds().limits.text_bytes.saturating_sub(self.line.len());
        if is_kept {
            self.line.push_str(&text[..text.floor_char_boundary(room)]);
        }
    }

    /// Marks the innermost table as a layout table, because it contains more than data.
    fn mark_layout_table(&mut self) {
        if let Some(table) = self.tables.last_mut() {
            table.is_layout = true;
            let mut cells = mem::take(&mut table.cells);
            cells.extend(table.cell.take());
            cells.iter().for_each(|cell| self.composer.paragraph(cell));
        }
    }

    fn end_cell(&mut self) {
        self.flush();
        let cells_max = self.composer.bounds().limits.cells;
        if let Some(table) = self.tables.last_mut()
            && let Some(cell) = table.cell.take()
            && table.cells.len() < cells_max
        {
            table.cells.push(cell);
        }
    }

    fn end_row(&mut self) {
        self.end_cell();
        if let Some(table) = self.tables.last_mut() {
            self.composer.row(&mem::take(&mut table.cells));
        }
    }

    /// Adds the collected text to its block: code, heading, cell, item or paragraph.
    fn flush(&mut self) {
        let line = mem::take(&mut self.line);
        if let Some(language) = self.pre.take() {
            self.composer.code(&language, &line);
            return;
        }
        let heading = self.heading.take();
        let text = collapse_white_space(&line);
        if let Some(level) = heading {
            if level == 1 && self.first_heading.is_none() && !text.is_empty() {
                self.first_heading = Some(one_line(&text));
            }
            self.composer.heading(level, &text);
            return;
        }
        match self.tables.last_mut().map(|table| (table.is_layout, &mut table.cell)) {
            // Several blocks of one cell become one text.
            Some((false, Some(cell))) => {
                cell.push(' ');
                cell.push_str(&text);
            }
            _ if text.is_empty() => {}
            _ if self.item_pending => {
                let depth = self.lists.len().saturating_sub(1);
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}.", *number - 1)
                    }
                    _ => "-".to_owned(),
                };
                self.item_pending = false;
                self.composer.item(depth, &marker, &text);
            }
            _ => self.composer.paragraph(&text),
        }
    }

    /// Ends the page; returns its first heading of level 1.
    pub(super) fn finish(mut self) -> Option<String> {
        self.end_row();
        self.first_heading
    }
}

fn is_article(name: &str) -> bool {
    matches!(name, "main" | "article")
}

/// The language in a class name of syntax highlighters: `language-rust`.
fn highlight_language(class: &str) -> Option<&str> {
    class.split_whitespace().find_map(|class| {
        class.strip_prefix("language-").or_else(|| class.strip_prefix("lang-")).filter(|name| name.len() < 20)
    })
}

/// Collapses white space; keeps line breaks only for `<br>`.
fn collapse_white_space(text: &str) -> String {
    let mut result = String::new();
    for line in text.split(LINE_BREAK) {
        let line = one_line(line);
        if !result.is_empty() && !line.is_empty() {
            result.push('\n');
        }
        result.push_str(&line);
    }
    result
}
