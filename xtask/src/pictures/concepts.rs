//! The overview of the guide's page on concepts: sources, tools, the catalog and its callers.
//!
//! Every box of a source or a tool names its sections of `ctx.toml`. Drawing fails if a section is no longer
//! in the settings reference, or if the reference has a kind of source or of tool that no box shows.

use super::diagram::{Area, Diagram};
use super::svg::number;
use crate::run::root;
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::fs;

/// The generated reference of all sections.
const REFERENCE: &str = "docs/reference/config.md";

/// The sections that add sources or tools begin with one of these.
const SHOWN: [&str; 4] = ["connectors.", "tools.", "mcp_servers", "apis"];

/// Sections about a part of another one.
const NOT_SHOWN: [&str; 1] = ["mcp_servers.<name>.oauth"];

const WIDTH: f64 = 880.0;
const HEIGHT: f64 = 560.0;
const MARGIN: f64 = 20.0;
const GAP: f64 = 12.0;

/// A kind of source or tool, and the section that configures it.
struct ConfiguredItem {
    title: &'static str,
    details: &'static str,
    section: &'static str,
}

const SOURCES: [ConfiguredItem; 4] = [
    ConfiguredItem {
        title: "Folders",
        details: "watched for changes",
        section: "connectors.filesystem.<name>",
    },
    ConfiguredItem {
        title: "Git repositories",
        details: "one branch, any host",
        section: "connectors.git.<name>",
    },
    ConfiguredItem {
        title: "S3 buckets",
        details: "and compatible services",
        section: "connectors.s3.<name>",
    },
    ConfiguredItem {
        title: "Lua connectors",
        details: "any other system",
        section: "connectors.script.<name>",
    },
];

const TOOLS: [ConfiguredItem; 3] = [
    ConfiguredItem { title: "Lua tools", details: "functions of your own", section: "tools.script.<name>" },
    ConfiguredItem {
        title: "MCP servers",
        details: "each tool becomes a function",
        section: "mcp_servers.<name>",
    },
    ConfiguredItem {
        title: "HTTP APIs",
        details: "each OpenAPI operation becomes a function",
        section: "apis.<name>",
    },
];

/// The steps of every call in the catalog, in order.
const CHECKS: [&str; 4] = ["scopes checked", "arguments validated", "limits applied", "run recorded"];

const FUNCTIONS: &str = "context.search · ctx.execute · tools.echo · github.issues_list · …";

/// The callers of the catalog, and their interfaces.
const CALLERS: [(&str, &str); 4] =
    [("You", "command line"), ("AI agents", "MCP"), ("Programs", "HTTP"), ("Scripts", "sandboxed worker")];

/// Checks the sections and draws the overview, as an SVG.
pub(super) fn draw_concepts() -> Result<String> {
    check(&fs::read_to_string(root().join(REFERENCE))?)?;
    Ok(draw())
}

/// Compares the sections of the boxes with those of the reference.
fn check(reference: &str) -> Result<()> {
    let documented: BTreeSet<&str> = reference
        .lines()
        .filter_map(|line| line.strip_prefix("## `[")?.strip_suffix("]`"))
        .filter(|section| SHOWN.iter().any(|shown| section.starts_with(shown)))
        .filter(|section| !NOT_SHOWN.contains(section))
        .collect();
    let drawn: BTreeSet<&str> = SOURCES.iter().chain(&TOOLS).map(|item| item.section).collect();
    ensure!(
        documented == drawn,
        "the picture of the concepts shows {drawn:?}, and {REFERENCE} has {documented:?}: change {}",
        file!()
    );
    Ok(())
}

fn draw() -> String {
    let mut diagram = Diagram::new(
        "Concepts: sources are read, tools are called, and all calls pass the catalog",
        WIDTH,
        HEIGHT,
    );
    let half = (WIDTH - 2.0 * MARGIN - 2.0 * GAP) / 2.0;
    let (left, right) = (MARGIN, MARGIN + half + 2.0 * GAP);
    diagram.text("t", left, 36.0, "READ");
    diagram.text("", left + 46.0, 36.0, "sources become documents");
    diagram.text("t", right, 36.0, "ACT");
    diagram.text("", right + 36.0, 36.0, "tools become functions");

    let source_width = (half - GAP) / 2.0;
    for (place, item) in SOURCES.iter().enumerate() {
        let (column, row) = ((place % 2) as f64, (place / 2) as f64);
        let (x, y) = (left + column * (source_width + GAP), 50.0 + row * (54.0 + GAP));
        draw_item(item, "r", Area { x, y, width: source_width, height: 54.0 }, &mut diagram);
    }
    let store = Area { x: left, y: 214.0, width: half, height: 78.0 };
    for column in [0.0, source_width + GAP] {
        down(left + column + source_width / 2.0, 170.0, store.y, &mut diagram);
    }
    diagram.centred("", store.middle(), 197.0, "sync: only changes");
    diagram.area("r", store);
    diagram.text("t", store.x + 14.0, store.y + 24.0, "Store");
    diagram.text("", store.x + 14.0, store.y + 44.0, "documents, split into chunks");
    diagram.text("", store.x + 14.0, store.y + 63.0, "keyword index (BM25) and embeddings");

    let tool_height = (store.bottom() - 50.0 - 2.0 * GAP) / 3.0;
    for (place, item) in TOOLS.iter().enumerate() {
        let y = 50.0 + place as f64 * (tool_height + GAP);
        draw_item(item, "x", Area { x: right, y, width: half, height: tool_height }, &mut diagram);
    }

    let catalog = Area { x: MARGIN, y: 336.0, width: WIDTH - 2.0 * MARGIN, height: 92.0 };
    down(store.middle(), store.bottom(), catalog.y, &mut diagram);
    diagram.text("", store.middle() + 12.0, 319.0, "hybrid search");
    down(right + half / 2.0, store.bottom(), catalog.y, &mut diagram);
    diagram.text("", right + half / 2.0 + 12.0, 319.0, "typed functions");
    draw_catalog(catalog, &mut diagram);

    let caller_width = (catalog.width - 3.0 * GAP) / 4.0;
    for (place, (title, way)) in CALLERS.iter().enumerate() {
        let x = MARGIN + place as f64 * (caller_width + GAP);
        let area = Area { x, y: 478.0, width: caller_width, height: 58.0 };
        diagram.area("c", area);
        diagram.centred("t", area.middle(), area.y + 25.0, title);
        diagram.centred("", area.middle(), area.y + 44.0, way);
        let path = format!("M{0} {1}V{2}", number(area.middle()), number(area.y), number(catalog.bottom()));
        // A script is started by a call, and makes calls itself.
        if place + 1 == CALLERS.len() {
            diagram.double_arrow(&path);
            diagram.text("", area.middle() + 12.0, 458.0, "pipe");
        } else {
            diagram.arrow(&path);
        }
    }
    diagram.finish()
}

fn draw_item(item: &ConfiguredItem, class: &str, area: Area, diagram: &mut Diagram) {
    diagram.area(class, area);
    let middle = area.y + area.height / 2.0;
    diagram.text("t", area.x + 14.0, middle - 5.0, item.title);
    diagram.text("", area.x + 14.0, middle + 14.0, item.details);
}

fn draw_catalog(area: Area, diagram: &mut Diagram) {
    diagram.area("m", area);
    diagram.text("t", area.x + 14.0, area.y + 26.0, "Catalog");
    diagram.text("k", area.x + 90.0, area.y + 26.0, FUNCTIONS);
    diagram.text("", area.x + 14.0, area.y + 65.0, "every call");
    let (first, arrow, height) = (112.0, 26.0, 32.0);
    let width = (area.width - first - 14.0 + arrow) / CHECKS.len() as f64 - arrow;
    for (place, check) in CHECKS.iter().enumerate() {
        let x = area.x + first + place as f64 * (width + arrow);
        let step = Area { x, y: area.y + 45.0, width, height };
        diagram.area("c", step);
        diagram.centred("", step.middle(), step.y + 21.0, check);
        diagram.arrow(&format!("M{} {}H{}", number(x - arrow), number(step.y + height / 2.0), number(x)));
    }
}

fn down(x: f64, from: f64, to: f64, diagram: &mut Diagram) {
    diagram.arrow(&format!("M{} {}V{}", number(x), number(from), number(to)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_or_tool_that_is_not_shown_or_no_longer_there_is_noticed() {
        let reference = fs::read_to_string(root().join(REFERENCE)).unwrap();
        check(&reference).unwrap();
        assert!(check(&format!("{reference}\n## `[connectors.wiki.<name>]`\n")).is_err());
        assert!(check(&reference.replace("## `[apis.<name>]`", "## `[services.<name>]`")).is_err());
    }
}
