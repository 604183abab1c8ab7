//! Bitbucket Cloud and GitHub in one server: the story of the front door on a forge that speaks as Bitbucket Cloud over HTTP.

use crate::flow::{FlowHost as _, one_project, play};
use crate::forge_host::{AUTHOR, ForgeHost, ForgeKind};
use crate::support::*;
use ring::hmac;
use secrecy::ExposeSecret as _;
use serde_json::json;
use tidelock_forge::{Delivery, HostKind, OpenOptions};

/// Id of a webhook, which the door does not compare.
const HOOK: &str = "{0c5b1f1e-4d1c-4a52-9a4f-1c4a6f0e7d55}";

/// Bitbucket Cloud, with a repository of a workspace.
pub(crate) struct OnBitbucketCloud;

pub(crate) type BitbucketCloudFake = ForgeHost<OnBitbucketCloud>;

impl ForgeKind for OnBitbucketCloud {
    const KIND: HostKind = HostKind::BitbucketCloud;
    const MARK: char = '#';
    const FULL_NAME: &'static str = "acme/live";
    const REFUSAL: (&'static str, &'static str) = ("blocked", "1 more approval is required");
    const AUTHORS_APPROVE: bool = true;
    const APPROVALS_STAY: bool = true;
    const APPROVALS_STAND: Option<&'static str> = Some(
        "Bitbucket Cloud lets nobody take back another person's approval: switch `--discard-approval-on-plan` off",
    );
    const WAITING: &'static [&'static str] = &["pending"];

    fn forged_headers(event: &str) -> Vec<(&'static str, String)> {
        headers(event, &format!("sha256={}", "0".repeat(64)))
    }
}

fn headers(event: &str, signature: &str) -> Vec<(&'static str, String)> {
    [("x-event-key", event), ("x-hook-uuid", HOOK), ("x-hub-signature", signature)]
        .map(|(name, value)| (name, value.to_owned()))
        .to_vec()
}

/// Returns the headers of an authentic delivery.
fn signed(host: &BitbucketCloudFake, event: &str, body: &str) -> Vec<(&'static str, String)> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, host.forge.webhook_secret().expose_secret().as_bytes());
    headers(event, &format!("sha256={}", hex::encode(hmac::sign(&key, body.as_bytes()))))
}

/// Whoever administers a repository knows the secret of its webhooks.
#[test]
fn a_comment_that_the_host_does_not_have_is_not_obeyed_whoever_signs() {
    play(BitbucketCloudFake::start(), one_project(""), async |ctx: &Ctx, host: &BitbucketCloudFake| {
        let number = host.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        ctx.quiet().await;
        let id = host.pull(number).comment(AUTHOR, "Looks good.").unwrap();
        host.delivered().await;
        let said = host.forge.deliveries().into_iter().rfind(|one| one.body.contains("Looks good.")).unwrap();
        let genuine: serde_json::Value = serde_json::from_str(&said.body).unwrap();
        for (comment, of) in [(id, AUTHOR), (id + 1000, AUTHOR), (id, "bob")] {
            let mut forged = genuine.clone();
            forged["comment"]["id"] = json!(comment);
            forged["comment"]["content"]["raw"] = json!("atlantis apply");
            forged["comment"]["user"]["account_id"] = json!(host.forge.account_id(of));
            let body = forged.to_string();
            assert_eq!(host.send(signed(host, "pullrequest:comment_created", &body), &body).await, 200);
            ctx.quiet().await;
        }
        assert_eq!(host.pull(number).bot_comments().unwrap().len(), 1, "the plan alone");
        assert_eq!(ctx.lines("applied"), 0);
        host.comment_on(ctx, number, "atlantis apply").await;
        ctx.until("it is applied", async || ctx.lines("applied") == 1).await;
    });
}

/// Everybody may take any name, so a name that equals the id in a rule gives no right.
#[test]
fn a_name_gives_no_right() {
    let host = BitbucketCloudFake::start();
    let ann = host.forge.account_id("ann");
    let setup = one_project(&format!("allowed_users: ['*:plan', '{ann}:apply']"));
    play(host, setup, async |ctx: &Ctx, host: &BitbucketCloudFake| {
        let ann = host.forge.account_id("ann");
        host.forge.set_person_name(AUTHOR, &ann, &ann).unwrap();
        host.forge.set_person_name("ann", "Somebody", "Somebody else").unwrap();
        let number = host.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        let answers = async |count: usize| {
            let is_there = async || host.answers(ctx, number).len() == count;
            ctx.until(&format!("{count} answers"), is_there).await;
            host.answers(ctx, number).pop().unwrap()
        };
        answers(1).await;
        host.comment_on(ctx, number, "atlantis apply").await;
        let refused = answers(2).await;
        assert!(refused.contains("may not use `apply`"), "{refused}");
        assert!(refused.contains(&host.forge.account_id(AUTHOR)), "rules need the id: {refused}");
        assert_eq!(ctx.lines("applied"), 0);
        host.pull(number).comment("ann", "atlantis apply").unwrap();
        host.delivered().await;
        ctx.until("it is applied", async || ctx.lines("applied") == 1).await;
        ctx.quiet().await;
        let audit = ctx.json("/audit.json?act=apply").await["entries"][0].clone();
        assert_eq!((audit["who"].as_str(), audit["name"].as_str()), (Some(ann.as_str()), Some("Somebody else")));
    });
}

/// The delivery of an update does not say what has changed. A server that knew heads from its memory alone would plan after a restart.
#[test]
fn a_changed_title_is_not_planned_after_a_restart_either() {
    play(BitbucketCloudFake::start(), one_project(""), async |ctx: &Ctx, host: &BitbucketCloudFake| {
        let number = host.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        ctx.until("it is planned", async || host.answers(ctx, number).len() == 1).await;
        let renamed = async |title: &str| {
            host.pull(number).set_title(title).unwrap();
            host.delivered().await;
            let told =
                |one: &Delivery| one.event == "pullrequest:updated" && one.body.contains(title) && one.succeeded();
            assert!(host.forge.deliveries().iter().any(told));
            ctx.quiet().await;
            assert_eq!(host.answers(ctx, number).len(), 1, "{title}");
        };
        renamed("Before the restart").await;
        ctx.server.stop().await;
        ctx.server.start().await;
        host.hear(ctx, true);
        renamed("After the restart").await;
        host.push_to(ctx, number, ("main.tf", "# 3\n")).await;
        ctx.until("the push is planned", async || host.answers(ctx, number).len() == 2).await;
    });
}

/// The base repository has neither refs nor commits of a fork's pull request.
#[test]
fn a_fork_is_planned_from_its_own_repository() {
    let setup = one_project("").flags(&["--allow-fork-prs"]);
    play(BitbucketCloudFake::start(), setup, async |ctx: &Ctx, host: &BitbucketCloudFake| {
        let options = OpenOptions { fork: Some("bob".to_owned()), ..OpenOptions::default() };
        let changes = [("main.tf", Some("# 2\n"))];
        let opened = host.repo().open_pull("theirs", "bob", "From a fork", &changes, options).await.unwrap();
        host.delivered().await;
        let planned = async || host.answers(ctx, opened.number()).len() == 1;
        ctx.until("it is planned", planned).await;
        let said = Said::new(&host.answers(ctx, opened.number())[0]);
        said.is("plan", "success");
    });
}

/// The answer to a merge that takes long is a task, which tells the end.
#[test]
fn a_merge_that_takes_long_is_requested_once() {
    let setup = one_project("").flags(&["--automerge"]);
    play(BitbucketCloudFake::start(), setup, async |ctx: &Ctx, host: &BitbucketCloudFake| {
        host.forge.slow_merges_down(2);
        let number = host.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        host.pull(number).close_source_branch().unwrap();
        ctx.until("it is planned", async || host.answers(ctx, number).len() == 1).await;
        host.comment_on(ctx, number, "atlantis apply").await;
        ctx.until("it is merged", async || host.is_merged(ctx, number)).await;
        host.delivered().await;
        ctx.quiet().await;
        let merges = host.forge.requests();
        let merges = merges.iter().filter(|one| one.method == "POST" && one.path.ends_with("/merge"));
        assert_eq!(merges.count(), 1);
        assert!(host.has_branch(ctx, "one").await, "the operator keeps branches, whatever the author has chosen");
        assert!(!host.answers(ctx, number).iter().any(|text| text.contains("failed")));
    });
}

/// Twelve digits of a commit can be made equal to those of another one.
#[test]
fn a_head_whose_first_digits_two_commits_have_is_planned_and_applied() {
    play(BitbucketCloudFake::start(), one_project(""), async |ctx: &Ctx, host: &BitbucketCloudFake| {
        let number = host.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        host.pull(number).share_first_digits().unwrap();
        ctx.until("it is planned", async || host.answers(ctx, number).len() == 1).await;
        host.comment_on(ctx, number, "atlantis apply").await;
        ctx.until("it is applied", async || ctx.lines("applied") == 1).await;
    });
}

/// Of a pull request whose fork is gone the host tells no commit. Closing it frees what it holds all the same.
#[test]
fn closing_frees_locks_although_the_head_is_gone() {
    play(BitbucketCloudFake::start(), one_project(""), async |ctx: &Ctx, host: &BitbucketCloudFake| {
        let number = host.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        ctx.until("it is planned", async || host.answers(ctx, number).len() == 1).await;
        assert_eq!(ctx.locks().await.len(), 1);
        host.pull(number).lose_head().unwrap();
        host.close_one(ctx, number).await;
        ctx.until("the lock is free", async || ctx.locks().await.is_empty()).await;
    });
}
