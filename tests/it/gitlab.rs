//! GitLab and GitHub in one server: the story of the front door on a fake GitLab over HTTP, with real git.

mod fake;

use crate::flow::{FlowHost, one_project, play};
use crate::support::*;
pub(crate) use fake::GitlabFake;
use fake::{AUTHOR, FULL_NAME};
use serde_json::json;

impl FlowHost for GitlabFake {
    const MARK: char = '!';

    fn full_name(&self) -> &'static str {
        FULL_NAME
    }

    fn served(&self, setup: Setup) -> Setup {
        let flags = self.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        setup.flags(&flags)
    }

    async fn connect(&self, ctx: &Ctx) {
        GitlabFake::connect(self, ctx).await;
    }

    fn hear(&self, ctx: &Ctx, heard: bool) {
        self.deliver_to(&if heard { ctx.server.url() } else { String::new() });
    }

    async fn open_one(&self, _: &Ctx, branch: &str, file: (&str, &str)) -> u64 {
        self.open(branch, file).await
    }

    async fn push_to(&self, _: &Ctx, number: u64, file: (&str, &str)) {
        self.pull(number).push(&[(file.0, Some(file.1))]).await.unwrap();
        self.delivered().await;
    }

    async fn comment_on(&self, _: &Ctx, number: u64, text: &str) {
        self.pull(number).comment(AUTHOR, text).unwrap();
        self.delivered().await;
    }

    async fn touch(&self, _: &Ctx, number: u64) {
        self.pull(number).comment(AUTHOR, "Looks good.").unwrap();
        self.delivered().await;
    }

    async fn push_to_main(&self, _: &Ctx, file: (&str, &str)) {
        self.repo().push("main", &[(file.0, Some(file.1))]).await.unwrap();
        self.delivered().await;
    }

    async fn close_one(&self, _: &Ctx, number: u64) {
        self.pull(number).close().unwrap();
        self.delivered().await;
    }

    async fn merge_one(&self, _: &Ctx, number: u64) {
        self.pull(number).merge().await.unwrap();
        self.delivered().await;
    }

    async fn vote_on(&self, _: &Ctx, number: u64, who: &str, approves: bool) {
        let pull = self.pull(number);
        if approves { pull.approve(who) } else { pull.request_changes(who) }.unwrap();
        self.delivered().await;
    }

    async fn approve_as_author(&self, _: &Ctx, number: u64) {
        self.pull(number).approve(AUTHOR).unwrap();
        self.delivered().await;
    }

    fn refuse_merge(&self, _: &Ctx, number: u64) -> &'static str {
        self.pull(number).set_mergeable_state("not_approved").unwrap();
        "required approvals are missing"
    }

    fn is_merged(&self, _: &Ctx, number: u64) -> bool {
        self.pull(number).is_merged().unwrap()
    }

    async fn has_branch(&self, _: &Ctx, branch: &str) -> bool {
        self.repo().tip(branch).await.is_ok()
    }

    async fn forged(&self, _: &Ctx, text: &str, other: &str) -> u16 {
        self.send_forged(text, other).await
    }

    async fn redeliver_last(&self, _: &Ctx) {
        assert_eq!(self.redeliver().await, 200);
    }

    fn answers(&self, _: &Ctx, number: u64) -> Vec<String> {
        self.pull(number).bot_comments().unwrap().into_iter().map(|comment| comment.body).collect()
    }

    /// A canceled status, which is an error for other hosts, waits.
    fn is_success(&self, _: &Ctx, number: u64, context: &str) -> Option<bool> {
        let state = self.pull(number).statuses().unwrap().remove(context)?.state;
        (!matches!(state.as_str(), "pending" | "error")).then(|| state == "success")
    }
}

/// Whoever configures a webhook chooses what its deliveries say, by a custom template.
#[test]
fn a_comment_that_the_host_does_not_have_is_not_obeyed() {
    play(GitlabFake::start(), one_project(""), async |ctx: &Ctx, host: &GitlabFake| {
        let number = host.open("one", ("main.tf", "# 2\n")).await;
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
            assert_eq!(host.send_from_template(&last.event, &forged.to_string()).await, 200);
            ctx.quiet().await;
        }
        assert_eq!(host.pull(number).bot_comments().unwrap().len(), 1, "the plan alone");
        assert_eq!(ctx.lines("applied"), 0);
        host.pull(number).comment(AUTHOR, "atlantis apply").unwrap();
        host.delivered().await;
        ctx.quiet().await;
        assert_eq!(ctx.lines("applied"), 1);
    });
}
