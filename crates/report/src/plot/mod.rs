// SPDX-License-Identifier: GPL-2.0-only
//! Means with their 95 % intervals as an SVG file: a picture that stands alone, small, the same bytes for the same
//! values, a line per mark so that two of them can be compared as text.
mod bars;
mod frame;
mod lines;

pub use bars::bars;
pub use lines::{lines, lines_as};

/// How it is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// In units of which text is 13 high.
    pub width: f64,
    /// The y axis is logarithmic.
    pub log: bool,
    /// Where categories' names have no room, every second or third one stands there.
    pub thin: bool,
}

impl Default for Look {
    fn default() -> Look {
        Look {
            width: 720.0,
            log: false,
            thin: false,
        }
    }
}

/// What is drawn: several series over the same categories.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    pub title: String,
    /// Along the x axis, and along the y axis with the unit.
    pub x: String,
    pub y: String,
    /// Along the x axis, in order.
    pub categories: Vec<String>,
    pub series: Vec<Series>,
}

/// A value for each category; none where nothing was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    pub name: String,
    pub points: Vec<Option<Point>>,
}

/// A mean and the half width of its interval, in the unit of the y axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub mean: f64,
    /// 0 with a single value.
    pub half: f64,
}

impl Plot {
    /// Its values lie so far apart that only a logarithmic axis shows the small ones.
    pub fn is_wide(&self) -> bool {
        let means = || {
            self.series
                .iter()
                .flat_map(|s| s.points.iter().flatten())
                .map(|p| p.mean)
        };
        let least = means().fold(f64::INFINITY, f64::min);
        least > 0.0 && means().fold(0.0, f64::max) > 30.0 * least
    }

    /// The same in words, for who does not see the picture.
    pub fn in_words(&self) -> String {
        let series = self.series.iter().map(|series| {
            let points = self.categories.iter().zip(&series.points);
            let values: Vec<String> = points
                .filter_map(|(category, point)| Some(format!("{category}: {}", words((*point)?))))
                .collect();
            format!("{}: {}.", series.name, values.join(", "))
        });
        let series: Vec<String> = series.collect();
        format!("{} over {}. {}", self.y, self.x, series.join(" "))
    }
}

fn words(point: Point) -> String {
    let mean = crate::text::significant(point.mean, 4);
    match point.half {
        half if half > 0.0 => format!("{mean} ± {}", crate::text::significant(half, 2)),
        _ => mean,
    }
}

#[cfg(test)]
pub(crate) fn example() -> Plot {
    let point = |mean, half| Some(Point { mean, half });
    Plot {
        title: "ping <beside> load".into(),
        x: "VMs".into(),
        y: "ms".into(),
        categories: vec!["1".into(), "2".into()],
        series: vec![
            Series {
                name: "credit".into(),
                points: vec![point(10.0, 2.0), point(20.0, 0.0)],
            },
            Series {
                name: "flms".into(),
                points: vec![point(5.0, 1.0), None],
            },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_words_it_has_every_value() {
        assert_eq!(
            example().in_words(),
            "ms over VMs. credit: 1: 10 ± 2, 2: 20. flms: 1: 5 ± 1."
        );
    }

    #[test]
    fn the_same_values_are_the_same_bytes_and_names_are_harmless() {
        for draw in [bars, lines] {
            let picture = draw(&example());
            assert_eq!(picture, draw(&example()));
            assert!(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
            assert!(picture.contains("ping &lt;beside&gt; load") && !picture.contains("<beside>"));
            assert!(picture.contains("<desc>ms over VMs. credit: 1: 10 ± 2"));
        }
    }

    #[test]
    fn values_far_apart_are_drawn_on_a_logarithmic_axis() {
        let mut plot = example();
        assert!(!plot.is_wide());
        let look = Look {
            width: 380.0,
            log: true,
            thin: true,
        };
        let linear = lines(&plot);
        plot.series[0].points[0] = Some(Point {
            mean: 400.0,
            half: 500.0,
        });
        assert!(plot.is_wide());
        let log = lines_as(&plot, &look);
        assert!(
            log.contains("viewBox=\"0 0 380 ") && log.contains(">ms, logarithmic<"),
            "{log}"
        );
        // Marks at powers of ten; the interval that goes below zero ends at the axis.
        assert!(
            log.contains(">10<") && log.contains(">100<") && !log.contains("NaN"),
            "{log}"
        );
        assert!(!linear.contains("logarithmic") && linear.contains("viewBox=\"0 0 720 "));
        let none = lines_as(&Plot::default(), &look);
        assert!(!none.contains("NaN") && !none.contains("inf"), "{none}");
        plot.series[1].points[0] = Some(Point {
            mean: 0.0,
            half: 0.0,
        });
        assert!(!plot.is_wide());
    }

    #[test]
    fn nothing_to_draw_is_no_crash() {
        for draw in [bars, lines] {
            assert!(!draw(&Plot::default()).contains("NaN"));
            let empty = Plot {
                categories: vec!["a".into()],
                series: vec![Series::default()],
                ..Plot::default()
            };
            assert!(!draw(&empty).contains("NaN"));
        }
    }
}
