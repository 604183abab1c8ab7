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

/// Where a variant is caught.
enum Where {
    /// Scenario, faults, bound on switches.
    Search(&'static str, u32, Option<u32>),
    /// Profile and first seed to try, and how many.
    Run(&'static str, u64, u64),
}

fn caught(variant: Variant, place: &Where) -> Option<String> {
    match *place {
        Where::Search(name, faults, switches) => {
            let found = search(name, variant, bounds(faults, 200_000, switches));
            found.violation.map(|v| format!("{v} [{} states of {name}]", found.states))
        }
        Where::Run(name, first, count) => (first..first + count).find_map(|seed| {
            let outcome = random::run(seed, profile(name), variant);
            let omitted = outcome.counts.get("omitted").is_some_and(|count| *count > 0);
            let violation = outcome.violations.into_iter().next().or(omitted.then(|| "a comment was omitted".into()));
            violation.map(|violation| format!("{violation} [{name}, seed {seed}]"))
        }),
    }
}

#[test]
fn each_known_way_to_break_it_is_caught() {
    use Mutation::*;
    use Where::{Run, Search};
    let table: Vec<(Variant, Where)> = vec![
        (SealsCollected.into(), Search("fence", 0, None)),
        (NoLookAfterSeal.into(), Search("stale", 0, None)),
        (NoLookBeforeSeal.into(), Search("stray", 0, Some(4))),
        (LooksOnlyAboveSeal.into(), Search("stale", 1, None)),
        (NoSeal.into(), Search("fence", 0, None)),
        (Flaw::JournalUnfenced.into(), Search("fence", 0, None)),
        (Flaw::AckEarly.into(), Search("fence", 0, None)),
        (Flaw::DuplicateAnsweredEarly.into(), Search("dup", 0, None)),
        (Flaw::CommentBeforeCommit.into(), Search("apply", 0, None)),
        (Flaw::SpawnBeforeCommit.into(), Search("apply", 0, None)),
        (Flaw::ApplyRepeated.into(), Search("apply", 0, None)),
        (Flaw::InboxDeletedFirst.into(), Search("inbox", 0, None)),
        (Flaw::IdsForgotten.into(), Search("inbox", 0, None)),
        (RefusedIsSuccess.into(), Search("fence", 0, None)),
        (NextPlaceTaken.into(), Search("fence", 1, None)),
        (RetryRegroupedSameWriter.into(), Search("fence", 1, None)),
        (RetryRegrouped.into(), Search("fence", 1, None)),
        (AnswerNotAwaited.into(), Search("fence", 1, None)),
        (Flaw::BaseDirty.into(), Search("base", 0, None)),
        (Variant { mutation: Some(BaseUnchecked), flaw: Some(Flaw::BaseAhead) }, Search("base", 0, None)),
        (GapStops.into(), Search("gcread", 0, None)),
        (LeaseDeleted.into(), Search("release", 0, None)),
        (Flaw::MarkedFirst.into(), Run("chaos", 0, 60)),
        (DeadlineFromAnswer.into(), Run("slow", 0, 60)),
    ];
    for (variant, place) in table {
        let start = std::time::Instant::now();
        let found = caught(variant, &place);
        eprintln!("{variant:?}: {found:?} {:?}", start.elapsed());
    }
}
