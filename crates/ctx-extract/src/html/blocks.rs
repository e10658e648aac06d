//! Converts HTML elements to blocks of text for the [`Composer`].

use super::super::composer::{Composer, one_line};
use std::mem;

/// Elements that are not displayed, or surround the text without being part of it.
const LEFT_OUT: &[&str] = &[
    "script", "style", "noscript", "template", "iframe", "object", "embed", "canvas", "svg", "math", "nav",
    "footer", "button", "select", "textarea", "dialog", "head", "audio", "video", "map", "noembed",
    "noframes",
];

/// Void elements: they have no end tag.
const VOID: &[&str] = &[
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track",
    "wbr",
];

/// Inline elements; all others end the line.
const INLINE: &[&str] = &[
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font",
    "i", "img", "ins", "kbd", "label", "mark", "picture", "q", "rp", "rt", "ruby", "s", "samp", "small",
    "source", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
];

/// Elements whose end tag is optional: an opening sibling closes them, up to their container.
const IMPLIED: &[(&str, &[&str], &[&str])] = &[
    ("li", &["li"], &["ul", "ol", "menu"]),
    ("dt", &["dt", "dd"], &["dl"]),
    ("dd", &["dt", "dd"], &["dl"]),
    ("tr", &["tr", "td", "th"], &["table"]),
    ("td", &["td", "th"], &["tr", "table"]),
    ("th", &["td", "th"], &["tr", "table"]),
];

/// Elements allowed in `<head>`; any other one starts the body.
const HEAD: &[&str] = &["title", "meta", "link", "script", "style", "base", "noscript", "template"];

/// Placeholder for `<br>` until white space is collapsed; in the source of a page this character is white space.
const LINE_BREAK: &str = "\u{b}";

/// An open element.
struct Open {
    name: String,
    left_out: bool,
}

#[derive(Default)]
struct Table {
    /// The finished cells of the current row, and the open cell.
    cells: Vec<String>,
    cell: Option<String>,
    /// Whether the table is only used for layout.
    is_layout: bool,
}

/// The state of the conversion: open elements, lists, tables, and the text collected for the next block.
pub(super) struct Blocks<'a, 'b> {
    composer: &'a mut Composer<'b>,
    only_article: bool,
    open: Vec<Open>,
    /// Numbers of open elements that are left out, and of open articles.
    left_out: usize,
    articles: usize,
    /// The open lists: the next number, or `None` for bullets.
    lists: Vec<Option<usize>>,
    /// Whether a list item has been opened and has no text yet.
    item: bool,
    tables: Vec<Table>,
    heading: Option<usize>,
    /// The language of the open `<pre>` element.
    pre: Option<String>,
    line: String,
    first_heading: Option<String>,
}

impl<'a, 'b> Blocks<'a, 'b> {
    pub(super) fn new(composer: &'a mut Composer<'b>, only_article: bool) -> Self {
        Self {
            composer,
            only_article,
            open: Vec::new(),
            left_out: 0,
            articles: 0,
            lists: Vec::new(),
            item: false,
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
        self.open.iter().any(|open| open.name == name)
    }

    pub(super) fn open(&mut self, name: &str, attribute: &dyn Fn(&str) -> Option<String>, ended: bool) {
        if let Some((_, siblings, holders)) = IMPLIED.iter().find(|(known, ..)| *known == name) {
            self.close_sibling(siblings, holders);
        }
        if self.open.last().is_some_and(|open| open.name == "head") && !HEAD.contains(&name) {
            self.pop();
        }
        let is_block = !INLINE.contains(&name);
        if is_block && name != "br" && self.open.last().is_some_and(|open| open.name == "p") {
            self.close("p");
        }
        if VOID.contains(&name) || ended {
            self.pass(name, attribute);
            return;
        }
        let hidden =
            attribute("hidden").is_some() || attribute("aria-hidden").is_some_and(|value| value == "true");
        let role = attribute("role").unwrap_or_default();
        let framing = matches!(&*role, "navigation" | "search" | "contentinfo")
            || name == "aside" && self.articles == 0;
        let left_out = LEFT_OUT.contains(&name) || framing || hidden && name != "body" && name != "html";
        // Beyond the depth limit, the text still counts but the element is ignored.
        if self.open.len() < self.composer.bounds().limits.depth {
            self.open.push(Open { name: name.to_owned(), left_out });
            self.left_out += usize::from(left_out);
            self.articles += usize::from(is_article(name));
        }
        if self.left_out == 0 {
            self.begin(name, attribute);
        }
    }

    /// Handles an element without content.
    fn pass(&mut self, name: &str, attribute: &dyn Fn(&str) -> Option<String>) {
        match name {
            "br" if self.pre.is_some() => self.text("\n"),
            "br" => self.text(LINE_BREAK),
            "img" => {
                if let Some(text) = attribute("alt").filter(|text| !text.trim().is_empty()) {
                    self.text(&format!(" {text} "));
                }
            }
            _ if INLINE.contains(&name) => {}
            _ => self.flush(),
        }
    }

    fn begin(&mut self, name: &str, attribute: &dyn Fn(&str) -> Option<String>) {
        if let Some(pre) = &mut self.pre {
            if let Some(language) = attribute("class").as_deref().and_then(language) {
                *pre = language.to_owned();
            }
            return;
        }
        if !INLINE.contains(&name) {
            self.flush();
        }
        match name {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.heading = name[1..].parse().ok();
                self.lay_out();
            }
            "ul" | "menu" | "ol" if self.lists.len() < self.composer.bounds().limits.depth => {
                self.lists.push((name == "ol").then_some(1));
            }
            "li" | "dd" => self.item = true,
            "table" => {
                self.lay_out();
                if self.tables.len() < self.composer.bounds().limits.depth {
                    self.tables.push(Table::default());
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
                self.pre = Some(language(&class).unwrap_or_default().to_owned());
            }
            "code" => self.text("`"),
            _ => {}
        }
    }

    pub(super) fn close(&mut self, name: &str) {
        if let Some(index) = self.open.iter().rposition(|open| open.name == name) {
            while self.open.len() > index {
                self.pop();
            }
        } else if !INLINE.contains(&name) && self.left_out == 0 && self.pre.is_none() {
            self.flush();
        }
    }

    fn close_sibling(&mut self, siblings: &[&str], holders: &[&str]) {
        let nearest = self.open.iter().rposition(|open| {
            siblings.contains(&open.name.as_str()) || holders.contains(&open.name.as_str())
        });
        if let Some(index) = nearest
            && !holders.contains(&self.open[index].name.as_str())
        {
            // Closes the outermost sibling: closing a row also closes its cell.
            let inside = |open: &Open| siblings.contains(&open.name.as_str());
            let first =
                self.open[..index].iter().rposition(|open| !inside(open)).map_or(0, |before| before + 1);
            while self.open.len() > first {
                self.pop();
            }
        }
    }

    fn pop(&mut self) {
        let Some(open) = self.open.pop() else { return };
        if self.left_out == 0 {
            self.end(&open.name);
        }
        self.left_out -= usize::from(open.left_out);
        if is_article(&open.name) {
            self.flush();
            self.articles -= 1;
        }
    }

    fn end(&mut self, name: &str) {
        if self.pre.is_some() && name != "pre" {
            return;
        }
        if !INLINE.contains(&name) {
            self.flush();
        }
        match name {
            "ul" | "menu" | "ol" => drop(self.lists.pop()),
            "li" | "dd" => self.item = false,
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
        let wanted = self.left_out == 0 && (!self.only_article || self.articles > 0);
        let room = self.composer.bounds().limits.text_bytes.saturating_sub(self.line.len());
        if wanted {
            self.line.push_str(&text[..text.floor_char_boundary(room)]);
        }
    }

    /// Marks the innermost table as a layout table, because it contains more than data.
    fn lay_out(&mut self) {
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
        let text = lines(&line);
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
            _ if self.item => {
                let depth = self.lists.len().saturating_sub(1);
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}.", *number - 1)
                    }
                    _ => "-".to_owned(),
                };
                self.item = false;
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
fn language(class: &str) -> Option<&str> {
    class.split_whitespace().find_map(|class| {
        class.strip_prefix("language-").or_else(|| class.strip_prefix("lang-")).filter(|name| name.len() < 20)
    })
}

/// Collapses white space; keeps line breaks only for `<br>`.
fn lines(text: &str) -> String {
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
