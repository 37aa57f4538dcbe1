// SPDX-License-Identifier: GPL-2.0-only
//! With `auto` a policy acts where it can, and the optimiser where it cannot.
use crate::paper::{Paper, Place, place, policy};
use berth_agent::agent::{Agent, AgentError, Event, Started};
use berth_agent::backend::{Backend, End, Policy, Ready, Trouble, Way, Ways};
use berth_agent::rules::Rules;
use berth_agent::tripwire::LIMIT;
use berth_host::model::Snapshot;
use std::time::Duration;

/// A policy that may be replaced: `cgroup` has a paper of its own.
fn two_ways() -> (Place, Paper) {
    let mut p = place(Rules::default());
    let other = Paper::default();
    let ways = Ways {
        scx: Box::new(p.paper.clone()),
        cgroup: Box::new(Optimising(other.clone())),
    };
    p.agent = Agent::by(ways, p.root.clone(), Rules::default(), Some(LIMIT));
    (p, other)
}

/// Loads what has no object.
struct Optimising(Paper);

impl Backend for Optimising {
    fn able(&self) -> Result<(), Trouble> {
        Ok(())
    }
    fn obstacles(&self, vms: &Snapshot, ours: bool) -> Vec<String> {
        self.0.obstacles(vms, ours)
    }
    fn danger(&self, _: &Snapshot) -> Option<String> {
        None
    }
    fn load(&self, policy: &Policy) -> Result<Box<dyn Ready>, Trouble> {
        self.0.load(&Policy {
            object: b"x".to_vec(),
            ..policy.clone()
        })
    }
}

fn auto() -> Policy {
    Policy {
        backend: Way::Auto,
        ..policy("a", &[])
    }
}

fn acts(p: &Place) -> (String, Option<String>) {
    let status = p.agent.status().policy.unwrap();
    (status.name, status.instead_of.map(|(_, why)| why))
}

#[test]
fn the_optimiser_acts_where_the_policy_cannot() {
    let (mut p, _) = two_ways();
    p.paper.notes.borrow_mut().obstacle = Some("no pencil".into());
    p.agent.start(auto()).unwrap();
    assert_eq!(acts(&p), ("optimiser".into(), Some("no pencil".into())));
    // A policy that is to act by one way only stays refused.
    let only = policy("a", &[]);
    assert!(matches!(p.agent.start(only), Err(AgentError::Refused(_))));
    // It is not tried by itself: the reason does not go away.
    p.paper.notes.borrow_mut().obstacle = None;
    p.root.sleep(Duration::from_secs(3600));
    p.agent.tick().unwrap();
    assert_eq!(acts(&p).0, "optimiser");
    // When the operator says so, it is.
    p.agent.start(auto()).unwrap();
    assert_eq!(acts(&p), ("a".into(), None));
}

/// But it is where the reason may go away.
#[test]
fn the_optimiser_acts_until_what_passes_has_passed() {
    let (mut p, _) = two_ways();
    p.paper.notes.borrow_mut().short = 3;
    p.agent.start(auto()).unwrap();
    let (name, why) = acts(&p);
    assert_eq!(name, "optimiser");
    assert!(why.unwrap().ends_with("no ink at hand"));
    p.root.sleep(Duration::from_secs(29));
    p.agent.tick().unwrap();
    assert_eq!(acts(&p).0, "optimiser", "not yet");
    p.root.sleep(Duration::from_secs(1));
    p.agent.tick().unwrap();
    assert_eq!(acts(&p), ("a".into(), None));
}

/// For each try the optimiser has to go: what does not pass is given up.
#[test]
fn what_never_passes_is_given_up() {
    let (mut p, other) = two_ways();
    p.paper.notes.borrow_mut().short = u32::MAX;
    p.agent.start(auto()).unwrap();
    for _ in 0..60 {
        p.root.sleep(Duration::from_secs(10));
        p.agent.tick().unwrap();
        assert_eq!(acts(&p).0, "optimiser");
    }
    let starts = |paper: &Paper, what| paper.said().iter().filter(|s| *s == what).count();
    assert_eq!(
        starts(&p.paper, "start a"),
        4 * 3,
        "asked for once, then by itself three times"
    );
    assert_eq!(starts(&other, "start optimiser"), 4);
}

#[test]
fn other_settings_of_the_optimiser_take_a_new_one() {
    let (mut p, other) = two_ways();
    let optimiser = |set: &[(&str, &str)]| Policy {
        parameters: set
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect(),
        ..Policy::optimiser(false)
    };
    assert_eq!(p.agent.start(optimiser(&[])).unwrap(), Started::Loaded);
    assert_eq!(p.agent.start(optimiser(&[])).unwrap(), Started::Changed);
    assert_eq!(
        p.agent.start(optimiser(&[("reserve", "0.2")])).unwrap(),
        Started::Switched
    );
    let said = other.said();
    assert_eq!(
        said.iter().filter(|s| *s == "start optimiser").count(),
        2,
        "{said:?}"
    );
    assert_eq!(
        p.agent.status().policy.unwrap().parameters["reserve"],
        "0.2"
    );
}

#[test]
fn neither_can_act() {
    let (mut p, other) = two_ways();
    p.paper.notes.borrow_mut().obstacle = Some("no pencil".into());
    other.notes.borrow_mut().obstacle = Some("no knobs".into());
    let error = p.agent.start(auto()).unwrap_err().to_string();
    assert!(
        error.contains("no pencil") && error.contains("no knobs"),
        "{error}"
    );
    assert!(p.agent.status().policy.is_none());
}

#[test]
fn a_policy_that_is_ended_is_tried_again_and_after_three_ends_no_more() {
    let (mut p, other) = two_ways();
    p.agent.start(auto()).unwrap();
    let end = |p: &mut Place, why: &str| {
        p.paper.notes.borrow_mut().end = Some(End {
            why: why.into(),
            again: false,
        });
        // Asked often, acted on once.
        assert!(p.agent.notices_end().unwrap() && p.agent.notices_end().unwrap());
        p.agent.tick().unwrap()
    };
    assert!(!p.agent.notices_end().unwrap());
    for (turn, pause) in [(0, 30), (1, 60)] {
        let events = end(&mut p, "it stalled");
        assert!(
            events
                .iter()
                .any(|e| matches!(e, Event::FellBack(why) if why.contains("it stalled")))
        );
        assert_eq!(acts(&p).0, "optimiser", "{turn}");
        p.root.sleep(Duration::from_secs(pause - 1));
        p.agent.tick().unwrap();
        assert_eq!(acts(&p).0, "optimiser", "not yet");
        p.root.sleep(Duration::from_secs(1));
        let events = p.agent.tick().unwrap();
        assert!(events.contains(&Event::Back("a".into())), "{events:?}");
        assert_eq!(acts(&p), ("a".into(), None));
    }
    end(&mut p, "it stalled");
    p.root.sleep(Duration::from_secs(400));
    p.agent.tick().unwrap();
    assert_eq!(acts(&p).0, "optimiser", "three times in ten minutes");
    // Nor if it is asked for.
    p.agent.start(auto()).unwrap();
    assert!(acts(&p).1.unwrap().contains("too often"));
    assert_eq!(p.agent.stop().unwrap(), "optimiser");
    assert!(other.said().contains(&"end optimiser".to_string()));
}

#[test]
fn a_try_that_fails_leaves_the_optimiser() {
    let (mut p, _) = two_ways();
    p.agent.start(auto()).unwrap();
    let end = End {
        why: "gone".into(),
        again: false,
    };
    p.paper.notes.borrow_mut().end = Some(end);
    p.agent.tick().unwrap();
    p.paper.notes.borrow_mut().obstacle = Some("no pencil".into());
    p.root.sleep(Duration::from_secs(31));
    p.agent.tick().unwrap();
    assert_eq!(acts(&p), ("optimiser".into(), Some("no pencil".into())));
}
