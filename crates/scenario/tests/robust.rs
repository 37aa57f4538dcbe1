// SPDX-License-Identifier: GPL-2.0-only
//! Whatever stands in a file or on the command line: a scenario or an error, never a panic.
use berth_scenario::{Edit, Input, edit, read, shipped, show};
use proptest::prelude::*;

fn try_it(text: String, edits: &[Edit]) {
    let input = Input {
        name: "x".into(),
        shown: "x.toml".into(),
        text,
        folder: None,
    };
    match read(&input, edits) {
        Ok(loaded) => {
            // What was accepted, printed in full, is accepted again and means the same.
            let mut again = input.clone();
            again.text = show::full(&loaded.facts);
            let second = read(&again, &[])
                .unwrap_or_else(|e| panic!("{}\n--\n{}\n--\n{e}", input.text, again.text));
            assert_eq!(loaded.scenario, second.scenario, "{}", input.text);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Pieces that mutations put in.
const PIECES: [&str; 34] = [
    "0",
    "-1",
    "4097",
    "99999999999999999999",
    "1e300",
    "nan",
    "\"",
    "\"\"\"",
    "'",
    "[",
    "]",
    "{",
    "}",
    "=",
    ".",
    ",",
    "\n",
    "#",
    "exp(",
    ")",
    "\"300us\"",
    "\"50%\"",
    "true",
    "1979-05-27",
    "[vm.web]",
    "[[expect]]",
    "vm.*.",
    "x baseline",
    "+-",
    "µ",
    "\u{0}",
    "\u{200d}",
    "file(\"/dev/zero\")",
    "[arm.linux]\nset = { \"vm.*.count\" = 0 }\n",
];

fn mutated() -> impl Strategy<Value = String> {
    let one = (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        0..4_u8,
        0..12_usize,
    );
    (0..shipped::SHIPPED.len(), prop::collection::vec(one, 1..6)).prop_map(|(which, changes)| {
        let mut text: Vec<char> = shipped::SHIPPED[which].1.chars().collect();
        for (place, piece, kind, len) in changes {
            let at = place.index(text.len().max(1)).min(text.len());
            let to = (at + len).min(text.len());
            let piece: Vec<char> = PIECES[piece.index(PIECES.len())].chars().collect();
            match kind {
                0 => drop(text.drain(at..to)),
                1 => drop(text.splice(at..at, piece)),
                2 => drop(text.splice(at..to, piece)),
                // A line moves elsewhere.
                _ => {
                    let line: Vec<char> = text[at..]
                        .iter()
                        .copied()
                        .take_while(|c| *c != '\n')
                        .chain(['\n'])
                        .collect();
                    let start = text[..to.min(at)]
                        .iter()
                        .rposition(|c| *c == '\n')
                        .map_or(0, |i| i + 1);
                    drop(text.splice(start..start, line));
                }
            }
        }
        text.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        try_it(String::from_utf8_lossy(&bytes).into_owned(), &[]);
    }

    #[test]
    fn random_lines(lines in prop::collection::vec("(\\[{1,2})?[a-z.*]{0,8}(\\]{1,2})?( = )?[-0-9a-z\"()%,. \
     ]{0,12}", 0..8)) {
        try_it(lines.join("\n"), &[]);
    }

    #[test]
    fn mutated_files(text in mutated()) {
        try_it(text, &[]);
    }

    #[test]
    fn random_edits(
        address in "(vm|host|task|arm|run|policy|client|compare|expect)?(\\.[a-z*]{0,7}){0,4}",
        value in ".{0,16}",
        vary in ".{0,30}",
    ) {
        let edits = [Edit::Set(format!("{address}={value}")), Edit::AddPolicy(value.clone())];
        try_it(shipped::SHIPPED[0].1.into(), &edits);
        let _ = edit::variants(&[vary]);
        let _ = edit::variants(&[format!("{address}={value}")]);
    }

    #[test]
    fn random_phrases(text in "[a-z]{0,9}[ (]?[-0-9a-z%\"/.,() +µ±]{0,30}") {
        let quoted = text.replace(['"', '\\'], "");
        try_it(format!("[vm.v]\ntasks = [\"t\"]\n[task.t]\nloop = [\"{quoted}\", \"sleep 1ms\"]\n"), &[]);
        try_it(format!("[vm.v]\ntasks = [\"t\"]\n[task.t]\nmodel = \"echo\"\n[client.c]\nto = \"v\"\nsends = \
         \"{quoted}\"\n"), &[]);
        try_it(format!("[vm.v]\ncap = \"{quoted}\"\naffinity = \"{quoted}\"\n[run]\nwarmup = \"{quoted}\"\n"), &[]);
    }
}

#[test]
fn deep_nesting() {
    for n in [10, 100, 1000, 100_000] {
        try_it(format!("x = {}", "[".repeat(n)), &[]);
        try_it(format!("x = {}{}", "[".repeat(n), "]".repeat(n)), &[]);
        try_it(format!("{} = 1", vec!["a"; n].join(".")), &[]);
        try_it(format!("[{}]", vec!["a"; n].join(".")), &[]);
        try_it(format!("[arm.a]\nset.{} = 1", vec!["a"; n].join(".")), &[]);
        try_it(
            String::new(),
            &[
                Edit::Set(format!("x={}", "[".repeat(n))),
                Edit::Set(format!("host.{}=1", vec!["a"; n].join("."))),
            ],
        );
    }
}
