//! Tests the rules of mode `strict` with random histories of pull requests. The judge derives from the history alone which changes are
//! applied, which are merged, and which plans are out of date. The seeded faults of [`faults`] test the judge.

mod faults;
mod history;
mod judge;
mod looks;
mod merges;
mod names;
mod parts;
mod plans;
mod turns;

use faults::Fault;
use history::{Action, Simulation};
use std::time::{Duration, Instant};

/// A small generator of numbers that a seed repeats exactly.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// Actions of one history.
const LENGTH: usize = 60;
/// Most histories to try until each fault is found.
const PATIENCE: u64 = 20_000;
/// Environment variable with the duration of a longer test, in seconds.
const LONGER: &str = "LOCKS_MODEL_SECONDS";

/// Plays a history; the error is the judge's finding on the first wrong step.
fn play(actions: &[Action], fault: Option<Fault>) -> Result<(), String> {
    let mut simulation = Simulation::new(fault);
    for (at, action) in actions.iter().enumerate() {
        simulation.act(action).map_err(|wrong| format!("step {at}, {action:?}: {wrong}"))?;
    }
    Ok(())
}

/// Returns the error of a seed's history, with as few actions as still show it.
fn wrong(seed: u64, fault: Option<Fault>) -> Option<String> {
    let mut numbers = Numbers(seed);
    let mut actions: Vec<Action> = (0..LENGTH).map(|_| Action::random(&mut numbers)).collect();
    play(&actions, fault).err()?;
    let mut at = actions.len();
    while at > 0 {
        at -= 1;
        let mut fewer = actions.clone();
        fewer.remove(at);
        if play(&fewer, fault).is_err() {
            actions = fewer;
        }
    }
    let said = play(&actions, fault).err().unwrap_or_default();
    Some(format!("seed {seed}: {said}\n{actions:#?}"))
}

#[test]
fn no_history_of_strict_pull_requests_breaks_a_rule() {
    let seconds = std::env::var(LONGER).ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let (began, first) = (Instant::now(), u64::from(std::process::id()) << 32);
    let mut seed = first;
    while began.elapsed() < Duration::from_secs(seconds) {
        if let Some(wrong) = wrong(seed, None) {
            panic!("{wrong}");
        }
        seed += 1;
    }
    assert!(seed - first > 100, "only {} histories were played", seed - first);
    println!("locks: {} histories of {LENGTH} actions", seed - first);
}

#[test]
fn each_seeded_fault_is_found_within_seconds() {
    assert!(Fault::ALL.len() >= 20);
    for fault in Fault::ALL {
        let found = (0..PATIENCE).find(|seed| {
            let mut numbers = Numbers(*seed);
            let actions: Vec<Action> = (0..LENGTH).map(|_| Action::random(&mut numbers)).collect();
            play(&actions, Some(fault)).is_err()
        });
        assert!(found.is_some(), "{fault:?} is not found in {PATIENCE} histories");
    }
}
