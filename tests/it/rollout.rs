//! The rollout drill: a new server starts beside the old one on a bucket that is as slow as Cloud Storage, and the old one is told to end.
//! Nothing is lost, and there is no leader for less than three seconds.

use crate::support::*;
use std::time::{Duration, Instant};
use tidelock_storage_double::{Settings, StorageDouble};

/// Time that Cloud Storage takes for a read and for a write within a region.
const READ: Duration = Duration::from_millis(20);
const WRITE: Duration = Duration::from_millis(50);
/// Limit of the time from SIGTERM to a server that leads: two to three seconds here, and far below a lease's lifetime on the busiest
/// machine.
const HAND_OVER: Duration = Duration::from_secs(10);

async fn healthy(server: &Running) -> bool {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.get(format!("{}/healthz", server.url())).send().await.is_ok_and(|answer| answer.status() == 200)
}

/// Sends SIGTERM to the old server. Returns the time until the new one leads.
async fn hand_over(old: &Running, new: &Running) -> Duration {
    let began = Instant::now();
    let leads = async {
        new.role("leading").await;
        began.elapsed()
    };
    let ((), took) = tokio::join!(old.stop(), leads);
    took
}

#[test]
fn a_rollout_loses_nothing_and_hands_over_in_seconds() {
    let storage = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let double = storage.block_on(StorageDouble::start()).unwrap();
    double.bucket("state", Settings::default());
    double.delay(READ, WRITE);
    let endpoint = format!("--bucket-endpoint={}", double.endpoint());
    let setup = Setup::projects(&["a", "b"])
        .steps(&[&gate("plan"), PLANNED], &["echo applied >> {tmp}/applied"])
        // The interval between two looks into the inbox is a share of the lease's lifetime. The new server asks for the lead there at its
        // start: the old one has to be told to end before it sees that.
        .flags(&["--bucket=gs://state/tidelock", &endpoint, "--lease-ttl=300s"])
        .own_process();
    run_test(setup, async |ctx| {
        let to_old = ctx.open_dirs("to-old", &["a"]).await;
        ctx.reached("plan", 1).await;
        let new = ctx.server.beside(&ctx.own.join("data-2"), &[]);
        new.start_as_standby().await;
        // Its startup probe passes while the old one leads.
        assert!(healthy(&new).await);
        assert_eq!(ctx.server.status().await["role"], "leading");
        assert_eq!(new.status().await["role"], "standby");
        // Traffic moves: the old one still runs a command, and the new one gets new deliveries.
        new.take_webhooks();
        let to_new = ctx.open_dirs("to-new", &["b"]).await;
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let took = hand_over(&ctx.server, &new).await;
        println!("rollout: {took:?} from SIGTERM to the new leader");
        assert!(took < HAND_OVER, "{took:?}\nold:\n{}\nnew:\n{}", ctx.server.log(), new.log());
        // Both plans run at the new one.
        ctx.reached("plan", 3).await;
        ctx.open_gate("plan");
        ctx.next(&to_old).await.is("plan", "success");
        ctx.next(&to_new).await.is("plan", "success");
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        for delivery in ctx.forge.deliveries() {
            assert!(
                delivery.succeeded(),
                "{} {:?}: {:?} {}",
                delivery.event,
                delivery.action,
                delivery.status,
                delivery.answer
            );
        }
        ctx.say(&to_old, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
        let beats: Vec<_> =
            new.log().lines().filter(|line| line.contains("\"heartbeat\"")).map(str::to_owned).collect();
        assert!(
            beats.iter().any(|line| line.contains("\"role\":\"leading\"") && line.contains("commit_lag_ms")),
            "{beats:?}"
        );
        // And back, without work.
        ctx.server.start_as_standby().await;
        assert!(healthy(&ctx.server).await);
        ctx.server.take_webhooks();
        let took = hand_over(&new, &ctx.server).await;
        println!("rollout: {took:?} from SIGTERM to the new leader, without work");
        assert!(took < HAND_OVER, "{took:?}\nold:\n{}\nnew:\n{}", new.log(), ctx.server.log());
        ctx.say(&to_new, "atlantis apply").await.is("apply", "success");
    });
    drop((double, storage));
}
