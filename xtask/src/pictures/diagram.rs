//! Draws a diagram as SVG: a card with boxes, texts and arrows, in light and in dark colours.

use super::svg::{escaped, number};

/// Size of text that is not a heading.
pub(super) const FONT_SIZE: f64 = 13.0;

/// Classes of text: `n` a name in code, `t` a title, `k` code. Of boxes: `c` plain, `r` reading, `x` acting, `m` the
/// middle. All texts and lines are legible on their boxes in both schemes.
const STYLE: &str =
    "text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#59636e}
.n,.k{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}
.n{font-size:14px}
.n,.t{font-weight:600;fill:#1f2328}
.p{fill:#f6f8fa;stroke:#d1d9e0}
.c{fill:#fff;stroke:#d1d9e0}
.r{fill:#ddf4ff;stroke:#54aeff}
.x{fill:#fbefff;stroke:#c297ff}
.m{fill:#fff8c5;stroke:#d4a72c}
.a{fill:none;stroke:#818b98;stroke-width:1.4}
.h{fill:#818b98}
@media (prefers-color-scheme:dark){
text{fill:#9198a1}
.n,.t{fill:#f0f6fc}
.p{fill:#0d1117;stroke:#3d444d}
.c{fill:#151b23;stroke:#3d444d}
.r{fill:#121d2f;stroke:#1f6feb}
.x{fill:#1f1830;stroke:#8957e5}
.m{fill:#272115;stroke:#9e6a03}
.a{stroke:#656c76}
.h{fill:#656c76}
}
";

/// A diagram that is being drawn.
pub(super) struct Diagram {
    svg: String,
}

impl Diagram {
    pub(super) fn new(title: &str, width: f64, height: f64) -> Self {
        let (w, h) = (number(width), number(height));
        let mut diagram = Self {
            svg: format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
                 role=\"img\" aria-labelledby=\"t\">\n<title id=\"t\">{}</title>\n<style>\n{STYLE}</style>\n\
                 <marker id=\"h\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
                 markerUnits=\"userSpaceOnUse\" orient=\"auto-start-reverse\"><path class=\"h\" d=\"M0 .5 8 4 0 7.5z\"/>\
                 </marker>\n",
                escaped(title),
            ),
        };
        diagram.bordered("p", Area { x: 0.5, y: 0.5, width: width - 1.0, height: height - 1.0 }, 10);
        diagram
    }

    pub(super) fn area(&mut self, class: &str, area: Area) {
        self.bordered(class, area, 7);
    }

    fn bordered(&mut self, class: &str, Area { x, y, width, height }: Area, radius: u8) {
        self.svg.push_str(&format!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{radius}\"/>\n",
            number(x),
            number(y),
            number(width),
            number(height),
        ));
    }

    /// A text whose first character begins at `x`; `class` may be empty.
    pub(super) fn text(&mut self, class: &str, x: f64, baseline: f64, text: &str) {
        self.anchored(class, "", x, baseline, text);
    }

    /// A text with its middle at `x`.
    pub(super) fn centred(&mut self, class: &str, x: f64, baseline: f64, text: &str) {
        self.anchored(class, " text-anchor=\"middle\"", x, baseline, text);
    }

    fn anchored(&mut self, class: &str, anchor: &str, x: f64, baseline: f64, text: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let (x, y) = (number(x), number(baseline));
        self.svg.push_str(&format!("<text{class}{anchor} x=\"{x}\" y=\"{y}\">{}</text>\n", escaped(text)));
    }

    /// A line with the path data of SVG, and a head at its end.
    pub(super) fn arrow(&mut self, path: &str) {
        self.svg.push_str(&format!("<path class=\"a\" marker-end=\"url(#h)\" d=\"{path}\"/>\n"));
    }

    /// A line with a head at both ends.
    pub(super) fn double_arrow(&mut self, path: &str) {
        self.svg.push_str(&format!(
            "<path class=\"a\" marker-start=\"url(#h)\" marker-end=\"url(#h)\" d=\"{path}\"/>\n"
        ));
    }

    pub(super) fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

/// A rectangle, in pixels.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Area {
    pub(super) fn middle(self) -> f64 {
        self.x + self.width / 2.0
    }

    pub(super) fn bottom(self) -> f64 {
        self.y + self.height
    }
}
