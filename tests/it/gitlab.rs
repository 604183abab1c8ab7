//! GitLab and GitHub in one server: the story of the front door on a forge that speaks as GitLab over HTTP, with real git.

use crate::flow::{FlowHost as _, one_project, play};
use crate::forge_host::{AUTHOR, ForgeHost, ForgeKind};
use crate::support::*;
use secrecy::ExposeSecret as _;
use serde_json::json;
use tidelock_forge::HostKind;

/// GitLab, with a project in a subgroup.
pub(crate) struct OnGitlab;

pub(crate) type GitlabFake = ForgeHost<OnGitlab>;

impl ForgeKind for OnGitlab {
    const KIND: HostKind = HostKind::Gitlab;
    const MARK: char = '!';
    const FULL_NAME: &'static str = "acme/platform/live";
    const REFUSAL: (&'static str, &'static str) = ("not_approved", "required approvals are missing");
    const AUTHORS_APPROVE: bool = true;
    /// Of a server with a personal token, as the forge's is at first.
    const APPROVALS_STAND: Option<&'static str> =
        Some("only the bot user of a project or group access token may reset approvals");
    /// A canceled status, which is an error for other hosts, waits.
    const WAITING: &'static [&'static str] = &["pending", "error"];

    fn forged_headers(event: &str) -> Vec<(&'static str, String)> {
        headers(event, "a guess")
    }
}

fn headers(event: &str, token: &str) -> Vec<(&'static str, String)> {
    vec![("x-gitlab-event", event.to_owned()), ("x-gitlab-token", token.to_owned())]
}

/// Whoever configures a webhook chooses what its deliveries say, by a custom template.
#[test]
fn a_comment_that_the_host_does_not_have_is_not_obeyed() {
    play(GitlabFake::start(), one_project(""), async |ctx: &Ctx, host: &GitlabFake| {
        let number = host.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        ctx.quiet().await;
        let id = host.pull(number).comment(AUTHOR, "Looks good.").unwrap();
        host.delivered().await;
        let last = host.forge.deliveries().pop().unwrap();
        let genuine: serde_json::Value = serde_json::from_str(&last.body).unwrap();
        for (note, of) in [(id, AUTHOR), (id + 1000, AUTHOR), (id, "bob")] {
            let mut forged = genuine.clone();
            forged["object_attributes"]["id"] = json!(note);
            forged["object_attributes"]["note"] = json!("atlantis apply");
            forged["user"]["username"] = json!(of);
            let headers = headers(&last.event, host.forge.webhook_secret().expose_secret());
            assert_eq!(host.send(headers, &forged.to_string()).await, 200);
            ctx.quiet().await;
        }
        assert_eq!(host.pull(number).bot_comments().unwrap().len(), 1, "the plan alone");
        assert_eq!(ctx.lines("applied"), 0);
        host.comment_on(ctx, number, "atlantis apply").await;
        ctx.quiet().await;
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn approved_means_by_the_rules_of_the_project_too() {
    play(GitlabFake::start(), one_project("apply_requirements: [approved]"), async |ctx: &Ctx, host: &GitlabFake| {
        host.repo().require_approvals(2).unwrap();
        let number = host.open_one(ctx, "one", ("main.tf", "# 2\n")).await;
        let nth = async |count: usize| {
            ctx.until("the server comments", async || host.answers(ctx, number).len() == count).await;
            Said::new(&host.answers(ctx, number)[count - 1])
        };
        nth(1).await.is("plan", "success");
        host.vote_on(ctx, number, "bob", true).await;
        host.comment_on(ctx, number, "atlantis apply").await;
        nth(2).await.is("apply", "failure").has("GitLab requires 1 more approval");
        assert_eq!(ctx.lines("applied"), 0);
        host.vote_on(ctx, number, "carol", true).await;
        host.comment_on(ctx, number, "atlantis apply").await;
        nth(3).await.is("apply", "success");
    });
}
