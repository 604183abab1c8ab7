//! A server that ends between any two commits of a run: another one, with an empty disk, ends the run with one answer.

use crate::support::*;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};
use tidelock_forge::Pull;
use tidelock_storage_double::{Effect, Fault, Operation, Settings, StorageDouble};

/// Bucket of the double.
pub(crate) const BUCKET: &str = "acme-tidelock";
/// Trials at the same time: most of the time one waits for its processes.
const MAX_CONCURRENT: usize = 3;
/// Time limit of an undisturbed run.
const PATIENCE: Duration = Duration::from_secs(20);
/// The third project is in a later order group.
const CONFIG: &str =
    "version: 3\nprojects:\n  - dir: one\n  - dir: two\n  - dir: three\n    execution_order_group: 1\n";
const PROJECTS: [&str; 3] = ["one", "two", "three"];

#[derive(Clone, Copy, PartialEq)]
enum Run {
    Plan,
    Apply,
}

impl Run {
    async fn begin(self, ctx: &Ctx) -> Pull {
        let pull = ctx.open_dirs("change", &PROJECTS).await;
        if self == Run::Apply {
            ctx.next(&pull).await.is("plan", "success");
            ctx.quiet().await;
            ctx.nothing_pending(&pull, &["atlantis/apply"]).await;
        }
        pull
    }
}

/// Returns the number of journal objects.
pub(crate) fn commits(double: &StorageDouble) -> usize {
    double.names(BUCKET).iter().filter(|name| name.contains("/journal/")).count()
}

/// Writes the lease as its holder would at an orderly end, so that nobody waits until it expires.
pub(crate) async fn give_up_lease(double: &StorageDouble) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let name = "prod/lock/leader.json";
    let url = format!("{}/storage/v1/b/{BUCKET}/o/{}?alt=media", double.endpoint(), name.replace('/', "%2F"));
    let text = client.get(url).send().await.unwrap().text().await.unwrap();
    let mut lease: serde_json::Value = serde_json::from_str(&text).unwrap();
    lease["holder"] = serde_json::Value::Null;
    let url = format!("{}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={name}", double.endpoint());
    assert!(client.post(url).body(lease.to_string()).send().await.unwrap().status().is_success());
}

/// Returns the projects in the order in which their steps ran.
fn ran(ctx: &Ctx, run: Run) -> Vec<String> {
    let file = if run == Run::Plan { "planned" } else { "applied" };
    let text = std::fs::read_to_string(ctx.tmp.join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Plays a run whose server ends right after this many commits, or does not. Returns the number of commits.
fn trial(run: Run, cut: Option<usize>) -> usize {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let double = runtime.block_on(StorageDouble::start()).unwrap();
    double.bucket(BUCKET, Settings::default());
    double.limit_mutations(false);
    let flags = [format!("--bucket=gs://{BUCKET}/prod"), format!("--bucket-endpoint={}", double.endpoint())];
    let setup = Setup::projects(&PROJECTS)
        .file("atlantis.yaml", CONFIG)
        .steps(&["echo $REPO_REL_DIR >> {tmp}/planned", PLANNED], &["echo $REPO_REL_DIR >> {tmp}/applied"])
        .flags(&[&flags[0], &flags[1], "--lease-ttl=120s"])
        .own_process();
    let mut counted = 0;
    run_test(setup, async |ctx| {
        let lost = |before| Fault::next(Operation::Insert, Effect::Lost).named("/journal/").skip(before);
        let mut before = commits(&double);
        let pull = match run {
            Run::Plan => {
                cut.into_iter().for_each(|cut| double.fault(lost(cut as u32 - 1)));
                run.begin(ctx).await
            }
            Run::Apply => {
                let pull = run.begin(ctx).await;
                // An orderly end records all posts as posted.
                ctx.server.restart().await;
                before = commits(&double);
                cut.into_iter().for_each(|cut| double.fault(lost(cut as u32 - 1)));
                pull.comment("alice", "atlantis apply").unwrap();
                pull
            }
        };
        if let Some(cut) = cut {
            let is_stored = async || commits(&double) >= before + cut;
            // The last ones record posts, and two of them may be one.
            let _ = tokio::time::timeout(PATIENCE, ctx.until("the commit is stored", is_stored)).await;
            ctx.server.kill().await;
            assert!(commits(&double) <= before + cut);
            double.heal();
            give_up_lease(&double).await;
            ctx.server.flag(&format!("--data-dir={}", ctx.own.join("data-2").display()));
            ctx.server.start().await;
        }
        // A second answer fails the end of the test.
        let said = ctx.next(&pull).await;
        ctx.quiet().await;
        match run {
            Run::Plan => is_planned(ctx, &pull, &said).await,
            Run::Apply => is_applied_once(ctx, &said),
        }
        if cut.is_none() {
            ctx.server.stop().await;
            counted = commits(&double) - before;
            ctx.server.start().await;
        }
    });
    counted
}

async fn is_planned(ctx: &Ctx, pull: &Pull, said: &Said) {
    said.is("plan", "success");
    assert_eq!(said.outcomes(), PROJECTS.map(|dir| (dir.to_owned(), "success".to_owned())));
    ctx.nothing_pending(pull, &["atlantis/apply"]).await;
    for dir in PROJECTS {
        ctx.status(pull, &format!("atlantis/plan: {dir}/default"), "success", "").await;
    }
    // Only jobs that were running when the server ended run again.
    let ran = ran(ctx, Run::Plan);
    assert!(ran.len() <= PROJECTS.len() + 1, "{ran:?}");
    let first = |dir: &str| ran.iter().position(|ran| ran == dir).unwrap();
    assert!(first("one") < first("three") && first("two") < first("three"), "{ran:?}");
}

fn is_applied_once(ctx: &Ctx, said: &Said) {
    let ran = ran(ctx, Run::Apply);
    assert!(PROJECTS.starts_with(&ran.iter().map(String::as_str).collect::<Vec<_>>()), "{ran:?}");
    let outcomes = said.outcomes();
    // A project reported as applied was applied, and an interrupted one is reported as an error.
    let applied: Vec<&str> =
        outcomes.iter().filter(|(_, result)| result == "success").map(|(dir, _)| dir.as_str()).collect();
    assert!(PROJECTS.starts_with(&applied) && applied.len() <= ran.len(), "{outcomes:?} {ran:?}");
    match outcomes.get(applied.len()) {
        None => assert!(applied.len() == ran.len() && !applied.is_empty(), "{outcomes:?} {ran:?}"),
        Some((_, result)) => {
            assert_eq!((result.as_str(), outcomes.len()), ("error", applied.len() + 1), "{outcomes:?} {ran:?}");
            assert_eq!(said.marker["results"][applied.len()]["reason"], "interrupted");
        }
    }
}

fn after_each_commit(run: Run) {
    let commits = trial(run, None);
    assert!((8..40).contains(&commits), "{commits}");
    cut_at(1..=commits, |cut| {
        trial(run, Some(cut));
    });
}

/// Returns true if every commit is tried, which takes too long for each run of the tests.
pub(crate) fn tries_every_commit() -> bool {
    std::env::var_os("TIDELOCK_EVERY_COMMIT").is_some()
}

/// Plays a trial for each of these commits, some at a time. Where the variable TIDELOCK_EVERY_COMMIT is not set, a third of them is tried:
/// on each day another.
pub(crate) fn cut_at(commits: RangeInclusive<usize>, trial: impl Fn(usize) + Sync) {
    const PARTS: u64 = 3;
    const DAY: u64 = 24 * 3600;
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / DAY;
    let every = tries_every_commit();
    let is_tried = |commit: &usize| every || (*commit as u64 + today).is_multiple_of(PARTS);
    let last = *commits.end();
    let (trial, tried) = (&trial, &Mutex::new(commits.filter(is_tried)));
    std::thread::scope(|scope| {
        for _ in 0..MAX_CONCURRENT {
            scope.spawn(move || {
                loop {
                    let Some(cut) = tried.lock().unwrap().next() else { return };
                    let named = std::thread::Builder::new().name(format!("cut at commit {cut} of {last}"));
                    named.spawn_scoped(scope, move || trial(cut)).unwrap().join().unwrap();
                }
            });
        }
    });
}

#[test]
fn a_plan_that_is_cut_after_any_commit_is_ended_by_another_server_with_one_answer() {
    after_each_commit(Run::Plan);
}

#[test]
fn an_apply_that_is_cut_after_any_commit_is_told_by_another_server_and_not_repeated() {
    after_each_commit(Run::Apply);
}
