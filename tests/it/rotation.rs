//! The webhook secret changes while servers run, and they restart in any order: no delivery that was answered is lost.

use crate::support::*;

/// Setup with a leader whose webhook secret differs from the host's.
fn setup() -> Setup {
    let setup = Setup::one_project().flags(&["--bucket=file://{own}/bucket", "--lease-ttl=3s"]).own_process();
    setup.variable("TIDELOCK_GH_WEBHOOK_SECRET", OLD)
}

/// The secret before the one that the host signs with.
const OLD: &str = "the secret before the present one";

/// The flag with the host's secret.
fn new_secret(ctx: &Ctx) -> String {
    use secrecy::ExposeSecret;
    format!("--gh-webhook-secret={}", ctx.forge.webhook_secret().expose_secret())
}

/// Returns the number of deliveries in the bucket's inbox.
fn stored(ctx: &Ctx) -> usize {
    std::fs::read_dir(ctx.own.join("bucket/inbox/delivery")).map(Iterator::count).unwrap_or_default()
}

fn unusable(ctx: &Ctx, status: &serde_json::Value) -> u64 {
    status["inbox_unusable"].as_u64().unwrap_or_else(|| panic!("{status}\n{}", ctx.server.log()))
}

/// Returns the number of lists that the leader has requested; at rest, these are of its inbox.
async fn looks(ctx: &Ctx) -> u64 {
    let (_, metrics) = ctx.request("GET", "/metrics", &[]).await;
    let count = metrics.lines().find_map(|line| line.strip_prefix("tidelock_bucket_requests_total{kind=\"list\"} "));
    count.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}

#[test]
fn a_delivery_that_the_leader_cannot_verify_waits_for_the_leader_that_knows_its_secret() {
    run_test(setup(), async |ctx| {
        let first = ctx.server.role("leading").await;
        let second = ctx.server.beside(&ctx.own.join("data-2"), &[&new_secret(ctx)]);
        second.start_as_standby().await;
        second.take_webhooks();
        let pull = ctx.open_input("change", "2").await;
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let of_pull: Vec<_> = ctx.forge.deliveries().into_iter().filter(|delivery| delivery.event != "ping").collect();
        assert!(of_pull.iter().all(|delivery| delivery.succeeded()), "{of_pull:?}");
        ctx.until("the leader has looked", async || ctx.server.status().await["inbox_unusable"].is_u64()).await;
        let count = stored(ctx);
        assert!(count > 0);
        // Several looks later it still exists, is logged once, and counted. The server with the other secret does not lead.
        let before = looks(ctx).await;
        ctx.until("it looks again and again", async || looks(ctx).await >= before + 4).await;
        assert_eq!((stored(ctx), unusable(ctx, &ctx.server.status().await)), (count, count as u64));
        let log = ctx.server.log();
        assert_eq!(log.matches("cannot be verified").count(), 1, "{log}");
        assert!(log.contains("--gh-previous-webhook-secret"), "{log}");
        assert!(log.contains("a hand-over request is refused"), "{log}");
        let (_, metrics) = ctx.request("GET", "/metrics", &[]).await;
        assert!(metrics.contains(&format!("\ntidelock_inbox_unusable {count}\n")), "{metrics}");
        let (_, doctor) = ctx.server.command("doctor", &[&format!("--atlantis-url={}", ctx.server.url())]).await;
        assert!(doctor.contains(&format!("{count} objects in the bucket's inbox cannot be verified")), "{doctor}");
        let now = ctx.server.status().await;
        assert_eq!((&now["role"], &now["epoch"]), (&first["role"], &first["epoch"]));
        // The next leader knows the secret.
        ctx.server.stop().await;
        second.role("leading").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        ctx.until("the inbox is empty", async || stored(ctx) == 0).await;
        assert!(second.status().await["inbox_unusable"].is_null());
        second.stop().await;
        ctx.server.start().await;
    });
}

#[test]
fn a_server_that_knows_both_secrets_gets_the_lead_at_once() {
    run_test(setup(), async |ctx| {
        let epoch = ctx.server.role("leading").await["epoch"].as_u64();
        let flags = [new_secret(ctx), format!("--gh-previous-webhook-secret={OLD}")];
        let second = ctx.server.beside(&ctx.own.join("data-2"), &[&flags[0], &flags[1]]);
        second.start_as_standby().await;
        let now = second.role("leading").await;
        assert_eq!(now["epoch"].as_u64(), epoch.map(|epoch| epoch + 1), "{}", ctx.server.log());
        // The first one runs, and cannot verify deliveries; the second one does.
        ctx.server.role("standby").await;
        second.take_webhooks();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        second.stop().await;
        ctx.server.role("leading").await;
    });
}
