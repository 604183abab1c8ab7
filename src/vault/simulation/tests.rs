//! What the simulation shows: the design holds, and each known way to break it is caught.

use super::random::{self, Outcome, PROFILES, Profile, profile};
use super::script::SCENARIOS;
use super::search::{Bounds, Found, search};
use super::{Flaw, Variant};
use crate::vault::mutation::Mutation;
use std::collections::BTreeMap;

/// Lines of a random run that are shown before its violation.
const SHOWN: usize = 150;

fn bounds(faults: u32, states: usize, switches: Option<u32>) -> Bounds {
    Bounds { faults, states, switches }
}

fn holds(name: &str, found: &Found) {
    if let Some(violation) = &found.violation {
        panic!("{name}: {violation}, after {} states\n  {}", found.states, found.schedule.join("\n  "));
    }
}

/// Many runs; what they counted together.
fn runs(profile: Profile, seeds: std::ops::Range<u64>) -> (BTreeMap<&'static str, u64>, BTreeMap<&'static str, f64>) {
    let (mut counts, mut without) = (BTreeMap::new(), BTreeMap::new());
    for seed in seeds {
        let Outcome { violations, schedule, counts: more, without: longest } =
            random::run(seed, profile, Variant::default());
        if let Some(violation) = violations.first() {
            let shown = &schedule[schedule.len().saturating_sub(SHOWN)..];
            panic!("{} seed {seed}: {violation}\n  {}", profile.name, shown.join("\n  "));
        }
        more.into_iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
        for (what, seconds) in longest {
            let worst: &mut f64 = without.entry(what).or_default();
            *worst = worst.max(seconds);
        }
    }
    (counts, without)
}

#[test]
fn the_design_holds_in_every_scenario() {
    for name in SCENARIOS {
        let start = std::time::Instant::now();
        let found = search(name, Variant::default(), bounds(0, 20_000, None));
        eprintln!("{name}: {} states, complete {}, {:?}", found.states, found.complete, start.elapsed());
        holds(name, &found);
    }
}

#[test]
fn the_design_holds_in_random_runs() {
    for profile in PROFILES {
        let start = std::time::Instant::now();
        let (counts, without) = runs(profile, 0..40);
        eprintln!("{}: {:?} {counts:?} {without:?}", profile.name, start.elapsed());
    }
}
