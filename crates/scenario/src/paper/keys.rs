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
            "experiment",
            "list of tables",
            Said("none: its claims wait"),
            "[[experiment]]",
        ),
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
    ],
};

pub static ROW: Kind = Kind {
    label: "A row",
    header: "[[experiment.run.rows]]",
    help: "",
    says: "A metric, for each variant.",
    keys: &[
        key("metric", "\"name\"", Required, "what is shown"),
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
