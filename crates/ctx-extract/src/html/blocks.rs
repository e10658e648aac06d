//! Tags to blocks: which element a text stands in, and what becomes of it.

use super::super::composer::{Composer, one_line};
use std::mem;

/// Elements never shown, or shown around the text and not in it.
const LEFT_OUT: &[&str] = &[
    "script", "style", "noscript", "template", "iframe", "object", "embed", "canvas", "svg", "math", "nav",
    "footer", "button", "select", "textarea", "dialog", "head", "audio", "video", "map", "noembed",
    "noframes",
];

/// Elements that have no end.
const VOID: &[&str] = &[
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track",
    "wbr",
];

/// Elements inside a line; all others end it.
const INLINE: &[&str] = &[
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font",
    "i", "img", "ins", "kbd", "label", "mark", "picture", "q", "rp", "rt", "ruby", "s", "samp", "small",
    "source", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
];

/// Elements whose end a document may leave to the next one like it, and what holds them.
const IMPLIED: &[(&str, &[&str], &[&str])] = &[
    ("li", &["li"], &["ul", "ol", "menu"]),
    ("dt", &["dt", "dd"], &["dl"]),
    ("dd", &["dt", "dd"], &["dl"]),
    ("tr", &["tr", "td", "th"], &["table"]),
    ("td", &["td", "th"], &["tr", "table"]),
    ("th", &["td", "th"], &["tr", "table"]),
];

/// What a page's head may hold; anything else begins its body.
const HEAD: &[&str] = &["title", "meta", "link", "script", "style", "base", "noscript", "template"];

/// Stands for `<br>` until spaces are collapsed; in a page it would be a space itself.
const LINE_BREAK: &str = "\u{b}";

/// One element that is open.
struct Open {
    name: String,
    left_out: bool,
}

#[derive(Default)]
struct Table {
    /// Those of the current row that have ended, and the one that has not.
    cells: Vec<String>,
    cell: Option<String>,
    /// It only places things on the page.
    is_layout: bool,
}

/// Where the text that is collected will go.
pub(super) struct Blocks<'a, 'b> {
    composer: &'a mut Composer<'b>,
    only_article: bool,
    open: Vec<Open>,
    /// How many of them are left out, and how many are articles.
    left_out: usize,
    articles: usize,
    /// Lists around this place: the next number, or none for bullets.
    lists: Vec<Option<usize>>,
    /// Whether an item has begun and waits for its text.
    item: bool,
    tables: Vec<Table>,
    heading: Option<usize>,
    /// Language and text of preformatted text.
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
        // Deeper than any real page: the text still counts, the element no longer does.
        if self.open.len() < self.composer.bounds().limits.depth {
            self.open.push(Open { name: name.to_owned(), left_out });
            self.left_out += usize::from(left_out);
            self.articles += usize::from(is_article(name));
        }
        if self.left_out == 0 {
            self.begin(name, attribute);
        }
    }

    /// An element without content.
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
            // The outermost of them: a row takes its cell with it.
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

    /// The table around this place holds more than data.
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

    /// Sends the text collected so far where it belongs.
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
            // Several blocks of one cell are one text.
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

    /// Ends the page; gives its first heading of the highest level.
    pub(super) fn finish(mut self) -> Option<String> {
        self.end_row();
        self.first_heading
    }
}

fn is_article(name: &str) -> bool {
    matches!(name, "main" | "article")
}

/// The language that highlighters write into a class: `language-rust`.
fn language(class: &str) -> Option<&str> {
    class.split_whitespace().find_map(|class| {
        class.strip_prefix("language-").or_else(|| class.strip_prefix("lang-")).filter(|name| name.len() < 20)
    })
}

/// Text with its spaces collapsed; a line ends only where the page says so.
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
