//! A whole server whose state is in Cloud Storage, as its double speaks it: what it asks for, and what it survives.

use crate::storage_double::{Effect, Fault, Operation, Rule, Seen, Settings, StorageDouble};
use crate::support::*;
use std::time::Duration;

/// Of the double.
const BUCKET: &str = "acme-tidelock";

async fn double(settings: Settings) -> StorageDouble {
    let double = StorageDouble::start().await.unwrap();
    double.bucket(BUCKET, settings);
    double
}

/// A server in a process of its own whose state is there.
fn in_cloud(double: &StorageDouble) -> Setup {
    let endpoint = format!("--bucket-endpoint={}", double.endpoint());
    Setup::one_project().flags(&[&format!("--bucket=gs://{BUCKET}/prod"), &endpoint]).own_process()
}

/// Runs a test with a server on a double of its own.
fn run_cloud_test(setup: impl FnOnce(Setup) -> Setup, test: impl AsyncFnOnce(&Ctx, &StorageDouble)) {
    // The double lives on a runtime of its own: it outlasts the test's.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let double = runtime.block_on(double(Settings::default()));
    run_test(setup(in_cloud(&double)), async |ctx| test(ctx, &double).await);
}

/// Commits so far.
fn commits(double: &StorageDouble) -> usize {
    double.seen().iter().filter(|seen| seen.operation.writes() && seen.name.contains("/journal/")).count()
}

#[test]
fn counts() {
    let steps = ["init", "plan"];
    let apply = [gate("apply"), "apply".to_owned(), gate("applied")];
    run_cloud_test(
        |setup| setup.steps(&steps, &[&apply[0], &apply[1], &apply[2]]),
        async |ctx, double| {
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull).await.is("plan", "success");
            ctx.quiet().await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            let mut at = commits(double);
            let mut step = |what: &str| {
                let now = commits(double);
                println!("{what}: {}", now - at);
                at = now;
            };
            ctx.forge.fail_next("GET", "**", tidelock::sandbox::Fault::Stall(Duration::from_secs(2)), 1).unwrap();
            pull.comment("alice", "atlantis apply").unwrap();
            ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
            step("2xx");
            ctx.reached("apply", 1).await;
            step("start");
            tokio::time::sleep(Duration::from_secs(2)).await;
            step("after start");
            ctx.open_gate("apply");
            ctx.reached("applied", 1).await;
            step("exit");
            ctx.forge
                .fail_next("POST", "**/comments", tidelock::sandbox::Fault::Stall(Duration::from_secs(2)), 1)
                .unwrap();
            ctx.open_gate("applied");
            ctx.next(&pull).await.is("apply", "success");
            step("comment");
            tokio::time::sleep(Duration::from_secs(2)).await;
            step("after");
        },
    );
}
