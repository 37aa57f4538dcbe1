// SPDX-License-Identifier: GPL-2.0-only
//! What all pictures have: size, colours, axes, legend, a title and the text alternative.
use super::{Look, Plot};
use crate::html::axis::Axis;
use crate::html::escape::escape;
use crate::text::significant;

const LEFT: f64 = 72.0;
const RIGHT: f64 = 16.0;
/// Height of the plotted area, and of what stands below it.
const PLOTTED: f64 = 240.0;
const BELOW: f64 = 56.0;
/// Height of a row of the legend, and width of a letter in it (a guess that is wide enough).
const LEGEND_ROW: f64 = 22.0;
const LETTER: f64 = 7.6;
/// Marks on the y axis, about.
const MARKS: usize = 5;

/// Colours of the series in order, for light and dark pages; after the last one they come again.
const COLOURS: [(&str, &str); 6] = [
    ("#7d8794", "#8d98a5"),
    ("#1f6feb", "#6cb0ff"),
    ("#e07b00", "#ffa94d"),
    ("#12876f", "#4fd1b5"),
    ("#a23bb5", "#d99bf0"),
    ("#c2410c", "#ff8f6b"),
];

/// The places of a picture, and what is drawn so far.
pub struct Frame<'a> {
    plot: &'a Plot,
    width: f64,
    /// Where numbers stand; none: categories, at equal distances.
    x: Option<Axis>,
    y: Axis,
    /// The least value that has a place; below it is the axis.
    least: f64,
    bottom: f64,
    svg: String,
}

impl<'a> Frame<'a> {
    /// Axes, marks and legend. Unless it is logarithmic the y axis begins at 0, so that lengths compare as values do.
    pub fn new(plot: &'a Plot, look: &Look) -> Frame<'a> {
        let entries = legend(plot, look.width);
        let top = 14.0 + LEGEND_ROW * entries.last().map_or(0.0, |e| e.1 + 1.0);
        let bottom = top + PLOTTED;
        let points = || plot.points();
        let most = points().map(|p| p.mean + p.half).fold(0.0, f64::max);
        let (y, least) = match look.log {
            false => (Axis::fixed(0.0, most * 1.05, bottom, top), 0.0),
            true => {
                let ends = points().flat_map(|p| [p.mean, p.mean + p.half]);
                let axis = Axis::log(ends, 0.08, bottom, top);
                (axis, 10f64.powf(axis.ends().0))
            }
        };
        let mut frame = Frame {
            plot,
            width: look.width,
            x: along(plot, look.width),
            y,
            least,
            bottom,
            svg: head(plot, look.width, bottom + BELOW),
        };
        for (i, (x, row)) in entries.into_iter().enumerate() {
            let y = 10.0 + row * LEGEND_ROW;
            let name = escape(&plot.series[i].name);
            frame.line(&format!(
                "<rect class=\"f{}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"12\" height=\"12\"/>",
                colour(i)
            ));
            frame.text("", x + 18.0, y + 11.0, "start", &name);
        }
        frame.axes(look);
        frame
    }

    fn axes(&mut self, look: &Look) {
        let (left, right) = (LEFT, self.width - RIGHT);
        for mark in self.y.ticks(MARKS) {
            let y = self.y(mark);
            self.line(&format!(
                "<line class=\"grid\" x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\"/>"
            ));
            self.text(
                " class=\"soft\"",
                left - 8.0,
                y + 4.0,
                "end",
                &significant(mark, 4),
            );
        }
        let longest = self
            .plot
            .categories
            .iter()
            .map(|c| crate::text::width(c))
            .max();
        let (_, room) = self.place(0);
        let wanted = LETTER * (longest.unwrap_or(0) + 1) as f64;
        let every = match look.thin {
            true => (wanted / room).ceil().max(1.0) as usize,
            false => 1,
        };
        let named = match self.x {
            None => (0..self.plot.categories.len()).step_by(every).collect(),
            Some(_) => self.with_room(),
        };
        for i in named {
            let (x, _) = self.place(i);
            let (y, name) = (self.bottom + 20.0, escape(&self.plot.categories[i]));
            self.text("", x, y, "middle", &name);
        }
        let (middle, foot) = ((left + right) / 2.0, self.bottom + 44.0);
        self.text(
            " class=\"soft\"",
            middle,
            foot,
            "middle",
            &format!(
                "{}{}",
                escape(&self.plot.x),
                match self.x.is_some_and(|x| x.is_log()) {
                    true => ", logarithmic",
                    false => "",
                }
            ),
        );
        let height = self.bottom - PLOTTED / 2.0;
        let turned = format!(" class=\"soft\" transform=\"rotate(-90 16 {height:.1})\"");
        let more = if look.log { ", logarithmic" } else { "" };
        let name = format!("{}{more}", escape(&self.plot.y));
        self.text(&turned, 16.0, height, "middle", &name);
    }

    /// Middle and width of a category's place.
    pub fn place(&self, category: usize) -> (f64, f64) {
        let width = (self.width - LEFT - RIGHT) / self.plot.categories.len().max(1) as f64;
        match &self.x {
            Some(axis) => (axis.px(self.plot.at[category]), width),
            None => (LEFT + (category as f64 + 0.5) * width, width),
        }
    }

    /// The numbers whose names have room beside one another: the last one, and from the first one what fits.
    fn with_room(&self) -> Vec<usize> {
        let half =
            |i: usize| LETTER * (crate::text::width(&self.plot.categories[i]) + 1) as f64 / 2.0;
        let fits = |left: usize, right: usize| {
            self.place(left).0 + half(left) <= self.place(right).0 - half(right)
        };
        let mut all: Vec<usize> = (0..self.plot.categories.len()).collect();
        all.sort_by(|a, b| self.plot.at[*a].total_cmp(&self.plot.at[*b]));
        let Some(last) = all.pop() else {
            return Vec::new();
        };
        let mut named: Vec<usize> = Vec::new();
        for i in all {
            if fits(i, last) && named.last().is_none_or(|before| fits(*before, i)) {
                named.push(i);
            }
        }
        named.push(last);
        named
    }

    /// Where a value stands.
    pub fn y(&self, value: f64) -> f64 {
        self.y.px(value.max(self.least))
    }

    /// Where 0 stands.
    pub fn bottom(&self) -> f64 {
        self.bottom
    }

    pub fn line(&mut self, element: &str) {
        self.svg.push_str(element);
        self.svg.push('\n');
    }

    /// The interval of a value: from `low` to `high`.
    pub fn interval(&mut self, x: f64, low: f64, high: f64) {
        let (from, to) = (self.y(low), self.y(high));
        let (left, right) = (x - 4.0, x + 4.0);
        self.line(&format!(
            "<path class=\"whisker\" d=\"M{left:.1} {to:.1}H{right:.1}M{x:.1} {to:.1}V{from:.1}\
             M{left:.1} {from:.1}H{right:.1}\"/>"
        ));
    }

    fn text(&mut self, more: &str, x: f64, y: f64, anchor: &str, text: &str) {
        self.line(&format!(
            "<text{more} x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    /// The whole file.
    pub fn finish(mut self) -> String {
        self.line("</svg>");
        self.svg
    }
}

/// The axis of numbers, logarithmic where they lie far apart.
fn along(plot: &Plot, width: f64) -> Option<Axis> {
    let numbers = plot.at.len() == plot.categories.len() && !plot.at.is_empty();
    let at = || plot.at.iter().copied();
    // Room for series beside one another, and for half a name.
    let (from, to) = (LEFT + 30.0, width - RIGHT - 30.0);
    numbers.then(|| match super::far_apart(at()) {
        true => Axis::log(at(), 0.0, from, to),
        false => Axis::linear(at(), 0.0, from, to),
    })
}

/// Number of a series' colour.
pub fn colour(series: usize) -> usize {
    series % COLOURS.len()
}

/// Left edge and row of each entry of the legend.
fn legend(plot: &Plot, most: f64) -> Vec<(f64, f64)> {
    let (mut x, mut row) = (LEFT, 0.0);
    let mut places = Vec::new();
    for series in &plot.series {
        let width = 40.0 + LETTER * crate::text::width(&series.name) as f64;
        if x > LEFT && x + width > most {
            (x, row) = (LEFT, row + 1.0);
        }
        places.push((x, row));
        x += width;
    }
    places
}

fn head(plot: &Plot, width: f64, height: f64) -> String {
    let colours = |dark: bool| -> String {
        let colours = COLOURS.iter().enumerate().map(|(i, (light, dim))| {
            let colour = if dark { dim } else { light };
            format!(".f{i}{{fill:{colour}}}.s{i}{{stroke:{colour}}}\n")
        });
        colours.collect()
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height:.0}\" role=\"img\">\n\
         <title>{}</title>\n<desc>{}</desc>\n<style>\n\
         text{{font:13px system-ui,sans-serif;fill:#16191d}}.soft{{fill:#5b6470}}.paper{{fill:#fff}}\n\
         .grid{{stroke:#dfe3e8}}.whisker{{stroke:#16191d;fill:none}}.line{{fill:none;stroke-width:2}}\n{}\
         @media (prefers-color-scheme:dark){{\n\
         text{{fill:#e8ebef}}.soft{{fill:#9aa5b1}}.paper{{fill:#101317}}.grid{{stroke:#2b323b}}\
         .whisker{{stroke:#e8ebef}}\n{}}}\n</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
        escape(&plot.title),
        escape(&plot.in_words()),
        colours(false),
        colours(true)
    )
}
