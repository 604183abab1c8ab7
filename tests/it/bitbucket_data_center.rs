//! Bitbucket Data Center and GitHub in one server: the story of the front door on a forge that speaks as Bitbucket Data Center over HTTP.

use crate::bitbucket_cloud::BitbucketCloudFake;
use crate::flow::{FlowHost, one_project, play};
use crate::forge_host::{AUTHOR, ForgeHost, ForgeKind};
use crate::support::*;
use ring::hmac;
use secrecy::ExposeSecret as _;
use serde_json::json;
use tidelock_forge::{HostKind, OpenOptions};

/// Bitbucket Data Center, with a repository of a project.
pub(crate) struct OnBitbucketDataCenter;

pub(crate) type BitbucketDataCenterFake = ForgeHost<OnBitbucketDataCenter>;

impl ForgeKind for OnBitbucketDataCenter {
    const KIND: HostKind = HostKind::BitbucketDataCenter;
    const MARK: char = '#';
    const FULL_NAME: &'static str = "ACME/live";
    const REFUSAL: (&'static str, &'static str) = ("blocked", "1 more approval");
    const AUTHORS_APPROVE: bool = false;
    const APPROVALS_STAND: Option<&'static str> = Some(
        "Bitbucket Data Center lets nobody take back another person's approval: switch `--discard-approval-on-plan` off",
    );
    const WAITING: &'static [&'static str] = &["pending"];

    fn forged_headers(event: &str) -> Vec<(&'static str, String)> {
        headers(event, &format!("sha256={}", "0".repeat(64)))
    }
}

fn headers(event: &str, signature: &str) -> Vec<(&'static str, String)> {
    [("x-event-key", event), ("x-request-id", "0c5b1f1e-4d1c-4a52-9a4f-1c4a6f0e7d55"), ("x-hub-signature", signature)]
        .map(|(name, value)| (name, value.to_owned()))
        .to_vec()
}

/// Returns the headers of an authentic delivery.
fn signed(host: &BitbucketDataCenterFake, event: &str, body: &str) -> Vec<(&'static str, String)> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, host.forge.webhook_secret().expose_secret().as_bytes());
    headers(event, &format!("sha256={}", hex::encode(hmac::sign(&key, body.as_bytes()))))
}

/// Whoever administers a repository knows the secret of its webhooks.
#[test]
fn a_comment_that_the_host_does_not_have_is_not_obeyed_whoever_signs() {
    play(BitbucketDataCenterFake::start(), one_project(""), async |ctx: &Ctx, host: &BitbucketDataCenterFake| {
        let number = host.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        ctx.quiet().await;
        let id = host.pull(number).comment(AUTHOR, "Looks good.").unwrap();
        host.delivered().await;
        let said = host.forge.deliveries().into_iter().rfind(|one| one.body.contains("Looks good.")).unwrap();
        let genuine: serde_json::Value = serde_json::from_str(&said.body).unwrap();
        for (comment, of) in [(id, AUTHOR), (id + 1000, AUTHOR), (id, "bob")] {
            let mut forged = genuine.clone();
            forged["comment"]["id"] = json!(comment);
            forged["comment"]["text"] = json!("atlantis apply");
            for person in ["/comment/author", "/actor"] {
                let person = forged.pointer_mut(person).unwrap();
                (person["name"], person["slug"]) = (json!(of), json!(of));
            }
            let body = forged.to_string();
            assert_eq!(host.send(signed(host, "pr:comment:added", &body), &body).await, 200);
            ctx.quiet().await;
        }
        assert_eq!(host.pull(number).bot_comments().unwrap().len(), 1, "the plan alone");
        assert_eq!(ctx.lines("applied"), 0);
        host.comment_on(ctx, number, "atlantis apply").await;
        ctx.until("it is applied", async || ctx.lines("applied") == 1).await;
    });
}

/// The administrators of a project choose its name, which may be the key of another one. Atlantis takes it for that.
#[test]
fn the_name_of_a_project_opens_no_allowlist() {
    play(BitbucketDataCenterFake::start(), one_project(""), async |ctx: &Ctx, host: &BitbucketDataCenterFake| {
        let theirs = host.forge.create_repo("EVIL/live", &[("main.tf", "# 1\n")]).await.unwrap();
        host.forge.set_project_name("EVIL", "acme");
        host.forge.set_project_name("ACME", "Infrastructure");
        let changes = [("main.tf", Some("# 2\n"))];
        let opened = theirs.open_pull("one", AUTHOR, "Theirs", &changes, OpenOptions::default()).await.unwrap();
        host.delivered().await;
        let number = host.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        ctx.until("ours is planned", async || host.answers(ctx, number).len() == 1).await;
        ctx.quiet().await;
        assert!(opened.bot_comments().unwrap().is_empty() && opened.statuses().unwrap().is_empty());
    });
}

/// The button "Test connection" sends a request that nobody signs.
#[test]
fn an_unsigned_ping_is_answered_and_any_other_unsigned_delivery_is_refused() {
    play(BitbucketDataCenterFake::start(), one_project(""), async |ctx: &Ctx, host: &BitbucketDataCenterFake| {
        let number = host.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        ctx.until("it is planned", async || host.answers(ctx, number).len() == 1).await;
        host.pull(number).comment(AUTHOR, "Looks good.").unwrap();
        host.delivered().await;
        let said = host.forge.deliveries().into_iter().rfind(|one| one.body.contains("Looks good.")).unwrap();
        let body = said.body.replace("Looks good.", "atlantis apply");
        let unsigned = |event: &str| headers(event, "")[..2].to_vec();
        assert_eq!(host.send(unsigned("diagnostics:ping"), &body).await, 200);
        assert_eq!(host.send(unsigned("pr:comment:added"), &body).await, 401);
        host.forge.ping_webhook();
        host.delivered().await;
        ctx.quiet().await;
        assert_eq!((ctx.lines("applied"), host.answers(ctx, number).len()), (0, 1));
    });
}

/// Sets a build of another system on the head of a pull request.
async fn set_build(host: &BitbucketDataCenterFake, number: u64, state: &str) {
    let commit = host.pull(number).head_commit().unwrap();
    let base = host.forge.hostname_setting();
    let url = format!("{base}/rest/api/latest/projects/ACME/repos/live/commits/{commit}/builds");
    let build = json!({"key": "ci", "state": state, "url": "https://ci.example.com/1", "ref": "refs/heads/one"});
    let (_, token) = host.forge.credentials("bob").unwrap();
    let answer = client().post(url).bearer_auth(token.expose_secret()).json(&build).send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
}

/// Where the repository allows it, the host itself merges once the builds of others have succeeded.
#[test]
fn a_merge_that_waits_for_a_build_is_left_to_the_host() {
    let setup = one_project("").flags(&["--automerge"]);
    play(BitbucketDataCenterFake::start(), setup, async |ctx: &Ctx, host: &BitbucketDataCenterFake| {
        host.repo().enable_auto_merge().unwrap();
        let number = host.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        ctx.until("it is planned", async || host.answers(ctx, number).len() == 1).await;
        host.repo().require_successful_builds(1).unwrap();
        set_build(host, number, "INPROGRESS").await;
        host.comment_on(ctx, number, "atlantis apply").await;
        ctx.until("it waits", async || host.pull(number).waits_for_merge().unwrap()).await;
        ctx.quiet().await;
        assert!(!host.is_merged(ctx, number) && ctx.lines("applied") == 1);
        set_build(host, number, "SUCCESSFUL").await;
        ctx.until("the host has merged it", async || host.is_merged(ctx, number)).await;
        host.delivered().await;
        ctx.until("the lock is free", async || ctx.locks().await.is_empty()).await;
    });
}

/// Each door takes the deliveries of its own host, although both have the same header with the event.
#[test]
fn both_bitbuckets_are_served_by_one_server() {
    let (cloud, data_center) = (BitbucketCloudFake::start(), BitbucketDataCenterFake::start());
    let setup = data_center.served(cloud.served(one_project("")));
    let all = setup.flags(&["--repo-allowlist=127.0.0.1/acme/*,127.0.0.4/acme/*,127.0.0.5/acme/*"]);
    run_test(all, async |ctx| {
        cloud.connect(ctx).await;
        data_center.connect(ctx).await;
        let on_cloud = cloud.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        let on_data_center = data_center.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        let are_planned =
            async || cloud.answers(ctx, on_cloud).len() == 1 && data_center.answers(ctx, on_data_center).len() == 1;
        ctx.until("both are planned", are_planned).await;
        data_center.comment_on(ctx, on_data_center, "atlantis apply").await;
        ctx.until("one is applied", async || ctx.lines("applied") == 1).await;
        ctx.quiet().await;
        assert_eq!(cloud.answers(ctx, on_cloud).len(), 1);
        cloud.comment_on(ctx, on_cloud, "atlantis apply").await;
        ctx.until("the other one is applied", async || ctx.lines("applied") == 2).await;
    });
}

/// The doctor names the version, our permissions, and a webhook whose deliveries fail.
#[test]
fn the_doctor_reads_the_instance_and_its_webhooks() {
    let setup = one_project("").flags(&["--lease-ttl=5s", "--bucket=file://{own}/bucket"]).own_process();
    play(BitbucketDataCenterFake::start(), setup, async |ctx: &Ctx, host: &BitbucketDataCenterFake| {
        // Its port is another one after a restart.
        let doctor = async || {
            let url = format!("--atlantis-url={}", ctx.server.url());
            ctx.server.command("doctor", &[&url]).await
        };
        host.forge.set_data_center_version("9.4.3");
        let (code, text) = doctor().await;
        assert_eq!(code, Some(0), "{text}");
        for wanted in [
            "ok       bitbucket  the token is tidelock-bot's on 127.0.0.5 (Bitbucket 9.4.3)",
            "ok       bitbucket  may write to ACME/live",
            "ok       webhook    ACME/live: that to ",
        ] {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
        host.forge.set_data_center_version("7.3.2");
        let (code, text) = doctor().await;
        assert!(code == Some(1) && text.contains("mend: update Bitbucket to 7.4 or later"), "{text}");
        host.forge.set_data_center_version("9.4.3");
        // Deliveries that the server refuses.
        ctx.server.stop().await;
        ctx.server.flag("--webhook-allowlist=192.0.2.0/24");
        ctx.server.start().await;
        host.hear(ctx, true);
        let changes = [("main.tf", Some("# 2\n"))];
        host.repo().open_pull("one", AUTHOR, "Refused", &changes, OpenOptions::default()).await.unwrap();
        host.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let (code, text) = doctor().await;
        let failing = "failed with its last delivery, pr:opened at ";
        assert!(
            code == Some(1) && text.contains(failing) && text.contains("403. After five failures in a row"),
            "{text}"
        );
        host.repo().set_permission("tidelock-bot", "read").unwrap();
        let (_, text) = doctor().await;
        assert!(text.contains("warning  bitbucket  may not write to ACME/live"), "{text}");
    });
}
