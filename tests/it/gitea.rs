//! Gitea and GitHub in one server: the story of the front door on a forge that speaks as Gitea over HTTP, and on a real Gitea.

mod real;

use crate::flow::{FlowHost as _, one_project, play};
use crate::forge_host::{AUTHOR, ForgeHost, ForgeKind};
use crate::support::*;
pub(crate) use real::RealGitea;
use ring::hmac;
use secrecy::ExposeSecret as _;
use serde_json::json;
use tidelock_forge::{Delivery, HostKind};

/// Gitea, with a repository of an organization.
pub(crate) struct OnGitea;

pub(crate) type GiteaFake = ForgeHost<OnGitea>;

impl ForgeKind for OnGitea {
    const KIND: HostKind = HostKind::Gitea;
    const MARK: char = '#';
    const FULL_NAME: &'static str = "acme/stage";
    const REFUSAL: (&'static str, &'static str) = ("blocked", "1 more approval is required");
    const AUTHORS_APPROVE: bool = false;
    const WAITING: &'static [&'static str] = &["pending"];

    fn forged_headers(event: &str) -> Vec<(&'static str, String)> {
        vec![("x-gitea-event", event.to_owned()), ("x-gitea-signature", "0".repeat(64))]
    }
}

/// Returns the headers of an authentic delivery.
fn signed(host: &GiteaFake, event: &str, body: &str) -> Vec<(&'static str, String)> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, host.forge.webhook_secret().expose_secret().as_bytes());
    let signature = hex::encode(hmac::sign(&key, body.as_bytes()));
    vec![("x-gitea-event", event.to_owned()), ("x-gitea-signature", signature)]
}

/// The page of a webhook shows its secret to whoever administers the repository, and other repositories may have the same one.
#[test]
fn a_comment_that_the_host_does_not_have_is_not_obeyed_whoever_signs() {
    play(GiteaFake::start(), one_project(""), async |ctx: &Ctx, host: &GiteaFake| {
        let number = host.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        ctx.quiet().await;
        let id = host.pull(number).comment(AUTHOR, "Looks good.").unwrap();
        host.delivered().await;
        let said = host.forge.deliveries().into_iter().rfind(|one| one.body.contains("Looks good.")).unwrap();
        let genuine: serde_json::Value = serde_json::from_str(&said.body).unwrap();
        for (comment, of) in [(id, AUTHOR), (id + 1000, AUTHOR), (id, "bob")] {
            let mut forged = genuine.clone();
            forged["comment"]["id"] = json!(comment);
            forged["comment"]["body"] = json!("atlantis apply");
            forged["comment"]["user"]["login"] = json!(of);
            let body = forged.to_string();
            assert_eq!(host.send(signed(host, "issue_comment", &body), &body).await, 200);
            ctx.quiet().await;
        }
        assert_eq!(host.pull(number).bot_comments().unwrap().len(), 1, "the plan alone");
        assert_eq!(ctx.lines("applied"), 0);
        host.comment_on(ctx, number, "atlantis apply").await;
        ctx.until("it is applied", async || ctx.lines("applied") == 1).await;
    });
}

/// Gitea tells a push after much other work, so that a comment on it may come first.
#[test]
fn a_push_is_planned_whole_although_a_command_on_a_part_came_before_its_delivery() {
    play(GiteaFake::start(), one_project(""), async |ctx: &Ctx, host: &GiteaFake| {
        let number = host.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        ctx.quiet().await;
        host.hear(ctx, false);
        host.push_to(ctx, number, ("main.tf", "# 3\n")).await;
        let pushed = host.forge.deliveries().into_iter().rfind(|one| one.body.contains("synchronized")).unwrap();
        host.hear(ctx, true);
        let has = async |count: usize| host.pull(number).bot_comments().unwrap().len() == count;
        host.comment_on(ctx, number, "atlantis plan -d .").await;
        ctx.until("the part is planned", async || has(2).await).await;
        ctx.quiet().await;
        host.forge.redeliver(pushed.id).unwrap();
        ctx.until("everything is planned", async || has(3).await).await;
        ctx.quiet().await;
        host.forge.redeliver(pushed.id).unwrap();
        host.delivered().await;
        ctx.quiet().await;
        assert!(has(3).await, "planned once");
    });
}

/// Gitea tells every change of a pull request by the same event.
#[test]
fn a_changed_title_or_label_is_not_planned() {
    play(GiteaFake::start(), one_project(""), async |ctx: &Ctx, host: &GiteaFake| {
        let number = host.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        ctx.until("it is planned", async || host.answers(ctx, number).len() == 1).await;
        host.pull(number).set_title("Another title").unwrap();
        host.pull(number).set_labels(&["urgent"]).unwrap();
        host.delivered().await;
        for action in ["edited", "label_updated"] {
            let told = |one: &Delivery| one.action.as_deref() == Some(action) && one.succeeded();
            assert!(host.forge.deliveries().iter().any(told), "{action}");
        }
        ctx.quiet().await;
        assert_eq!(host.answers(ctx, number).len(), 1);
        host.push_to(ctx, number, ("main.tf", "# 3\n")).await;
        ctx.until("the push is planned", async || host.answers(ctx, number).len() == 2).await;
    });
}
