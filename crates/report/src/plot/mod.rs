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
    /// Lines have a dot at each value, and stand beside one another so that equal values do not hide.
    pub dots: bool,
}

impl Default for Look {
    fn default() -> Look {
        Look {
            width: 720.0,
            log: false,
            thin: false,
            dots: true,
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
    /// Where the categories stand, if they are numbers; else at equal distances. Only lines look at it.
    pub at: Vec<f64>,
    /// Points of pictures that are held against this one: its y axis has room for them, too.
    pub beside: Vec<Point>,
}

/// Values lie so far apart that only a logarithmic axis shows the small ones.
pub fn far_apart(values: impl IntoIterator<Item = f64>) -> bool {
    let (mut least, mut most) = (f64::INFINITY, 0.0);
    for value in values {
        least = f64::min(least, value);
        most = f64::max(most, value);
    }
    least > 0.0 && most > 30.0 * least
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
    /// Its values need a logarithmic axis, and those beside it.
    pub fn is_wide(&self) -> bool {
        far_apart(self.points().map(|p| p.mean))
    }

    /// All that the y axis has room for.
    fn points(&self) -> impl Iterator<Item = &Point> {
        let own = self.series.iter().flat_map(|s| s.points.iter().flatten());
        own.chain(&self.beside)
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
        ..Plot::default()
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
            ..Look::default()
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
    fn numbers_stand_where_they_are() {
        let mut plot = example();
        let places = |plot: &Plot| -> Vec<f64> {
            let picture = lines(plot);
            let dots = picture.lines().filter(|l| l.contains("f0\" cx="));
            dots.map(|l| {
                let x = l.split("cx=\"").nth(1).unwrap();
                x.split('"').next().unwrap().parse().unwrap()
            })
            .collect()
        };
        let named = |plot: &Plot, text: &str| {
            lines(plot).contains(&format!(" text-anchor=\"middle\">{text}</text>"))
        };
        let names = ["1", "2", "3", "7", "10"];
        plot.categories = names.map(String::from).to_vec();
        let dot = plot.series[0].points[0];
        plot.series[0].points = vec![dot; 5];
        plot.at = vec![1.0, 2.0, 3.0, 7.0, 10.0];
        let x = places(&plot);
        assert!((x[3] - x[0] - 6.0 * (x[1] - x[0])).abs() < 0.5, "{x:?}");
        assert!(named(&plot, "VMs") && names.iter().all(|n| named(&plot, n)));
        // Far apart: as many pixels for each factor, which is said; of names without room some are left out.
        let names = ["1", "10", "10.5", "100", "1000"];
        plot.categories = names.map(String::from).to_vec();
        plot.at = vec![1.0, 10.0, 10.5, 100.0, 1000.0];
        let x = places(&plot);
        assert!((x[4] - x[0] - 3.0 * (x[1] - x[0])).abs() < 0.5, "{x:?}");
        assert!(named(&plot, "VMs, logarithmic") && !named(&plot, "10.5"));
        assert!(["1", "10", "100", "1000"].iter().all(|n| named(&plot, n)));
        // All one value, and 0 among far ones.
        for at in [vec![5.0; 5], vec![0.0, 1.0, 2.0, 3.0, 5000.0]] {
            plot.at = at;
            let picture = lines(&plot);
            assert!(
                !picture.contains("NaN") && !picture.contains("logarithmic"),
                "{picture}"
            );
        }
    }

    #[test]
    fn pictures_beside_one_another_have_one_scale() {
        let top = |plot: &Plot| {
            let picture = lines(plot);
            let dot = picture.lines().find(|l| l.contains("f0\" cx=")).unwrap();
            dot.split("cy=\"").nth(1).unwrap().to_string()
        };
        let (mut small, mut large) = (example(), example());
        let point = |mean| Point { mean, half: 0.0 };
        large.series[1].points[1] = Some(point(200.0));
        assert_ne!(top(&small), top(&large));
        small.beside = vec![point(200.0)];
        large.beside = vec![point(3.0)];
        assert_eq!(top(&small), top(&large));
        assert!(small.is_wide() && large.is_wide());
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
