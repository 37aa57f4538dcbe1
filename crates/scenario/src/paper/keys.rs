// SPDX-License-Identifier: GPL-2.0-only
//! Every table and key of `paper.toml`.
use crate::keys::Default::{Is, Required, Said};
use crate::keys::{Kind, key};

pub static PAPER: Kind = Kind {
    label: "A paper",
    header: "",
    help: "",
    says: "A paper, and its experiments as they are run here.",
    keys: &[
        key("title", "\"words\"", Required, "of the paper's page"),
        key("cites", "\"words\"", Required, "who, where, when"),
        key(
            "about",
            "\"words\"",
            Required,
            "what it says, in a paragraph of ours",
        ),
        key("seeds", "whole number", Is("10"), "of every run"),
        key(
            "check_seeds",
            "whole number",
            Said("all: the page is made anew"),
            "so many does --check run, and holds them against the seal that the page then has",
        ),
        key(
            "index",
            "list of tables",
            Said("none"),
            "[[index]]: parts of a benchmark, for rows with metric index",
        ),
        key(
            "experiment",
            "list of tables",
            Said("none: its claims wait"),
            "[[experiment]]",
        ),
        key(
            "table",
            "list of tables",
            Said("none"),
            "[[table]]: one over several experiments",
        ),
    ],
};

pub static PART: Kind = Kind {
    label: "A part of a benchmark",
    header: "[[index]]",
    help: "",
    says: "The benchmark's index is the weighted geometric mean of its parts: each of a run of its own.",
    keys: &[
        key("name", "\"name\"", Required, "its own metric is index.NAME"),
        key("set", "list of ADDRESS=VALUE", Required, "for its run"),
        key("metric", "\"name\"", Required, "what it scores"),
        key(
            "per",
            "number",
            Is("1"),
            "base units of the metric that score 1",
        ),
        key("weight", "number", Is("1"), "in the geometric mean"),
    ],
};

pub static EXPERIMENT: Kind = Kind {
    label: "An experiment",
    header: "[[experiment]]",
    help: "",
    says: "One of the paper's experiments: runs, each with a table, and a figure.",
    keys: &[
        key("id", "\"name\"", Required, "as claims and pages call it"),
        key("title", "\"words\"", Required, "what is run"),
        key(
            "note",
            "\"words\"",
            Said("none"),
            "what a reader of the tables must know",
        ),
        key("run", "list of tables", Required, "[[experiment.run]]"),
        key("figure", "table", Said("none"), "[experiment.figure]"),
        key(
            "trace",
            "list of tables",
            Said("none"),
            "[[experiment.trace]]",
        ),
    ],
};

pub static RUN: Kind = Kind {
    label: "A run",
    header: "[[experiment.run]]",
    help: "",
    says: "A scenario with what is changed of it, as `berth sim` would be told, and the table of what comes out.",
    keys: &[
        key("name", "\"name\"", Required, "by which the figure means it"),
        key("scenario", "\"file\"", Required, "beside paper.toml"),
        key("note", "\"words\"", Said("none"), "above the table"),
        key(
            "arms",
            "list of names",
            Is("[]"),
            "only these, in this order; all if none are named",
        ),
        key("set", "list of ADDRESS=VALUE", Is("[]"), "for all of it"),
        key(
            "vary",
            "list of ADDRESS=A,B,C",
            Is("[]"),
            "a row for each combination",
        ),
        key(
            "each",
            "list of ADDRESS=VALUE",
            Is("[]"),
            "a run of its own with each of these, a row each",
        ),
        key(
            "fit",
            "true or false",
            Is("true"),
            "whether [calibrate] fits what the paper leaves open",
        ),
        key(
            "judges",
            "list of names",
            Is("[]"),
            "claims of the scenario's [reproduces]; * stands for any end",
        ),
        key("head", "\"words\"", Required, "of the table's first column"),
        key("rows", "list of tables", Required, "{ metric, label, per }"),
        key(
            "speedup",
            "table",
            Said("none"),
            "{ against, of }: rows may have speedup.mean, .geomean, .max, .of.VM, slowdown.max",
        ),
    ],
};

pub static SPEEDUP: Kind = Kind {
    label: "Speed-ups",
    header: "[experiment.run.speedup]",
    help: "",
    says: "The speed of each VM by its speed under one of the arms, seed by seed.",
    keys: &[
        key("against", "arm", Required, "whose speeds count as 1"),
        key(
            "of",
            "work or completion",
            Required,
            "speed: useful work, or one by the time until all is done",
        ),
    ],
};

pub static ROW: Kind = Kind {
    label: "A row",
    header: "[[experiment.run.rows]]",
    help: "",
    says: "A metric, for each variant.",
    keys: &[
        key(
            "metric",
            "\"name\"",
            Required,
            "what is shown; index, index.NAME: of the paper's [[index]]",
        ),
        key(
            "label",
            "\"words\"",
            Required,
            "with the unit, where the head does not say it",
        ),
        key(
            "per",
            "number",
            Is("1"),
            "base units per unit shown: 1e6 for ms, 0.01 for %",
        ),
    ],
};

pub static FIGURE: Kind = Kind {
    label: "A figure",
    header: "[experiment.figure]",
    help: "",
    says: "The means and intervals of an experiment's tables as a picture.",
    keys: &[
        key(
            "form",
            "bars or lines",
            Required,
            "as the paper's figure has it",
        ),
        key(
            "over",
            "rows or variants",
            Required,
            "what stands along the x axis",
        ),
        key(
            "runs",
            "list of names",
            Said("the first run"),
            "whose tables are drawn",
        ),
        key(
            "rows",
            "list of labels",
            Said("all rows"),
            "of these tables",
        ),
        key(
            "arms",
            "list of names",
            Said("all arms of the runs"),
            "which are drawn",
        ),
        key(
            "variant",
            "ADDRESS=VALUE",
            Said("all variants"),
            "the only one that is drawn",
        ),
        key("x", "\"words\"", Required, "along the x axis"),
        key(
            "y",
            "\"words\"",
            Required,
            "along the y axis, with the unit",
        ),
    ],
};

pub static TRACE: Kind = Kind {
    label: "A trace",
    header: "[[experiment.trace]]",
    help: "",
    says: "How many CPUs of each kind each VM uses, step by step: a run and a figure for each arm, and one table.",
    keys: &[
        key("name", "\"name\"", Required, "in the names of its figures"),
        key("scenario", "\"file\"", Required, "beside paper.toml"),
        key(
            "arms",
            "list of names",
            Is("[]"),
            "only these, in this order; all if none are named",
        ),
        key("set", "list of ADDRESS=VALUE", Is("[]"), "for all of it"),
        key("seed", "whole number", Is("1"), "of its runs"),
        key(
            "step",
            "duration",
            Is("\"1s\""),
            "of the run's time, warm-up too",
        ),
    ],
};

pub static TABLE: Kind = Kind {
    label: "A table",
    header: "[[table]]",
    help: "",
    says: "What runs of several experiments have, in one table: a line for each run.",
    keys: &[
        key("id", "\"name\"", Required, "as the page calls it"),
        key("title", "\"words\"", Required, "what it shows"),
        key(
            "note",
            "\"words\"",
            Said("none"),
            "what its reader must know",
        ),
        key("head", "\"words\"", Required, "of the first column"),
        key(
            "columns",
            "list of tables",
            Required,
            "{ head, arm, metric, per }",
        ),
        key(
            "lines",
            "list of tables",
            Required,
            "{ label, experiment, run, words }",
        ),
    ],
};

pub static COLUMN: Kind = Kind {
    label: "A column",
    header: "[[table.columns]]",
    help: "",
    says: "A metric of an arm; without both, what the lines' `words` say, one after the other.",
    keys: &[
        key("head", "\"words\"", Required, "with the unit"),
        key("arm", "arm", Said("words"), "whose metric"),
        key(
            "metric",
            "\"name\"",
            Said("words"),
            "a row of every run that the lines name",
        ),
        key(
            "per",
            "number",
            Is("1"),
            "base units per unit shown: 1e6 for ms, 0.01 for %",
        ),
    ],
};

pub static LINE: Kind = Kind {
    label: "A line",
    header: "[[table.lines]]",
    help: "",
    says: "A run, which has neither `vary` nor `each`.",
    keys: &[
        key("label", "\"words\"", Required, "in the first column"),
        key("experiment", "\"name\"", Required, "whose run it is"),
        key("run", "\"name\"", Required, "its name there"),
        key(
            "words",
            "list of words",
            Is("[]"),
            "for each column of words, in their order",
        ),
    ],
};
