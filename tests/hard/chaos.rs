//! Tests for losses when a server is killed: pull requests are planned, applied and closed on a forge while the server, a process of its
//! own, is killed at a random moment and started again. The observations from outside are judged.
//!
//! Each test plays one way to end on one host, with locks as in Atlantis or in mode `strict` (`chaos::strict`); `chaos::executors` has the
//! jobs at an executor. More trials by hand, and the ones of a failure again (their timing never repeats exactly):
//!
//!     TIDELOCK_CHAOS_TRIALS=60 TIDELOCK_CHAOS_SEED=7 cargo test --test hard -- chaos::azure_devops::sigkill_lost --nocapture

#![expect(clippy::print_stdout, reason = "whoever runs many trials reads how they went")]

mod approvals;
#[path = "../it/kubernetes/cluster.rs"]
#[expect(dead_code, reason = "the tests of Kubernetes use the rest of it")]
mod cluster;
mod engines;
mod job_ends;
mod job_ends_tests;
mod job_kills;
mod judge;
mod judge_tests;
mod owners;
mod owners_tests;
mod player;
mod processes;
mod rest;
mod server;
mod trace;

use approvals::ApplyCause;
use engines::JobEngine;
use player::Trial;
use server::Ending;
use std::time::Instant;
use tidelock_forge::HostKind;
use trace::{JobsAt, Locking};

/// Trials of each test, unless the environment says more.
const TRIALS: u64 = 1;
/// Trials at the same time; most of a trial is waiting.
const MAX_CONCURRENT: u64 = 2;

/// Generates numbers from a seed (splitmix64).
#[derive(Clone)]
pub(crate) struct Seeded(u64);

impl Seeded {
    pub(crate) fn new(seed: u64) -> Seeded {
        Seeded(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns one of them.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |text| text.parse().expect("a number"))
}

/// Plays the trials of one test, and reports all violations at its end.
fn play(host: HostKind, locking: Locking, jobs: JobsAt, ending: Ending) {
    play_with(Trial { host, locking, jobs, applies: ApplyCause::Comment, ending, seed: 0 });
}

/// Does the same with seeds in place of this trial's.
fn play_with(like: Trial) {
    let Trial { host, locking, jobs, ending, .. } = like;
    let (trials, seed) = (number("TIDELOCK_CHAOS_TRIALS", TRIALS), number("TIDELOCK_CHAOS_SEED", 1));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let began = Instant::now();
    let violations = runtime.block_on(async {
        let one = async |first: u64| {
            let mut found = Vec::new();
            for number in (first..trials).step_by(MAX_CONCURRENT as usize) {
                let trial = Trial { seed: seed.wrapping_mul(1_000_003).wrapping_add(number), ..like };
                let played = Instant::now();
                let violations = trial.play().await;
                println!(
                    "{host:?} {locking:?} {jobs:?} {ending:?} seed {}: {} violations, {:.1?}",
                    trial.seed,
                    violations.len(),
                    played.elapsed()
                );
                found.extend(violations.into_iter().map(|violation| format!("seed {}: {violation}", trial.seed)));
            }
            found
        };
        let (one, other) = tokio::join!(one(0), one(1));
        [one, other].concat()
    });
    println!(
        "{host:?} {locking:?} {jobs:?} {ending:?}: {trials} trials in {:.0?}, {} violations",
        began.elapsed(),
        violations.len()
    );
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

macro_rules! in_each_place {
    ($($name:ident: $ending:expr;)*) => {
        mod github {
            use super::*;
            $(#[test] fn $name() { play(HostKind::Github, Locking::OnPlan, JobsAt::Server, $ending); })*
        }

        mod azure_devops {
            use super::*;
            $(#[test] fn $name() { play(HostKind::AzureDevOps, Locking::OnPlan, JobsAt::Server, $ending); })*
        }

        mod strict {
            use super::*;
            $(#[test] fn $name() { play(HostKind::Github, Locking::Strict, JobsAt::Server, $ending); })*
        }

        mod strict_on_azure_devops {
            use super::*;
            $(#[test] fn $name() { play(HostKind::AzureDevOps, Locking::Strict, JobsAt::Server, $ending); })*
        }

        mod every_ending_on_gitlab {
            use super::*;
            $(#[test]
            #[ignore = "by hand, with TIDELOCK_CHAOS_TRIALS: CI plays the hardest endings"]
            fn $name() {
                play(HostKind::Gitlab, Locking::OnPlan, JobsAt::Server, $ending);
            })*
        }
    };
}

/// The other hosts differ in their doors and API clients alone, so they play the hardest endings, with both locks.
macro_rules! on_other_hosts {
    ($($name:ident: $host:ident;)*) => {
        $(mod $name {
            use super::*;
            #[test] fn sigkill_lost() {
                play(HostKind::$host, Locking::OnPlan, JobsAt::Server, Ending::Sigkill { disk_lost: true });
            }
            #[test] fn strict_sigterm_overlap() {
                play(HostKind::$host, Locking::Strict, JobsAt::Server, Ending::SigtermOverlap);
            }
        })*
    };
}

on_other_hosts! {
    gitlab: Gitlab;
    gitea: Gitea;
    bitbucket_cloud: BitbucketCloud;
    bitbucket_data_center: BitbucketDataCenter;
}

/// Approvals cause the applies.
mod approvals_apply {
    use super::*;

    macro_rules! with_each_ending {
        ($($name:ident: $host:ident, $ending:expr;)*) => {
            $(#[test] fn $name() {
                let (host, locking, jobs) = (HostKind::$host, Locking::OnPlan, JobsAt::Server);
                play_with(Trial { host, locking, jobs, applies: ApplyCause::Approval, ending: $ending, seed: 0 });
            })*
        };
    }

    with_each_ending! {
        none: Github, Ending::None;
        sigkill_kept: Github, Ending::Sigkill { disk_lost: false };
        sigkill_lost: Gitlab, Ending::Sigkill { disk_lost: true };
        sigterm_overlap: Github, Ending::SigtermOverlap;
    }
}

/// Jobs run at an executor, and go on when the server ends. In most trials some are killed. The engine is `process`, or what
/// `TIDELOCK_CHAOS_ENGINE` names.
mod executors {
    use super::*;

    fn play_jobs(host: HostKind, locking: Locking, ending: Ending) {
        play(host, locking, JobsAt::Executor(JobEngine::chosen()), ending);
    }

    macro_rules! with_both_locks {
        ($($name:ident: $ending:expr;)*) => {
            mod on_plan {
                use super::*;
                $(#[test] fn $name() { play_jobs(HostKind::AzureDevOps, Locking::OnPlan, $ending); })*
            }

            mod strict {
                use super::*;
                $(#[test] fn $name() { play_jobs(HostKind::Github, Locking::Strict, $ending); })*
            }
        };
    }

    with_both_locks! {
        none: Ending::None;
        sigkill_kept: Ending::Sigkill { disk_lost: false };
        sigkill_lost: Ending::Sigkill { disk_lost: true };
        sigterm_lost: Ending::Sigterm { disk_lost: true };
        sigterm_overlap: Ending::SigtermOverlap;
    }
}

in_each_place! {
    none: Ending::None;
    sigkill_kept: Ending::Sigkill { disk_lost: false };
    sigkill_lost: Ending::Sigkill { disk_lost: true };
    sigterm_kept: Ending::Sigterm { disk_lost: false };
    sigterm_overlap: Ending::SigtermOverlap;
}
