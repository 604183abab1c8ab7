//! GitLab and GitHub in one server: the story of the front door on a fake GitLab over HTTP, with real git.

mod fake;

use crate::flow::FlowHost;
use crate::support::*;
pub(crate) use fake::GitlabFake;
use fake::{AUTHOR, FULL_NAME};

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
