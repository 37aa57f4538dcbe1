// SPDX-License-Identifier: GPL-2.0-only
//! Bars: the series beside one another in each category.
use super::frame::{Frame, colour};
use super::{Look, Plot};

/// Part of a category's place that its bars take.
const TAKEN: f64 = 0.76;
/// The widest bar, in pixels.
const WIDEST: f64 = 64.0;

/// The picture as an SVG file.
pub fn bars(plot: &Plot) -> String {
    let mut frame = Frame::new(plot, &Look::default());
    let count = plot.series.len().max(1) as f64;
    for category in 0..plot.categories.len() {
        let (middle, room) = frame.place(category);
        let width = (room * TAKEN / count).min(WIDEST);
        for (i, series) in plot.series.iter().enumerate() {
            let Some(Some(point)) = series.points.get(category) else {
                continue;
            };
            let x = middle + (i as f64 - count / 2.0) * width;
            let (y, bottom) = (frame.y(point.mean), frame.bottom());
            frame.line(&format!(
                "<rect class=\"f{}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                colour(i),
                x + 1.0,
                width - 2.0,
                bottom - y
            ));
            if point.half > 0.0 {
                let (low, high) = (point.mean - point.half, point.mean + point.half);
                frame.interval(x + width / 2.0, low, high);
            }
        }
    }
    frame.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::example;

    #[test]
    fn a_bar_is_as_high_as_its_value() {
        let picture = bars(&example());
        let heights: Vec<f64> = picture
            .lines()
            .filter(|l| l.starts_with("<rect class=\"f") && !l.contains("height=\"12\""))
            .filter_map(|l| l.split("height=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        // credit 10, flms 5, credit 20.
        assert_eq!(heights.len(), 3, "{picture}");
        assert!((heights[0] / heights[1] - 2.0).abs() < 0.01, "{heights:?}");
        assert!((heights[2] / heights[0] - 2.0).abs() < 0.01, "{heights:?}");
        assert_eq!(picture.matches("class=\"whisker\" d").count(), 2);
    }
}
