//! A whole server whose state is in Cloud Storage, as its double implements it: requests that it makes, and faults that it survives.

use crate::support::*;
use std::time::{Duration, Instant};
use tidelock_forge::{Fault, Gate};
use tidelock_storage_double::{Effect, Fault as BucketFault, Operation, Rule, Seen, Settings, StorageDouble};

/// Bucket of the double.
const BUCKET: &str = "acme-tidelock";
/// Lifetime of the lease with renewals just more than the second apart that the service requires between two writes of an object.
const SHORT: &str = "--lease-ttl=4s";

fn flags(double: &StorageDouble) -> [String; 2] {
    [format!("--bucket=gs://{BUCKET}/prod"), format!("--bucket-endpoint={}", double.endpoint())]
}

/// Runs a test with a server in a process of its own, whose state is in a double of its own.
fn in_cloud(change: impl FnOnce(Setup) -> Setup, test: impl AsyncFnOnce(&Ctx, &StorageDouble)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let double = runtime.block_on(StorageDouble::start()).unwrap();
    double.bucket(BUCKET, Settings::default());
    let [bucket, endpoint] = flags(&double);
    let setup = Setup::one_project().flags(&[&bucket, &endpoint]).own_process();
    run_test(change(setup), async |ctx| test(ctx, &double).await);
}

/// Returns the number of journal objects so far.
fn commits(double: &StorageDouble) -> usize {
    double.seen().iter().filter(|seen| seen.operation.writes() && seen.name.contains("/journal/")).count()
}

/// Waits until nothing is recorded from one renewal to the next: a post is recorded as posted a moment later.
async fn settled(ctx: &Ctx, double: &StorageDouble) {
    ctx.until("nothing is recorded from one renewal to the next", async || {
        let (recorded, renewed) = (commits(double), renewals(double));
        ctx.until("a renewal", async || renewals(double) > renewed).await;
        commits(double) == recorded
    })
    .await;
}

/// Makes the host fail for the rounds of reconciliation seconds after a start, so that they record nothing.
fn nothing_is_looked_for(ctx: &Ctx) {
    let refusal = Fault::Status(503, "{}".to_owned(), Vec::new());
    ctx.forge.fail_next("GET", "*/repos/acme/infra/pulls", refusal, usize::MAX).unwrap();
}

/// Returns the number of renewals of the lease so far.
fn renewals(double: &StorageDouble) -> usize {
    double.seen().iter().filter(|seen| seen.operation == Operation::Insert && is_lease(seen)).count()
}

fn is_lease(seen: &Seen) -> bool {
    seen.name.ends_with("lock/leader.json")
}

#[test]
fn a_plan_survives_its_server_and_its_disk() {
    in_cloud(
        |setup| setup.flags(&[SHORT]),
        async |ctx, double| {
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull).await.is("plan", "success");
            ctx.quiet().await;
            let plan = std::fs::read_dir(ctx.server.data("plans")).unwrap().next().unwrap().unwrap().file_name();
            ctx.server.kill().await;
            // Processes that the killed server had started may end a moment later, and write until then.
            ctx.until("its disk is gone", async || {
                std::fs::remove_dir_all(ctx.server.data("")).is_ok() || !ctx.server.data("").exists()
            })
            .await;
            let next = ctx.server.beside(&ctx.own.join("data-2"), &[]);
            next.start_as_standby().await;
            next.role("leading").await;
            assert!(next.data("plans").join(&plan).is_file(), "the plan file was not restored");
            next.take_webhooks();
            ctx.say(&pull, "atlantis apply").await.is("apply", "success");
            assert!(std::fs::read_to_string(ctx.tmp.join("state/root.tfstate")).unwrap().contains("\"2\""));
            next.stop().await;
            ctx.server.start().await;
            assert!(double.names(BUCKET).iter().all(|name| name.starts_with("prod/")), "{:?}", double.names(BUCKET));
        },
    );
}

#[test]
fn other_settings_never_lead_on_a_bucket_that_others_reach_until_they_are_forced() {
    in_cloud(
        |setup| setup.flags(&[SHORT]),
        async |ctx, _| {
            ctx.quiet().await;
            ctx.server.stop().await;
            let other = ctx.server.beside(&ctx.own.join("data-2"), &["--repo-allowlist=*,!*/secret"]);
            other.start_as_standby().await;
            let mismatch = async || other.status().await["fingerprint_mismatch"] == true;
            ctx.until("it says why it does not lead", mismatch).await;
            let standing = tokio::time::timeout(Duration::from_secs(6), other.role("leading"));
            assert!(standing.await.is_err(), "it leads: {}", other.log());
            let page = reqwest::Client::builder().no_proxy().build().unwrap().get(other.url());
            let page = page.header("accept", "text/html").send().await.unwrap().text().await.unwrap();
            for told in ["the repository allowlist", "<code>--force-takeover</code>"] {
                assert!(page.contains(told), "{told} is missing: {page}");
            }
            assert!(!page.contains("does not lead: this server"), "{page}");
            other.stop().await;
            let forced =
                ctx.server.beside(&ctx.own.join("data-2"), &["--repo-allowlist=*,!*/secret", "--force-takeover"]);
            forced.start_as_standby().await;
            forced.role("leading").await;
            forced.stop().await;
            ctx.server.flag("--force-takeover");
            ctx.server.start().await;
        },
    );
}

#[test]
fn what_comes_while_the_lead_is_taken_is_taken_up_as_soon_as_it_is_stored() {
    in_cloud(
        |setup| setup.flags(&["--lease-ttl=60s"]),
        async |ctx, double| {
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull).await.is("plan", "success");
            ctx.quiet().await;
            ctx.server.stop().await;
            // The restore takes a while, and storing the delivery takes longer: the new leader's first look finds nothing.
            let late = |operation, millis| BucketFault::next(operation, Effect::Late(Duration::from_millis(millis)));
            double.fault(late(Operation::Read, 2000).named("/journal/"));
            double.fault(late(Operation::Insert, 3500).named("/inbox/"));
            ctx.server.start_as_standby().await;
            ctx.server.take_webhooks();
            let began = Instant::now();
            ctx.say(&pull, "atlantis help").await.is_message("help");
            // The next look that the delivery does not cause comes eighteen seconds after the first.
            assert!(began.elapsed() < Duration::from_secs(16), "{:?}", began.elapsed());
            assert!(
                double.seen().iter().any(|seen| seen.name.contains("/inbox/") && seen.operation == Operation::Insert)
            );
        },
    );
}

/// Lifetime of the lease that no test waits for: the lease is handed to the next leader.
const LONG: &str = "--lease-ttl=120s";

/// Checks that another server leads at once, without a wait for the end of a lease.
async fn leads_at_once(ctx: &Ctx) {
    let began = Instant::now();
    let next = ctx.server.beside(&ctx.own.join("data-2"), &[]);
    next.start_as_standby().await;
    next.role("leading").await;
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    next.stop().await;
    ctx.server.start().await;
}

#[test]
fn a_server_that_is_told_to_end_while_it_restores_gives_the_lease_up() {
    in_cloud(
        |setup| setup.flags(&[LONG]),
        async |ctx, double| {
            ctx.quiet().await;
            ctx.server.stop().await;
            double.fault(BucketFault::next(Operation::Read, Effect::Hang).named("/journal/").times(u32::MAX));
            ctx.server.start_as_standby().await;
            ctx.server.role("restoring").await;
            ctx.server.stop().await;
            double.heal();
            leads_at_once(ctx).await;
        },
    );
}

#[test]
fn a_server_that_cannot_restore_gives_the_lease_up() {
    in_cloud(
        |setup| setup.flags(&[LONG]),
        async |ctx, double| {
            ctx.quiet().await;
            ctx.server.stop().await;
            double.fault(BucketFault::next(Operation::Read, Effect::Fail(403)).named("/journal/").times(u32::MAX));
            let (code, log) = ctx.server.fails_to_start().await;
            assert_ne!(code, Some(0), "{log}");
            double.heal();
            leads_at_once(ctx).await;
        },
    );
}

#[test]
fn a_server_at_rest_asks_for_its_lease_and_its_inbox_alone() {
    in_cloud(
        |setup| setup.flags(&["--sync-interval=1s", SHORT]),
        async |ctx, double| {
            nothing_is_looked_for(ctx);
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull).await.is("plan", "success");
            ctx.quiet().await;
            ctx.nothing_pending(&pull, &["atlantis/apply"]).await;
            settled(ctx, double).await;
            double.reset();
            ctx.until("several intervals have passed", async || renewals(double) >= 4).await;
            let seen = double.seen();
            let lists = |seen: &&Seen| seen.operation == Operation::List && seen.name.contains("inbox");
            let others: Vec<_> = seen.iter().filter(|seen| !is_lease(seen) && !lists(seen)).collect();
            assert!(others.is_empty(), "{others:?}");
            let looks = seen.iter().filter(lists).count();
            assert!(looks.abs_diff(renewals(double)) <= 1, "{looks} looks into the inbox: {seen:?}");
        },
    );
}

#[test]
fn the_lease_is_renewed_while_the_inbox_cannot_be_listed() {
    in_cloud(
        |setup| setup.flags(&[SHORT]),
        async |ctx, double| {
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull).await.is("plan", "success");
            ctx.quiet().await;
            let before = ctx.server.role("leading").await;
            double.fault(BucketFault::next(Operation::List, Effect::Hang).named("inbox").times(u32::MAX));
            double.reset();
            ctx.until("several renewals have passed", async || renewals(double) >= 5).await;
            let now = ctx.server.status().await;
            assert_eq!((&now["role"], &now["epoch"]), (&before["role"], &before["epoch"]), "{}", ctx.server.log());
            double.heal();
            ctx.say(&pull, "atlantis help").await.is_message("help");
        },
    );
}

#[test]
fn nothing_is_lost_while_the_bucket_does_not_answer_for_a_moment() {
    in_cloud(
        |setup| setup.steps(&["init", "plan"], &["echo begun >> {tmp}/begun", "apply"]),
        async |ctx, double| {
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull).await.is("plan", "success");
            ctx.quiet().await;
            double.outage(true);
            pull.comment("alice", "atlantis apply").unwrap();
            ctx.until("it tries again", async || ctx.server.log().contains("the outcome of a commit is unknown")).await;
            let answered = ctx.forge.deliveries().iter().filter(|delivery| delivery.succeeded()).count();
            assert_eq!(answered, 3, "an answer before the delivery is in the bucket: {:?}", ctx.forge.deliveries());
            assert_eq!(ctx.lines("begun"), 0);
            double.outage(false);
            ctx.next(&pull).await.is("apply", "success");
            assert_eq!(ctx.lines("begun"), 1);
            assert_eq!(ctx.server.status().await["role"], "leading");
        },
    );
}

#[test]
fn a_commit_that_was_stored_and_then_refused_is_not_called_undone() {
    in_cloud(
        |setup| setup,
        async |ctx, double| {
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull).await.is("plan", "success");
            ctx.quiet().await;
            let first = ctx.server.role("leading").await;
            for refusal in [403, 401, 400, 404] {
                double.faults(Operation::Insert, "/journal/", &[Effect::FailAfter(503), Effect::Fail(refusal)]);
                ctx.say(&pull, "atlantis plan").await.is("plan", "success");
                ctx.quiet().await;
            }
            let now = ctx.server.status().await;
            assert_eq!((&now["role"], &now["epoch"]), (&first["role"], &first["epoch"]), "{}", ctx.server.log());
            assert!(!ctx.server.log().contains("undone"), "{}", ctx.server.log());
        },
    );
}

#[test]
fn a_start_and_a_doctor_whose_probe_is_stored_and_then_refused_go_on_and_leave_nothing() {
    in_cloud(
        |setup| setup.flags(&[SHORT]),
        async |ctx, double| {
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull).await.is("plan", "success");
            ctx.server.stop().await;
            double.fault(BucketFault::next(Operation::TestPermissions, Effect::Fail(403)));
            double.faults(Operation::Insert, "lock/probe-", &[Effect::FailAfter(503), Effect::Fail(403)]);
            ctx.server.start().await;
            ctx.server.role("leading").await;
            let probes = double.seen().iter().filter(|seen| seen.name.contains("lock/probe-")).count();
            assert!(probes > 2, "the probe was tried: {probes}");
            double.faults(Operation::Insert, "doctor/", &[Effect::FailAfter(503), Effect::Fail(403)]);
            let (_, said) = ctx.server.command("doctor", &[&format!("--atlantis-url={}", ctx.server.url())]).await;
            assert!(said.contains("create, read, list and delete work"), "{said}");
            let left: Vec<_> = double.names(BUCKET);
            assert!(!left.iter().any(|name| name.contains("probe") || name.contains("doctor/")), "{left:?}");
        },
    );
}

#[test]
fn a_slow_way_to_the_bucket_takes_its_time_and_status_tells_it() {
    in_cloud(
        // A file that is kept with the plan and does not compress: a large object.
        |setup| setup.steps(&["init", "head -c 300000 /dev/urandom > left.bin", "plan"], &["apply"]),
        async |ctx, double| {
            ctx.quiet().await;
            let first = ctx.server.role("leading").await;
            // Its object alone takes longer than one attempt in one request has.
            double.drip(40_000);
            let pull = ctx.open_input("change", "2").await;
            let told = async || {
                let status = ctx.server.status().await;
                let upload = &status["uploading"][0];
                upload["object"].as_str().is_some_and(|name| name.starts_with("journal/"))
                    && upload["arrived"].as_u64() <= upload["bytes"].as_u64()
            };
            ctx.until("the upload is told", told).await;
            ctx.next(&pull).await.is("plan", "success");
            double.drip(0);
            let now = ctx.server.status().await;
            assert_eq!((&now["role"], &now["epoch"]), (&first["role"], &first["epoch"]), "{}", ctx.server.log());
            let begun = |seen: &Seen| (seen.operation == Operation::UploadStart).then(|| seen.name.clone());
            let begun: Vec<String> = double.seen().iter().filter_map(begun).collect();
            let objects: std::collections::BTreeSet<&String> = begun.iter().collect();
            assert!(!begun.is_empty() && begun.len() == objects.len(), "an upload started over: {begun:?}");
        },
    );
}

#[test]
fn a_server_whose_bucket_is_gone_for_longer_than_its_lease_leads_again_and_takes_up_what_it_missed() {
    in_cloud(
        |setup| setup.flags(&[SHORT, "--reconcile-interval=1s"]),
        async |ctx, double| {
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull).await.is("plan", "success");
            ctx.quiet().await;
            let first = ctx.server.role("leading").await;
            double.outage(true);
            pull.comment("alice", "atlantis apply").unwrap();
            ctx.server.role("standby").await;
            double.outage(false);
            let again = ctx.server.role("leading").await;
            assert!(again["epoch"].as_u64() > first["epoch"].as_u64(), "{first} {again}");
            ctx.next(&pull).await.is("apply", "success");
        },
    );
}

#[test]
fn a_bucket_whose_settings_would_delete_the_state_stops_the_start() {
    let age = Rule { action: "Delete".into(), age_days: Some(30), ..Rule::default() };
    let refused = [
        (Settings { retention: Some(86_400), ..Settings::default() }, "--clear-retention-period"),
        (Settings { lifecycle: vec![age], ..Settings::default() }, "--clear-lifecycle"),
    ];
    in_cloud(
        |setup| setup,
        async |ctx, _| {
            for (settings, cure) in refused {
                let double = StorageDouble::start().await.unwrap();
                double.bucket(BUCKET, settings);
                let [bucket, endpoint] = flags(&double);
                let server = ctx.server.beside(&ctx.own.join("refused"), &[&bucket, &endpoint]);
                let (code, said) = server.fails_to_start().await;
                assert_ne!(code, Some(0));
                assert!(said.contains(cure) && said.contains(&format!("gs://{BUCKET}")), "{cure}: {said}");
                assert!(double.names(BUCKET).is_empty(), "{:?}", double.names(BUCKET));
            }
        },
    );
}

#[test]
fn an_apply_waits_for_few_objects() {
    let gates = [gate("before"), gate("after")];
    in_cloud(
        |setup| setup.steps(&["init", "plan"], &[&gates[0], "apply", &gates[1]]),
        async |ctx, double| {
            nothing_is_looked_for(ctx);
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull).await.is("plan", "success");
            ctx.quiet().await;
            ctx.nothing_pending(&pull, &["atlantis/apply"]).await;
            settled(ctx, double).await;
            // Posts other than comments take long, so that they are recorded after the commits that are counted here.
            let [posts, begin, comment] = [Gate::new(), Gate::new(), Gate::new()];
            for path in ["**/statuses/*", "**/reactions"] {
                ctx.forge.fail_next("POST", path, Fault::Hold(posts.clone()), 100).unwrap();
            }
            // The command itself begins once its delivery is answered.
            ctx.forge.fail_next("GET", "**/pulls/*", Fault::Hold(begin.clone()), 1).unwrap();
            let before = commits(double);
            pull.comment("alice", "atlantis apply").unwrap();
            ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
            let accepted = commits(double);
            assert_eq!(accepted - before, 1, "before the 2xx");
            begin.open();
            ctx.reached("before", 1).await;
            let starting = commits(double);
            ctx.open_gate("before");
            ctx.reached("after", 1).await;
            let exited = commits(double);
            assert_eq!(exited, starting, "while Terraform runs");
            ctx.forge.fail_next("POST", "**/comments", Fault::Hold(comment.clone()), 1).unwrap();
            ctx.open_gate("after");
            comment.reached(1).await;
            let told = commits(double);
            comment.open();
            posts.open();
            ctx.next(&pull).await.is("apply", "success");
            assert_eq!(starting - accepted, 1, "before Terraform starts");
            assert_eq!(told - exited, 1, "from Terraform's exit to the comment");
        },
    );
}
