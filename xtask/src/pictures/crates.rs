//! The picture of the crates in ARCHITECTURE.md: their purposes, from the list in that file, and their dependencies,
//! which `tidy` checks.

use super::diagram::{Area, Diagram, FONT_SIZE};
use super::layers::{Arrow, Drawing, Sizes, layout, without_implied};
use super::svg::{number, wrapped};
use crate::run::root;
use crate::tidy::ARROWS;
use anyhow::{Context, Result};
use std::fs;

/// The crate from which the picture starts; it shows all that this one depends on.
const PROGRAM: &str = "ctx";

/// The file with the purposes: a line for each crate, `name  PURPOSE: more; and more`.
const LIST: &str = "ARCHITECTURE.md";

const SIZES: Sizes = Sizes { node_width: 190.0, gap: 13.0 };
const ROW_GAP: f64 = 46.0;
const MARGIN: f64 = 20.0;
/// How much wider bold text is.
const BOLD_WIDTH: f64 = 1.15;
const LINE_HEIGHT: f64 = 17.0;
const TEXT_LEFT: f64 = 11.0;
/// From the top of a box to the baselines of the name and of the first line after it.
const NAME_TOP: f64 = 22.0;
const TEXT_TOP: f64 = 42.0;
/// Lines of the purpose and of what follows it.
const LINES_MAX: usize = 5;

/// Names that keep their letters where a purpose is in capitals.
const NAMES: [&str; 5] = ["APIs", "HTTP", "JSON", "Luau", "MCP"];

/// A crate of the picture.
struct CrateBox {
    name: &'static str,
    /// Lines that fit.
    purpose: Vec<String>,
    details: Vec<String>,
}

/// Draws the crates in layers, as an SVG.
pub(super) fn draw_crates() -> Result<String> {
    let list = fs::read_to_string(root().join(LIST))?;
    let names = reachable();
    let boxes = names.iter().map(|name| crate_box(name, &list)).collect::<Result<Vec<_>>>()?;
    let index = |name: &str| names.iter().position(|known| *known == name);
    let edges: Vec<(usize, usize)> = names
        .iter()
        .enumerate()
        .flat_map(|(from, name)| dependencies(name).iter().filter_map(move |to| Some((from, index(to)?))))
        .collect();
    let edges = without_implied(names.len(), &edges);
    Ok(draw(&boxes, &layout(names.len(), &edges, &SIZES)))
}

fn dependencies(name: &str) -> &'static [&'static str] {
    ARROWS.iter().find(|(known, _)| *known == name).map_or(&[], |(_, dependencies)| dependencies)
}

/// The program and all crates that it depends on.
fn reachable() -> Vec<&'static str> {
    let mut names = vec![PROGRAM];
    let mut next = 0;
    while let Some(name) = names.get(next) {
        let new: Vec<_> = dependencies(name).iter().filter(|name| !names.contains(name)).collect();
        names.extend(new);
        next += 1;
    }
    names
}

/// A crate with its line of the list.
fn crate_box(name: &'static str, list: &str) -> Result<CrateBox> {
    let mut lines = list.lines().skip_while(|line| *line != "crates/");
    let entry = lines
        .by_ref()
        .take_while(|line| *line != "```")
        .find_map(|line| line.strip_prefix("  ")?.strip_prefix(name)?.strip_prefix(' ').map(str::trim_start));
    let entry = entry.with_context(|| format!("{LIST} does not list the crate {name}"))?;
    let (purpose, details) = entry.split_once(": ").unwrap_or((entry, ""));
    let details = details.split_once("; ").map_or(details, |(first, _)| first);
    let width = SIZES.node_width - 2.0 * TEXT_LEFT;
    let purpose = wrapped(&in_sentence_case(purpose), width / BOLD_WIDTH, FONT_SIZE, LINES_MAX);
    let details = wrapped(details, width, FONT_SIZE, LINES_MAX - purpose.len());
    Ok(CrateBox { name, purpose, details })
}

/// The text with a capital at its beginning, and without words in capitals, except for names.
fn in_sentence_case(text: &str) -> String {
    let is_capital = |word: &str| !word.chars().any(char::is_lowercase);
    let words = text.split(' ').map(|word| match NAMES.iter().find(|name| name.eq_ignore_ascii_case(word)) {
        Some(name) => (*name).to_owned(),
        None if is_capital(word) => word.to_lowercase(),
        None => word.to_owned(),
    });
    let text = words.collect::<Vec<_>>().join(" ");
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// A row of the picture: its upper and its lower edge.
#[derive(Clone, Copy)]
struct RowExtent {
    top: f64,
    bottom: f64,
}

fn draw(boxes: &[CrateBox], drawing: &Drawing) -> String {
    let rows = rows(boxes, drawing);
    let height = rows.last().map_or(0.0, |row| row.bottom) + MARGIN;
    let mut diagram = Diagram::new("The crates and their dependencies", drawing.width + 2.0 * MARGIN, height);
    for arrow in &drawing.arrows {
        diagram.arrow(&curve(arrow, &rows[drawing.positions[arrow.from].row..]));
    }
    for (crate_box, place) in boxes.iter().zip(&drawing.positions) {
        let RowExtent { top, bottom } = rows[place.row];
        let x = MARGIN + place.x - SIZES.node_width / 2.0;
        draw_box(crate_box, Area { x, y: top, width: SIZES.node_width, height: bottom - top }, &mut diagram);
    }
    diagram.finish()
}

/// The rows, each as high as its longest text.
fn rows(boxes: &[CrateBox], drawing: &Drawing) -> Vec<RowExtent> {
    let mut rows = Vec::new();
    let mut top = MARGIN;
    for row in 0..drawing.rows {
        let here = boxes.iter().zip(&drawing.positions).filter(|(_, place)| place.row == row);
        let lines =
            here.map(|(crate_box, _)| crate_box.purpose.len() + crate_box.details.len()).max().unwrap_or(0);
        let bottom = top + TEXT_TOP + (lines as f64 - 1.0) * LINE_HEIGHT + TEXT_LEFT;
        rows.push(RowExtent { top, bottom });
        top = bottom + ROW_GAP;
    }
    rows
}

fn draw_box(crate_box: &CrateBox, area: Area, diagram: &mut Diagram) {
    diagram.area(if crate_box.name == PROGRAM { "r" } else { "c" }, area);
    let x = area.x + TEXT_LEFT;
    diagram.text("n", x, area.y + NAME_TOP, crate_box.name);
    let purpose = crate_box.purpose.iter().map(|line| ("t", line));
    let lines = purpose.chain(crate_box.details.iter().map(|line| ("", line)));
    for (place, (class, line)) in lines.enumerate() {
        diagram.text(class, x, area.y + TEXT_TOP + place as f64 * LINE_HEIGHT, line);
    }
}

/// A curve from row to row, straight where it passes one; `rows` begins with the row of its start.
fn curve(arrow: &Arrow, rows: &[RowExtent]) -> String {
    let mut x = MARGIN + arrow.xs[0];
    let mut path = format!("M{} {}", number(x), number(rows[0].bottom));
    let last = arrow.xs.len() - 1;
    for (place, next) in arrow.xs.iter().enumerate().skip(1) {
        let next = MARGIN + next;
        let (above, row) = (rows[place - 1], rows[place]);
        let middle = number(above.bottom.midpoint(row.top));
        let (from, to) = (number(x), number(next));
        path.push_str(&format!("C{from} {middle} {to} {middle} {to} {}", number(row.top)));
        if place < last {
            path.push_str(&format!("V{}", number(row.bottom)));
        }
        x = next;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_of_the_program_has_a_purpose() {
        let list = fs::read_to_string(root().join(LIST)).unwrap();
        for name in reachable() {
            let crate_box = crate_box(name, &list).unwrap();
            assert!(!crate_box.purpose.is_empty(), "{name}");
        }
        assert!(crate_box("ctx-nowhere", &list).is_err());
    }

    #[test]
    fn capitals_become_words() {
        assert_eq!(in_sentence_case("JSON SCHEMA AS LUAU TYPES"), "JSON schema as Luau types");
        assert_eq!(in_sentence_case("RANKING of documents"), "Ranking of documents");
        assert_eq!(in_sentence_case("APIS"), "APIs");
    }
}
