// SPDX-License-Identifier: GPL-2.0-only
//! Lines: each series from category to category, with a dot at each value.
use super::frame::{Frame, colour};
use super::{Look, Plot};

/// Dashes of the series in order, for who does not tell colours apart.
const DASHES: [&str; 4] = [
    "",
    " stroke-dasharray=\"7 3\"",
    " stroke-dasharray=\"2 3\"",
    " stroke-dasharray=\"9 3 2 3\"",
];
/// Pixels by which the series stand beside one another, so that equal values do not hide.
const BESIDE: f64 = 5.0;

/// The picture as an SVG file. A value that is missing interrupts its line.
pub fn lines(plot: &Plot) -> String {
    lines_as(plot, &Look::default())
}

/// The same with another look.
pub fn lines_as(plot: &Plot, look: &Look) -> String {
    let mut frame = Frame::new(plot, look);
    let middle = (plot.series.len().max(1) - 1) as f64 / 2.0;
    for (i, series) in plot.series.iter().enumerate() {
        let aside = match look.dots {
            true => (i as f64 - middle) * BESIDE,
            false => 0.0,
        };
        let mut path = String::new();
        let mut begun = false;
        for (category, point) in series.points.iter().enumerate() {
            let Some(point) = point else {
                begun = false;
                continue;
            };
            let (x, y) = (frame.place(category).0 + aside, frame.y(point.mean));
            path.push_str(&format!("{}{x:.1} {y:.1}", if begun { 'L' } else { 'M' }));
            begun = true;
            if point.half > 0.0 {
                frame.interval(x, point.mean - point.half, point.mean + point.half);
            }
            if !look.dots {
                continue;
            }
            frame.line(&format!(
                "<circle class=\"f{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>",
                colour(i)
            ));
        }
        frame.line(&format!(
            "<path class=\"line s{}\" d=\"{path}\"{}/>",
            colour(i),
            DASHES[i % DASHES.len()]
        ));
    }
    frame.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Point, example};

    #[test]
    fn many_values_are_lines_without_dots_that_stand_where_they_are() {
        let look = Look {
            dots: false,
            ..Look::default()
        };
        let picture = lines_as(&example(), &look);
        assert!(!picture.contains("<circle"), "{picture}");
        let starts = |l: &str| Some(l.split("d=\"M").nth(1)?.split(' ').next()?.to_string());
        let of_lines = picture.lines().filter(|l| l.contains("class=\"line"));
        let starts: Vec<String> = of_lines.filter_map(starts).collect();
        assert_eq!(starts[0], starts[1], "{picture}");
    }

    #[test]
    fn a_missing_value_interrupts_the_line() {
        let mut plot = example();
        plot.categories.push("3".into());
        let last = Point {
            mean: 7.0,
            half: 0.0,
        };
        plot.series[0].points.push(Some(last));
        plot.series[1].points.push(Some(last));
        let picture = lines(&plot);
        let paths: Vec<&str> = picture
            .lines()
            .filter(|l| l.contains("class=\"line"))
            .collect();
        assert_eq!(paths.len(), 2);
        assert_eq!(paths[0].matches('L').count(), 2, "{}", paths[0]);
        assert_eq!(paths[1].matches('M').count(), 2, "{}", paths[1]);
        assert_eq!(picture.matches("<circle").count(), 5);
    }
}
