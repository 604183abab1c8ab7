//! A server that sleeps when it has nothing to do (`--idle-release`): it makes no request to the bucket, and wakes for deliveries, pages and
//! what is due.

mod calls;

use crate::late_jobs::give_up;
use crate::support::*;
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;
use tidelock_storage_double::{Settings, StorageDouble};

/// Bucket of the double.
const BUCKET: &str = "acme-tidelock";
/// Flags of a server that sleeps soon.
const SOON: [&str; 2] = ["--lease-ttl=4s", "--idle-release=1s"];
/// Time in which a leader or standby makes several requests.
const SEVERAL_RENEWALS: Duration = Duration::from_secs(5);

/// Runs a test with a server that sleeps soon, in a process of its own, whose state is in a double of its own.
fn sleeping(test: impl AsyncFnOnce(&Ctx, &StorageDouble)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let double = runtime.block_on(StorageDouble::start()).unwrap();
    double.bucket(BUCKET, Settings::default());
    let bucket = format!("--bucket=gs://{BUCKET}/prod");
    let endpoint = format!("--bucket-endpoint={}", double.endpoint());
    let setup = Setup::one_project().flags(&[&bucket, &endpoint]).flags(&SOON).own_process();
    run_test(setup, async |ctx| test(ctx, &double).await);
}

/// Returns how often a server has restored the state.
fn restores(server: &Running) -> usize {
    server.log().matches("the state was restored").count()
}

/// Returns the number of requests to the bucket so far.
fn requests(double: &StorageDouble) -> u64 {
    double.counts().values().sum()
}

/// Checks that a sleeping server makes no request to the bucket.
async fn is_still(ctx: &Ctx, double: &StorageDouble) {
    let before = requests(double);
    tokio::time::sleep(SEVERAL_RENEWALS).await;
    assert_eq!(requests(double), before, "{}", ctx.server.log());
    assert_eq!(ctx.server.status().await["role"], "asleep");
}

#[test]
fn a_server_with_nothing_to_do_sleeps_and_deliveries_wake_it() {
    sleeping(async |ctx, double| {
        ctx.server.role("asleep").await;
        is_still(ctx, double).await;
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.server.role("asleep").await;
        is_still(ctx, double).await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert!(std::fs::read_to_string(ctx.tmp.join("state/root.tfstate")).unwrap().contains("\"2\""));
        ctx.server.role("asleep").await;
        let ours = pull.comments().unwrap().into_iter().filter(|comment| comment.author == ctx.forge.bot()).count();
        assert_eq!(ours, 2, "nothing is said twice");
        assert!(ctx.server.log().contains("nothing is restored"), "nobody else has led: {}", ctx.server.log());
    });
}

#[test]
fn a_server_that_slept_while_another_led_restores_what_that_one_has_recorded() {
    sleeping(async |ctx, _| {
        ctx.server.role("asleep").await;
        let next = ctx.server.beside(&ctx.own.join("data-2"), &[]);
        next.start_as_standby().await;
        next.take_webhooks();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        next.role("asleep").await;
        ctx.server.take_webhooks();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(restores(&ctx.server), 2, "{}", ctx.server.log());
        next.stop().await;
    });
}

#[test]
fn a_copy_of_the_state_that_changes_in_its_sleep_is_restored() {
    sleeping(async |ctx, _| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.server.role("asleep").await;
        let database = ctx.own.join("data/tidelock.db");
        std::fs::write(&database, "no database").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(restores(&ctx.server), 2, "{}", ctx.server.log());
        ctx.server.role("asleep").await;
        // A log that a row names.
        let log = std::fs::read_dir(ctx.own.join("data/logs")).unwrap().next().unwrap().unwrap().path();
        std::fs::remove_file(&log).unwrap();
        let (status, _) = ctx.request("GET", "/", &[]).await;
        assert_eq!((status, restores(&ctx.server), log.exists()), (200, 3, true), "{}", ctx.server.log());
        ctx.server.role("asleep").await;
        std::fs::remove_file(&database).unwrap();
        let (status, page) = ctx.request("GET", "/", &[]).await;
        assert!(status == 200 && page.contains("Locks"), "{status}: {page}");
        assert_eq!(restores(&ctx.server), 4, "{}", ctx.server.log());
    });
}

#[test]
fn a_page_wakes_the_server_and_is_shown_and_figures_are_no_visit() {
    sleeping(async |ctx, double| {
        ctx.server.role("asleep").await;
        let before = requests(double);
        for path in ["/status", "/metrics", "/healthz", "/readyz"] {
            let (status, text) = ctx.request("GET", path, &[]).await;
            assert_eq!(status, 200, "{path}: {text}");
        }
        assert_eq!(requests(double), before);
        assert_eq!(ctx.server.status().await["role"], "asleep");
        let (status, page) = ctx.request("GET", "/", &[]).await;
        assert!(status == 200 && page.contains("Locks"), "{status}: {page}");
        ctx.server.role("asleep").await;
    });
}

#[test]
fn a_server_wakes_for_the_next_scheduled_drift_detection() {
    sleeping(async |ctx, _| {
        let time = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(20);
        let time = time.round(jiff::Unit::Minute).unwrap();
        let schedule = time.strftime("%M %H * * *");
        let drift = format!("repos: [{{id: 127.0.0.1/acme/infra, drift: {{schedule: '{schedule}', window: 10m}}}}]");
        ctx.rewrite_repos_yaml(&drift);
        ctx.server.flag(&format!("--repo-config={}", ctx.own.join("repos.yaml").display()));
        ctx.server.kill().await;
        ctx.server.start_as_standby().await;
        let status = ctx.server.role("asleep").await;
        let why = status["why"].as_str().unwrap();
        let due = why.split_once("what is due at ").unwrap_or_else(|| panic!("{why}")).1;
        let due: jiff::Timestamp = due.parse().unwrap();
        // Within the delay of the repository.
        assert!((0..300).contains(&due.duration_since(time).as_secs()), "{why}, and not {time}");
    });
}

#[test]
fn a_server_that_is_killed_asleep_or_waking_loses_nothing() {
    sleeping(async |ctx, _| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.server.role("asleep").await;
        ctx.server.kill().await;
        ctx.server.start_as_standby().await;
        ctx.server.take_webhooks();
        ctx.server.role("asleep").await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        // The delivery is answered: it is in the inbox, or in the state.
        ctx.server.kill().await;
        ctx.server.start_as_standby().await;
        ctx.next(&pull).await.is("apply", "success");
        ctx.server.role("asleep").await;
    });
}

#[test]
fn a_standby_that_nobody_visits_sleeps_and_leads_when_it_is_woken_after_the_leader() {
    sleeping(async |ctx, double| {
        let next = ctx.server.beside(&ctx.own.join("data-2"), &[]);
        next.start_as_standby().await;
        next.role("leading").await;
        // Pages keep the leader awake.
        let url = format!("{}/", next.url());
        let visiting = tokio::spawn(async move {
            // Sooner than the time after which the server sleeps.
            let mut visits = tokio::time::interval(Duration::from_millis(200));
            loop {
                visits.tick().await;
                let _ = reqwest::get(&url).await;
            }
        });
        ctx.server.role("asleep").await;
        assert_eq!(next.status().await["role"], "leading");
        visiting.abort();
        next.role("asleep").await;
        is_still(ctx, double).await;
        // Both sleep. The one that gets the delivery leads.
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        next.stop().await;
    });
}

#[test]
fn a_server_does_not_sleep_while_a_job_that_was_given_up_may_end_soon() {
    let apply = ["echo $PPID > {tmp}/job", &gate("apply"), "echo applied >> {tmp}/applied"];
    let yaml = workflow("executor: [{plan: jobs, apply: jobs}]", &[PLANNED], &apply);
    let yaml = format!("executors: {{jobs: {{kind: process}}}}\n{yaml}");
    let setup = Setup::one_project().repos_yaml(&yaml).flags(&SOON).own_process();
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        let job = std::fs::read_to_string(ctx.tmp.join("job")).unwrap().trim().parse().unwrap();
        let job = Pid::from_raw(job).unwrap();
        kill_process(job, Signal::STOP).unwrap();
        give_up(ctx).await;
        ctx.next(&pull).await.is("apply", "error").has("has lost the job");
        // Longer than until it would sleep.
        tokio::time::sleep(3 * SEVERAL_RENEWALS).await;
        assert_eq!(ctx.server.status().await["role"], "leading", "{}", ctx.server.log());
        ctx.open_gate("apply");
        kill_process(job, Signal::CONT).unwrap();
        // Nobody visits.
        ctx.next(&pull).await.is_message("interrupted").has("has finished on the executor `jobs`");
        ctx.server.role("asleep").await;
    });
}
