//! Layered drawing of a directed graph without cycles: every arrow leads downwards, nodes lie in rows, and an arrow
//! over several rows passes between their nodes.

use std::collections::BTreeSet;

/// Maximum number of times that the order in the rows, or the positions, are improved.
const SWEEPS_MAX: usize = 24;

/// Width kept free for an arrow that passes a row.
const LANE_WIDTH: f64 = 10.0;

/// Minimum distance between the arrows that start or end at a node.
const PORT_DISTANCE: f64 = 22.0;

/// Sizes in pixels.
pub(super) struct Sizes {
    pub(super) node_width: f64,
    pub(super) gap: f64,
}

/// The row of a node, and the middle of its box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NodePosition {
    pub(super) row: usize,
    pub(super) x: f64,
}

/// An arrow from the bottom of a box to the top of another: its x at the start, in each row it passes, and at the end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) xs: Vec<f64>,
}

/// A drawing of a graph.
pub(super) struct Drawing {
    pub(super) positions: Vec<NodePosition>,
    pub(super) arrows: Vec<Arrow>,
    pub(super) rows: usize,
    pub(super) width: f64,
}

/// Draws the nodes `0..count`; an edge leads from a node to one that it depends on.
pub(super) fn layout(count: usize, edges: &[(usize, usize)], sizes: &Sizes) -> Drawing {
    let rows = rows(count, edges);
    let mut grid = Grid::new(&rows, edges);
    grid.order();
    grid.position(sizes);
    grid.drawing(count, edges, sizes)
}

/// The edges without those that others imply.
pub(super) fn without_implied(count: usize, edges: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // What each node reaches by two or more edges; as many rounds as a path has edges.
    let mut reached = vec![BTreeSet::new(); count];
    for _ in 0..count {
        for &(from, over) in edges {
            let next = edges.iter().filter(|(start, _)| *start == over).map(|(_, to)| *to);
            let farther: Vec<usize> = next.chain(reached[over].iter().copied()).collect();
            reached[from].extend(farther);
        }
    }
    edges.iter().copied().filter(|(from, to)| !reached[*from].contains(to)).collect()
}

/// The row of each node, counted from the top: all that a node depends on is below it, and as little as possible is
/// between the node and the bottom.
fn rows(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut heights = vec![0; count];
    for _ in 0..count {
        for &(from, to) in edges {
            heights[from] = heights[from].max(heights[to] + 1);
        }
    }
    let top = heights.iter().copied().max().unwrap_or(0);
    heights.into_iter().map(|height| top - height).collect()
}

/// The nodes in their rows, with a lane in each row that an edge passes. A vertex is a node or a lane.
struct Grid {
    /// The vertices of each row, from left to right.
    rows: Vec<Vec<usize>>,
    row_of: Vec<usize>,
    /// From each vertex to those it is joined with, in the rows below and above.
    below: Vec<Vec<usize>>,
    above: Vec<Vec<usize>>,
    /// The vertices of each edge, from its start to its end.
    paths: Vec<Vec<usize>>,
    nodes: usize,
    xs: Vec<f64>,
}

impl Grid {
    fn new(row_of: &[usize], edges: &[(usize, usize)]) -> Self {
        let mut row_of = row_of.to_vec();
        let nodes = row_of.len();
        let mut paths = Vec::new();
        for &(from, to) in edges {
            let mut path = vec![from];
            for row in row_of[from] + 1..row_of[to] {
                path.push(row_of.len());
                row_of.push(row);
            }
            path.push(to);
            paths.push(path);
        }
        let mut rows = vec![Vec::new(); row_of.iter().max().map_or(0, |row| row + 1)];
        let (mut below, mut above) = (vec![Vec::new(); row_of.len()], vec![Vec::new(); row_of.len()]);
        for (vertex, row) in row_of.iter().enumerate() {
            rows[*row].push(vertex);
        }
        for joined in paths.iter().flat_map(|path| path.windows(2)) {
            below[joined[0]].push(joined[1]);
            above[joined[1]].push(joined[0]);
        }
        let xs = vec![0.0; row_of.len()];
        Self { rows, row_of, below, above, paths, nodes, xs }
    }

    /// Swaps vertices of a row as long as fewer arrows cross, or they become shorter.
    fn order(&mut self) {
        for _ in 0..SWEEPS_MAX {
            let mut is_better = false;
            for row in 0..self.rows.len() {
                for (left, right) in pairs(self.rows[row].len()) {
                    let before = self.cost();
                    // A move, not only a swap of neighbours, which would often stop too early.
                    for is_swap in [true, false] {
                        let kept = self.rows[row].clone();
                        if is_swap {
                            self.rows[row].swap(left, right);
                        } else {
                            self.rows[row][left..=right].rotate_left(1);
                        }
                        if self.cost() < before {
                            is_better = true;
                            break;
                        }
                        self.rows[row] = kept;
                    }
                }
            }
            if !is_better {
                return;
            }
        }
    }

    /// The crossings, then the length of all arrows, in positions of their rows.
    fn cost(&self) -> (usize, usize) {
        const SCALE: usize = 1000;
        let mut place = vec![0; self.row_of.len()];
        for row in &self.rows {
            for (index, vertex) in row.iter().enumerate() {
                // The middle of the row is the middle of the picture.
                place[*vertex] = (2 * index + 1) * SCALE / (2 * row.len());
            }
        }
        let mut crossings = 0;
        let mut length = 0;
        for row in &self.rows {
            let joined: Vec<(usize, usize)> = row
                .iter()
                .flat_map(|vertex| self.below[*vertex].iter().map(|below| (place[*vertex], place[*below])))
                .collect();
            length += joined.iter().map(|(from, to)| from.abs_diff(*to)).sum::<usize>();
            crossings += pairs(joined.len())
                .filter(|&(one, other)| {
                    let (one, other) = (joined[one], joined[other]);
                    (one.0 < other.0 && one.1 > other.1) || (one.0 > other.0 && one.1 < other.1)
                })
                .count();
        }
        (crossings, length)
    }

    /// Moves every vertex towards the middle of those it is joined with, without overlaps.
    fn position(&mut self, sizes: &Sizes) {
        for row in self.rows.clone() {
            let wanted = vec![0.0; row.len()];
            self.place_row(&row, &wanted, sizes);
        }
        for sweep in 0..SWEEPS_MAX {
            let count = self.rows.len();
            for index in 0..count {
                let row = self.rows[if sweep % 2 == 0 { index } else { count - 1 - index }].clone();
                let middle = |vertex: &usize| {
                    let joined: Vec<f64> = self.above[*vertex]
                        .iter()
                        .chain(&self.below[*vertex])
                        .map(|other| self.xs[*other])
                        .collect();
                    joined.iter().sum::<f64>() / joined.len().max(1) as f64
                };
                let wanted: Vec<f64> = row.iter().map(middle).collect();
                self.place_row(&row, &wanted, sizes);
            }
        }
    }

    fn half_width(&self, vertex: usize, sizes: &Sizes) -> f64 {
        if vertex < self.nodes { sizes.node_width / 2.0 } else { LANE_WIDTH / 2.0 }
    }

    /// The distances of a row's vertices from its first if all are as near as possible.
    fn offsets(&self, row: &[usize], sizes: &Sizes) -> Vec<f64> {
        let mut offsets = vec![0.0];
        for joined in row.windows(2) {
            let distance = self.half_width(joined[0], sizes) + sizes.gap + self.half_width(joined[1], sizes);
            offsets.push(offsets[offsets.len() - 1] + distance);
        }
        offsets
    }

    /// The least width of a row.
    fn row_width(&self, row: &[usize], sizes: &Sizes) -> f64 {
        let widths = row.iter().map(|vertex| 2.0 * self.half_width(*vertex, sizes)).sum::<f64>();
        widths + (row.len() - 1) as f64 * sizes.gap
    }

    fn width_max(&self, sizes: &Sizes) -> f64 {
        self.rows.iter().map(|row| self.row_width(row, sizes)).fold(0.0, f64::max)
    }

    /// Places a row as near to the wanted positions as their distances allow: neighbours that would overlap form a
    /// block, whose middle is where they want to be on average.
    fn place_row(&mut self, row: &[usize], wanted: &[f64], sizes: &Sizes) {
        let offsets = self.offsets(row, sizes);
        // Blocks: where the first vertex would be, and how many belong to it.
        let mut blocks: Vec<(f64, usize)> = Vec::new();
        for (wanted, offset) in wanted.iter().zip(&offsets) {
            blocks.push((wanted - offset, 1));
            while let [.., (before, many), (after, more)] = blocks[..]
                && before > after
            {
                let joined = (before * many as f64 + after * more as f64) / (many + more) as f64;
                blocks.truncate(blocks.len() - 2);
                blocks.push((joined, many + more));
            }
        }
        // No row reaches further than the widest one.
        let slack = (self.width_max(sizes) - self.row_width(row, sizes)) / 2.0;
        let middle = -offsets.last().copied().unwrap_or(0.0) / 2.0;
        let starts = blocks.iter().flat_map(|(start, many)| std::iter::repeat_n(*start, *many));
        let starts = starts.map(|start| start.clamp(middle - slack, middle + slack));
        for ((vertex, start), offset) in row.iter().zip(starts).zip(&offsets) {
            self.xs[*vertex] = start + offset;
        }
    }

    fn drawing(mut self, count: usize, edges: &[(usize, usize)], sizes: &Sizes) -> Drawing {
        let edge = |vertex: usize, side: f64| self.xs[vertex] + side * self.half_width(vertex, sizes);
        let vertices = 0..self.xs.len();
        let left = vertices.clone().map(|vertex| edge(vertex, -1.0)).fold(f64::MAX, f64::min);
        let right = vertices.map(|vertex| edge(vertex, 1.0)).fold(f64::MIN, f64::max);
        for x in &mut self.xs {
            // Whole pixels are drawn sharply.
            *x = (*x - left).round();
        }
        let arrows = edges.iter().zip(&self.paths).map(|(&(from, to), path)| {
            let last = path.len() - 1;
            let mut xs: Vec<f64> = path.iter().map(|vertex| self.xs[*vertex]).collect();
            xs[0] = self.port(from, path[1], &self.below);
            xs[last] = self.port(to, path[last - 1], &self.above);
            Arrow { from, to, xs }
        });
        Drawing {
            arrows: arrows.collect(),
            positions: (0..count)
                .map(|node| NodePosition { row: self.row_of[node], x: self.xs[node] })
                .collect(),
            rows: self.rows.len(),
            width: (right - left).ceil(),
        }
    }

    /// The x at which the arrow between a node and its neighbour meets the node's box; arrows keep the order of the
    /// neighbours.
    fn port(&self, node: usize, neighbour: usize, joined: &[Vec<usize>]) -> f64 {
        let mut joined = joined[node].clone();
        joined.sort_by(|one, other| self.xs[*one].total_cmp(&self.xs[*other]));
        let place = joined.iter().position(|vertex| *vertex == neighbour).unwrap_or(0);
        self.xs[node] + (place as f64 - (joined.len() - 1) as f64 / 2.0) * PORT_DISTANCE
    }
}

fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |one| (one + 1..count).map(move |other| (one, other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { node_width: 100.0, gap: 20.0 };

    #[test]
    fn implied_edges_are_left_out() {
        let edges = [(0, 1), (1, 2), (2, 3), (0, 2), (0, 3), (1, 3)];
        assert_eq!(without_implied(4, &edges), [(0, 1), (1, 2), (2, 3)]);
        let diamond = [(0, 1), (0, 2), (1, 3), (2, 3)];
        assert_eq!(without_implied(4, &diamond), diamond);
    }

    #[test]
    fn arrows_lead_down_and_boxes_do_not_overlap() {
        let edges = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 5), (3, 4), (0, 5), (1, 5)];
        let drawing = layout(6, &edges, &SIZES);
        assert_eq!(drawing.rows, 3);
        for Arrow { from, to, xs } in &drawing.arrows {
            let (from, to) = (drawing.positions[*from].row, drawing.positions[*to].row);
            assert_eq!(from + xs.len() - 1, to);
        }
        for (one, other) in pairs(6) {
            let (one, other) = (drawing.positions[one], drawing.positions[other]);
            assert!(one.row != other.row || (one.x - other.x).abs() >= 119.0, "{one:?} {other:?}");
        }
        let inside = |place: &NodePosition| place.x >= 50.0 && place.x + 50.0 <= drawing.width;
        assert!(drawing.positions.iter().all(inside), "{:?}", drawing.positions);
    }

    #[test]
    fn crossings_that_an_order_avoids_are_avoided() {
        let edges = [(0, 4), (1, 3), (2, 5)];
        let mut grid = Grid::new(&rows(6, &edges), &edges);
        assert_eq!(grid.cost().0, 1);
        grid.order();
        assert_eq!(grid.cost().0, 0);
    }
}
