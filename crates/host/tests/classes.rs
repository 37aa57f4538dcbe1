// SPDX-License-Identifier: GPL-2.0-only
//! The automatic class against generated loads: thresholds from one set, judged on another.
mod loads;

use berth_host::class::{Class, Classifier, Rules, VmSample};
use loads::{Load, Random, Set};
use std::collections::BTreeMap;

/// Seconds that a load is watched.
const WATCHED: usize = 40;

struct Watched {
    load: Load,
    samples: Vec<VmSample>,
}

fn watched(set: Set, count: usize) -> Vec<Watched> {
    let watch = |load: Load| Watched {
        samples: load.samples(WATCHED),
        load,
    };
    loads::loads(set, count).into_iter().map(watch).collect()
}

fn class(rules: Rules, samples: &[VmSample]) -> Class {
    let mut classifier = Classifier::new(rules);
    for sample in samples {
        classifier.feed(sample);
    }
    classifier.verdict().unwrap().class
}

/// Part that is right, of all.
fn right(rules: Rules, set: &[Watched]) -> f64 {
    let right = set
        .iter()
        .filter(|w| class(rules, &w.samples) == w.load.truth);
    right.count() as f64 / set.len() as f64
}

/// Macro F1: the mean over classes of the harmonic mean of precision and recall.
fn macro_f1(verdicts: &[(Class, Class)]) -> f64 {
    let classes = [Class::Latency, Class::Batch, Class::Mixed];
    let f1 = |c: Class| {
        let count =
            |f: &dyn Fn(&(Class, Class)) -> bool| verdicts.iter().filter(|v| f(v)).count() as f64;
        let hit = count(&|v| v.0 == c && v.1 == c);
        2.0 * hit / (count(&|v| v.0 == c) + count(&|v| v.1 == c))
    };
    classes.into_iter().map(f1).sum::<f64>() / 3.0
}

/// Who looks.
#[derive(Clone, Copy, Debug)]
enum Sees {
    /// Any user: /proc.
    Proc,
    /// Root, with debugfs mounted: halts too.
    Debugfs,
    /// Root where BPF is allowed: bursts too.
    All,
}

fn stripped(samples: &[VmSample], sees: Sees) -> Vec<VmSample> {
    let mut samples = samples.to_vec();
    for sample in &mut samples {
        if matches!(sees, Sees::Proc) {
            sample.halts = None;
        }
        if !matches!(sees, Sees::All) {
            sample.vcpus.iter_mut().for_each(|v| v.bursts = None);
        }
    }
    samples
}

/// Judges a set as three kinds of observers see it; gives for each the part that is right, and macro F1.
fn judge(set: &[Watched]) -> Vec<(Sees, f64, f64)> {
    let observers = [Sees::All, Sees::Debugfs, Sees::Proc].into_iter();
    observers
        .map(|sees| {
            let mut kinds: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
            let mut verdicts = Vec::new();
            for w in set {
                let said = class(Rules::default(), &stripped(&w.samples, sees));
                let kind = kinds.entry(w.load.kind).or_default();
                kind.0 += u32::from(said == w.load.truth);
                kind.1 += 1;
                verdicts.push((w.load.truth, said));
            }
            for (kind, (right, all)) in &kinds {
                println!("{kind:34} {right:3} of {all}");
            }
            let hits = verdicts.iter().filter(|v| v.0 == v.1).count();
            let right = hits as f64 / set.len() as f64;
            let f1 = macro_f1(&verdicts);
            println!("{sees:?}: {:.1} % right, macro F1 {f1:.3}\n", right * 100.0);
            (sees, right, f1)
        })
        .collect()
}

#[test]
fn the_class_is_right_for_loads_that_nothing_was_fitted_on() {
    for (sees, right, f1) in judge(&watched(Set::HeldOut, 920)) {
        let least = if matches!(sees, Sees::All) {
            0.95
        } else {
            0.85
        };
        assert!(right >= least, "{sees:?} {right}");
        assert!(f1 >= least, "{sees:?} {f1}");
    }
}

/// The seeds were written down before the first run (`loads::JUDGES`): whatever comes out is what is reported. A change
/// of the classifier that is made because of this test makes it worthless.
#[test]
fn the_class_is_right_for_seeds_that_nobody_had_looked_at() {
    for (sees, right, f1) in judge(&watched(Set::Judges, 1380)) {
        assert!(right >= 0.95, "{sees:?} {right}");
        assert!(f1 >= 0.95, "{sees:?} {f1}");
    }
}

#[test]
fn the_thresholds_are_what_the_training_set_gives() {
    let set = watched(Set::Training, 460);
    let kept = right(Rules::default(), &set);
    let mut best = (0.0, Rules::default());
    for long_ns in [2.5e6, 4e6, 6e6] {
        for tail_ns in [8e6, 16e6, 32e6] {
            for (housekeeping_per_s, latency_per_s) in [
                (10.0, 5.0),
                (10.0, 20.0),
                (20.0, 20.0),
                (30.0, 40.0),
                (60.0, 60.0),
            ] {
                for (batch_cpus, batch_part) in
                    [(0.1, 0.1), (0.2, 0.1), (0.1, 0.2), (0.2, 0.2), (0.2, 0.3)]
                {
                    let rules = Rules {
                        long_ns,
                        tail_ns,
                        housekeeping_per_s,
                        latency_per_s,
                        batch_cpus,
                        batch_part,
                        ..Rules::default()
                    };
                    let right = right(rules, &set);
                    if right > best.0 {
                        best = (right, rules);
                    }
                }
            }
        }
    }
    println!("kept {kept:.4}, best {:.4} with {:?}", best.0, best.1);
    assert!(kept >= best.0 - 0.005, "{kept} {best:?}");
}

/// Hours out of seconds that were generated: drawn again and again, under a load that drifts.
/// A privilege that is clearly not earned is taken after 10 s, however lately it was given: a server that now and then
/// is as busy as a hog may change twice.
#[test]
fn a_steady_load_hardly_ever_changes_its_class() {
    const HOURS: usize = 3;
    const SETTLING: usize = 120;
    let mut worst = 0;
    let (mut changed, mut more) = (0, 0);
    // Half of them by the seeds that were written down beforehand.
    let mut set = watched(Set::HeldOut, 96);
    set.extend(watched(Set::Judges, 96));
    for (n, w) in set.iter().enumerate() {
        let mut random = Random::new(n as u64);
        let mut classifier = Classifier::new(Rules::default());
        let mut hours = [0; HOURS];
        let mut drift = 1.0f64;
        for second in 0..SETTLING + HOURS * 3600 {
            drift = (drift * random.scale(0.98, 1.02)).clamp(0.7, 1.4);
            let mut sample = w.samples[5 + random.below(WATCHED - 5)].clone();
            for v in &mut sample.vcpus {
                v.wakeups = (v.wakeups as f64 * drift) as u64;
                v.run_ns = ((v.run_ns as f64 * drift) as u64).min(1_000_000_000);
            }
            let flip = classifier.feed(&sample).is_some();
            if flip && second >= SETTLING {
                hours[(second - SETTLING) / 3600] += 1;
            }
        }
        let most = hours.into_iter().max().unwrap();
        if most > 0 {
            println!("{}: {hours:?}", w.load.kind);
        }
        worst = worst.max(most);
        changed += usize::from(most > 0);
        more += usize::from(most > 1);
    }
    println!(
        "{changed} of 192 changed at all, {more} more than once in an hour, at most {worst} times"
    );
    assert!(worst <= 2 && more * 50 <= set.len(), "{worst} {more}");
}

#[test]
fn phases_are_followed() {
    // Latency, batch, latency, both.
    let mut wrong = 0;
    let rounds = 12;
    for seed in 0..rounds {
        let mut classifier = Classifier::new(Rules::default());
        for kind in [5, 0, 6, 13] {
            let load = loads::load(Set::HeldOut, kind, 500 + seed);
            let samples = load.samples(WATCHED);
            // Time to be believed again grows: 10 minutes, an hour.
            for sample in samples.iter().cycle().take(4200) {
                classifier.feed(sample);
            }
            // Loads that are taken for something else when they are new are the other test's business.
            let fresh = class(Rules::default(), &samples);
            let said = classifier.verdict().unwrap();
            if said.class != fresh {
                println!("seed {seed}, {}: {said:?}, alone {fresh}", load.kind);
                wrong += 1;
            }
        }
    }
    // A load at the very line may stay what it was.
    assert!(wrong <= 1, "{wrong} of {}", rounds * 4);
}
