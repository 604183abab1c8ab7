//! Servers that come and go on one bucket: the leader, the receiver of deliveries, and the end of a server, by which nothing is lost.

use crate::support::*;
use std::time::{Duration, Instant};

/// A server in a process of its own whose bucket is not in its data directory.
fn shared_bucket() -> Setup {
    Setup::one_project().flags(&["--bucket=file://{own}/bucket"]).own_process()
}

/// Another server on the same bucket, with an empty data directory.
fn another(ctx: &Ctx, extra: &[&str]) -> Running {
    ctx.server.beside(&ctx.own.join("data-2"), extra)
}

#[test]
fn a_new_server_gets_the_lead_and_a_plan_survives_its_maker() {
    run_test(shared_bucket(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;
        let first = ctx.server.role("leading").await;
        let second = another(ctx, &[]);
        second.start_as_standby().await;
        // It asks to lead at its start, and does.
        let now = second.role("leading").await;
        assert_eq!(now["epoch"].as_u64(), first["epoch"].as_u64().map(|epoch| epoch + 1));
        let old = ctx.server.role("standby").await;
        ctx.until("the old server sees who leads", async || {
            ctx.server.status().await["leader"]["machine"] == now["leader"]["machine"]
        })
        .await;
        assert_eq!(old["fingerprint_mismatch"], false);
        second.take_webhooks();
        // A standby ends at once on SIGTERM, with exit code 0, far below the eight seconds of a leader.
        let began = Instant::now();
        ctx.server.stop().await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        std::fs::remove_dir_all(ctx.server.data("")).unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        // The old one comes back to an empty disk, as the only one.
        second.stop().await;
        ctx.server.start().await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
    });
}

#[test]
fn a_delivery_to_a_standby_is_answered_by_the_leader() {
    run_test(shared_bucket(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let second = another(ctx, &[]);
        second.start_as_standby().await;
        second.role("leading").await;
        ctx.server.role("standby").await;
        // Webhooks still go to the first one.
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        assert!(ctx.forge.deliveries().iter().all(|delivery| delivery.succeeded()));
        ctx.next(&pull).await.is("apply", "success");
        let (_, page) = ctx.request("GET", "/", &[("accept", "text/html")]).await;
        assert!(
            page.contains("Standing by") && page.contains("tidelock.test</a>") && !page.contains("acme/infra"),
            "{page}"
        );
        let (status, metrics) = ctx.request("GET", "/metrics", &[]).await;
        assert_eq!(status, 200);
        // The forge delivers the server's own comments as well.
        let stored = metrics.lines().find_map(|line| line.strip_prefix("tidelock_deliveries_total{end=\"inbox\"} "));
        assert!(stored.unwrap().parse::<u64>().unwrap() >= 1, "{metrics}");
        second.stop().await;
        ctx.server.role("leading").await;
    });
}

#[test]
fn files_of_others_in_the_bucket_stop_neither_mail_nor_hand_over_nor_a_start() {
    run_test(shared_bucket().flags(&["--lease-ttl=3s"]), async |ctx| {
        let bucket = ctx.own.join("bucket");
        let odd = [
            "inbox/x",
            "inbox/.keep",
            "inbox/handover/x",
            "inbox/end/x",
            "inbox/delivery/x",
            "journal/notes",
            "base/x",
        ];
        for name in odd {
            std::fs::create_dir_all(bucket.join(name).parent().unwrap()).unwrap();
            std::fs::write(bucket.join(name), "mine").unwrap();
        }
        let second = another(ctx, &[]);
        second.start_as_standby().await;
        second.role("leading").await;
        // Webhooks still go to the first one, which stores them.
        ctx.server.role("standby").await;
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        assert!(ctx.forge.deliveries().iter().all(|delivery| delivery.succeeded()));
        for name in ["inbox/x", "inbox/handover/x", "inbox/delivery/x", "journal/notes", "base/x"] {
            assert!(second.log().contains(name), "{name}: {}", second.log());
        }
        second.stop().await;
        ctx.server.role("leading").await;
        for name in odd {
            assert_eq!(std::fs::read(bucket.join(name)).unwrap(), b"mine", "{name}");
        }
    });
}

#[test]
fn a_server_that_was_killed_is_replaced_by_one_with_an_empty_disk() {
    run_test(shared_bucket(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.nothing_pending(&pull, &["atlantis/apply"]).await;
        ctx.server.kill().await;
        std::fs::remove_dir_all(ctx.server.data("")).unwrap();
        ctx.server.start().await;
        assert_eq!(ctx.locks().await.len(), 1);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn who_has_another_allowlist_stands_by_while_the_other_lives() {
    run_test(shared_bucket(), async |ctx| {
        let other = another(ctx, &["--repo-allowlist=*,!*/secret"]);
        other.start_as_standby().await;
        ctx.until("it says why it does not lead", async || other.status().await["fingerprint_mismatch"] == true).await;
        let status = other.status().await;
        assert_eq!(status["role"], "standby");
        let why = status["why"].as_str().unwrap();
        assert!(why.contains("allowlist") && why.contains("--force-takeover"), "{why}");
        ctx.until("its log says so", async || other.log().contains("--force-takeover")).await;
        // No other server can use a directory of this machine once the other has ended.
        ctx.server.stop().await;
        other.role("leading").await;
        assert!(other.log().contains("no server lives on this directory"), "{}", other.log());
        // Now a server with the former settings is the foreign one.
        ctx.server.start_as_standby().await;
        ctx.until("it says why it does not lead", async || ctx.server.status().await["fingerprint_mismatch"] == true)
            .await;
        other.stop().await;
        ctx.server.role("leading").await;
    });
}

#[test]
fn an_allowlist_that_changes_between_two_starts_is_warned_of_and_taken() {
    run_test(Setup::one_project().own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        for (kill, warnings) in [(false, 1), (true, 2)] {
            ctx.quiet().await;
            if kill {
                ctx.server.kill().await;
            } else {
                ctx.server.stop().await;
            }
            ctx.server.flag(if kill { "--repo-allowlist=*,!*/kept" } else { "--repo-allowlist=*,!*/secret" });
            ctx.server.start().await;
            let told = ctx.server.log().matches("in the repository allowlist").count();
            assert_eq!(told, warnings, "{}", ctx.server.log());
            assert_eq!(ctx.server.status().await["fingerprint_mismatch"], false);
        }
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_deposed_server_stands_by_and_can_lead_again_in_the_same_process() {
    let setup =
        shared_bucket().flags(&["--lease-ttl=3s"]).steps(&[&gate("plan"), PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(setup, async |ctx| {
        ctx.open_gate("plan");
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;
        let epoch = depose(ctx).await;
        ctx.until("it was deposed", async || ctx.server.log().contains("it does not lead any more (")).await;
        // Nobody renews that lease, so it is taken again after its expiry.
        ctx.until("it leads again", async || {
            let status = ctx.server.status().await;
            status["role"] == "leading" && status["epoch"].as_u64().is_some_and(|now| now > epoch)
        })
        .await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_plan_that_runs_while_its_server_is_deposed_is_run_again_by_the_next() {
    let setup = shared_bucket().flags(&["--lease-ttl=3s"]).steps(&[&gate("plan"), PLANNED], &[]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        depose(ctx).await;
        ctx.reached("plan", 2).await;
        ctx.open_gate("plan");
        ctx.next(&pull).await.is("plan", "success");
        ctx.nothing_pending(&pull, &["atlantis/apply"]).await;
    });
}

#[test]
fn a_plan_that_runs_is_handed_over_with_the_lead_and_answered_once() {
    let setup = shared_bucket().steps(&[&gate("plan"), PLANNED], &[]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        let second = another(ctx, &[]);
        second.start_as_standby().await;
        second.role("leading").await;
        ctx.reached("plan", 2).await;
        ctx.open_gate("plan");
        ctx.next(&pull).await.is("plan", "success");
        second.stop().await;
        ctx.server.role("leading").await;
        ctx.nothing_pending(&pull, &["atlantis/apply"]).await;
    });
}

#[test]
fn an_apply_that_runs_ends_before_the_lead_is_handed_over() {
    let setup = shared_bucket().steps(&[PLANNED], &["echo begun >> {tmp}/begun", &gate("apply")]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        let second = another(ctx, &[]);
        second.start_as_standby().await;
        ctx.server.role("draining").await;
        assert_eq!(second.status().await["role"], "standby");
        ctx.open_gate("apply");
        ctx.next(&pull).await.is("apply", "success");
        second.role("leading").await;
        assert_eq!(ctx.lines("begun"), 1);
        second.stop().await;
        ctx.server.role("leading").await;
    });
}
