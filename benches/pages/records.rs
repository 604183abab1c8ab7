//! Sizes of the state, and the names and ids in it: each is computed of its number.

use jiff::{SignedDuration, Timestamp};
use tidelock_core::domain::{JobId, ProjectId, PullId, RepoId, RunId};

/// Repositories. Half of all pull requests are of the first one.
pub(crate) const REPOS: usize = 50;
/// Directories of a repository, each with these workspaces.
pub(crate) const DIRS: usize = 200;
pub(crate) const WORKSPACES: [&str; 3] = ["default", "prod", "staging"];
/// Pull requests that are open, the newest ones.
pub(crate) const OPEN: usize = 300;
/// Projects of a pull request.
pub(crate) const PROJECTS_OF_PULL: usize = 4;
/// Number of people.
pub(crate) const PEOPLE: usize = 120;
/// A person, and an act, that only the oldest entry of the audit log has.
pub(crate) const FIRST_PERSON: &str = "retired";
pub(crate) const FIRST_ACT: &str = "repository ended";

/// Number of records of each kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) pulls: usize,
    pub(crate) runs: usize,
    /// Jobs, which are those of the latest runs: the server keeps no more.
    pub(crate) jobs: usize,
    pub(crate) audit: usize,
    /// Time that is now.
    pub(crate) now: Timestamp,
}

impl Sizes {
    /// Returns the sizes of a state that is this many times smaller than the whole one.
    pub(crate) fn of_share(share: usize) -> Sizes {
        Sizes {
            pulls: 10_000 / share,
            runs: 100_000 / share,
            jobs: 10_000 / share,
            audit: 1_000_000 / share,
            now: Timestamp::now(),
        }
    }

    /// Returns the time of the record with this number of `all`, which lie evenly within some days.
    pub(crate) fn time(&self, number: usize, all: usize, days: i64) -> Timestamp {
        let span = SignedDuration::from_hours(days * 24).as_micros();
        let before = span * (all - number) as i128 / all as i128;
        let micros = i64::try_from(before).unwrap_or_default();
        self.now.checked_sub(SignedDuration::from_micros(micros)).unwrap_or(self.now)
    }

    /// Returns the number of the first open pull request.
    pub(crate) fn first_open(&self) -> usize {
        self.pulls.saturating_sub(OPEN)
    }
}

/// Returns numbers without an order, the same for the same kind and number.
pub(crate) fn mixed(kind: u64, number: usize) -> u64 {
    // splitmix64
    let mut state = (number as u64).wrapping_add(kind << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

fn bits(kind: u64, number: usize) -> u128 {
    u128::from(mixed(kind, number)) << 64 | u128::from(mixed(kind + 1, number))
}

pub(crate) fn run_id(number: usize) -> RunId {
    RunId::from_bits(bits(1, number))
}

pub(crate) fn job_id(number: usize) -> JobId {
    JobId::from_bits(bits(3, number))
}

/// Returns hexadecimal digits, as a commit or a hash has them.
pub(crate) fn digits(kind: u64, number: usize, length: usize) -> String {
    let mut text = format!("{:032x}{:032x}", bits(kind, number), bits(kind + 2, number));
    text.truncate(length);
    text
}

/// Returns the identity of the delivery that caused a run.
pub(crate) fn delivery_id(run: usize) -> String {
    digits(30, run, 64)
}

/// Returns a repository. Its host is not one of the server's, which would compare the pull requests with it.
pub(crate) fn repo(number: usize) -> RepoId {
    let name = if number == 0 { "platform".to_owned() } else { format!("team-{number:02}") };
    RepoId { host: "github.example.com".into(), owner: "acme".into(), name }
}

pub(crate) fn repo_of(pull: usize) -> usize {
    if pull.is_multiple_of(2) { 0 } else { 1 + pull / 2 % (REPOS - 1) }
}

pub(crate) fn pull_id(pull: usize) -> PullId {
    PullId { repo: repo(repo_of(pull)), number: pull as u64 / 2 + 1 }
}

pub(crate) fn person(number: usize) -> String {
    format!("person-{:03}", mixed(9, number) as usize % PEOPLE)
}

/// Returns a project; one in three has a name.
pub(crate) fn project(dir: usize, workspace: usize) -> ProjectId {
    let workspace = WORKSPACES[workspace % WORKSPACES.len()];
    let dir = dir % DIRS;
    let name = dir.is_multiple_of(3).then(|| format!("service-{dir:03}-{workspace}"));
    ProjectId { dir: format!("live/europe-west1/service-{dir:03}"), workspace: workspace.to_owned(), name }
}

/// Returns the projects of a pull request.
pub(crate) fn projects_of(pull: usize) -> impl Iterator<Item = ProjectId> {
    let first = pull / 2 * PROJECTS_OF_PULL;
    (first..first + PROJECTS_OF_PULL).map(|number| project(number, number / DIRS))
}

/// Returns the pull request of a run.
pub(crate) fn pull_of(run: usize, sizes: &Sizes) -> usize {
    run * sizes.pulls / sizes.runs
}
