//! The story of the front door, the same on every host: the effects of a pull request, a push, a comment, a closing and a lost delivery.
//! Each host plays it through [`FlowHost`], beside GitHub where it is another one.

mod all_hosts;
mod crash;
mod guards;
mod polled;
mod requests;
mod stories;
mod strict;

use crate::azure_devops::AzureDevOpsFake;
use crate::bitbucket_cloud::BitbucketCloudFake;
use crate::bitbucket_data_center::BitbucketDataCenterFake;
use crate::gitea::{GiteaFake, RealGitea};
use crate::gitlab::GitlabFake;
use crate::second_host::Second;
use crate::support::*;

const STRICT: &str = "repo_locks: {mode: strict}";
const AUTO_APPLY: &str = "apply_requirements: [approved]\nauto_apply: {when: approved}";
const APPLY: &str = "echo $BASE_REPO_OWNER/$BASE_REPO_NAME $PULL_NUM >> {tmp}/applied";

/// Operations of a host that the story needs.
pub(crate) trait FlowHost {
    /// Mark in front of the number of a pull request.
    const MARK: char;
    /// True if its deliveries could be forged by guessing: then correct ones have to wait as well while somebody guesses.
    const CAN_BE_GUESSED: bool = false;
    /// Part of the reason for which approvals stay, if the host lets nobody take back another person's.
    const APPROVALS_STAND: Option<&'static str> = None;

    /// Returns the repository's name in locks and variables.
    fn full_name(&self) -> &'static str;

    /// Adds the host to a server.
    fn served(&self, setup: Setup) -> Setup;

    /// Makes the repository, with `main.tf`, and directs deliveries to the server.
    async fn connect(&self, ctx: &Ctx);

    /// Sends deliveries to the server from now on, or to nobody.
    fn hear(&self, ctx: &Ctx, heard: bool);

    /// Opens a pull request that writes this file. Returns its number.
    async fn open_one(&self, ctx: &Ctx, branch: &str, file: (&str, &str)) -> u64;

    /// Pushes this file to the pull request's branch.
    async fn push_to(&self, ctx: &Ctx, number: u64, file: (&str, &str));

    async fn comment_on(&self, ctx: &Ctx, number: u64, text: &str);

    /// Makes a change that has no effect on the server.
    async fn touch(&self, ctx: &Ctx, number: u64);

    /// Pushes this file to `main`.
    async fn push_to_main(&self, ctx: &Ctx, file: (&str, &str));

    async fn close_one(&self, ctx: &Ctx, number: u64);

    async fn merge_one(&self, ctx: &Ctx, number: u64);

    /// Approves the head or rejects it as another person than the author: `bob` or `carol`.
    async fn vote_on(&self, ctx: &Ctx, number: u64, who: &str, approves: bool);

    /// Approves as the author, if the host permits that.
    async fn approve_as_author(&self, _: &Ctx, _: u64) {}

    /// Makes the host refuse the merge from now on. Returns a part of its reason.
    fn refuse_merge(&self, ctx: &Ctx, number: u64) -> &'static str;

    fn is_merged(&self, ctx: &Ctx, number: u64) -> bool;

    /// Returns true if the repository still has this branch.
    async fn has_branch(&self, ctx: &Ctx, branch: &str) -> bool;

    /// Sends the latest delivery with this text replaced, and without a valid proof. Returns the status of the answer.
    async fn forged(&self, ctx: &Ctx, text: &str, other: &str) -> u16;

    /// Sends the latest delivery again.
    async fn redeliver_last(&self, ctx: &Ctx);

    /// Returns the texts of the server's comments.
    fn answers(&self, ctx: &Ctx, number: u64) -> Vec<String>;

    /// Returns true if this status of the head is a success; absent while it is missing or pending.
    fn is_success(&self, ctx: &Ctx, number: u64, context: &str) -> Option<bool>;

    /// Notes that one more comment of the server was read.
    fn was_read(&self, _: &Ctx, _: u64) {}
}

/// The forge, which all servers of these tests serve.
struct GithubForge;

impl FlowHost for GithubForge {
    const MARK: char = '#';

    fn full_name(&self) -> &'static str {
        "acme/infra"
    }

    fn served(&self, setup: Setup) -> Setup {
        setup
    }

    async fn connect(&self, _: &Ctx) {}

    fn hear(&self, _: &Ctx, _: bool) {}

    async fn open_one(&self, ctx: &Ctx, branch: &str, file: (&str, &str)) -> u64 {
        ctx.open(branch, &[file]).await.number()
    }

    async fn push_to(&self, ctx: &Ctx, number: u64, file: (&str, &str)) {
        ctx.push(&ctx.repo.pull(number), file.0, file.1).await;
    }

    async fn comment_on(&self, ctx: &Ctx, number: u64, text: &str) {
        ctx.repo.pull(number).comment("alice", text).unwrap();
    }

    async fn touch(&self, ctx: &Ctx, number: u64) {
        ctx.repo.pull(number).comment("alice", "Looks good.").unwrap();
    }

    async fn push_to_main(&self, ctx: &Ctx, file: (&str, &str)) {
        ctx.repo.push("main", &[(file.0, Some(file.1))]).await.unwrap();
    }

    async fn close_one(&self, ctx: &Ctx, number: u64) {
        ctx.repo.pull(number).close().unwrap();
    }

    async fn merge_one(&self, ctx: &Ctx, number: u64) {
        ctx.repo.pull(number).merge().await.unwrap();
    }

    async fn vote_on(&self, ctx: &Ctx, number: u64, who: &str, approves: bool) {
        let pull = ctx.repo.pull(number);
        if approves { pull.approve(who) } else { pull.request_changes(who) }.unwrap();
    }

    fn refuse_merge(&self, ctx: &Ctx, number: u64) -> &'static str {
        ctx.repo.pull(number).set_mergeable_state("blocked").unwrap();
        "At least 1 approving review is required"
    }

    fn is_merged(&self, ctx: &Ctx, number: u64) -> bool {
        ctx.repo.pull(number).is_merged().unwrap()
    }

    async fn has_branch(&self, ctx: &Ctx, branch: &str) -> bool {
        ctx.repo.tip(branch).await.is_ok()
    }

    async fn forged(&self, ctx: &Ctx, text: &str, other: &str) -> u16 {
        let last = ctx.forge.deliveries().pop().unwrap();
        assert!(last.body.contains(text), "{}", last.body);
        let request = reqwest::Client::new()
            .post(format!("{}/events", ctx.server.url()))
            .header("Content-Type", "application/json")
            .header("X-GitHub-Delivery", "00000000-0000-0000-0000-000000000000")
            .header("X-GitHub-Event", last.event)
            .header("X-Hub-Signature-256", format!("sha256={}", "0".repeat(64)));
        request.body(last.body.replace(text, other)).send().await.unwrap().status().as_u16()
    }

    async fn redeliver_last(&self, ctx: &Ctx) {
        let last = ctx.forge.deliveries().pop().unwrap();
        ctx.forge.redeliver(last.id).unwrap();
    }

    fn answers(&self, ctx: &Ctx, number: u64) -> Vec<String> {
        let comments = ctx.repo.pull(number).bot_comments().unwrap();
        comments.into_iter().map(|comment| comment.body).collect()
    }

    fn is_success(&self, ctx: &Ctx, number: u64, context: &str) -> Option<bool> {
        let statuses = ctx.repo.pull(number).statuses().unwrap();
        statuses.get(context).filter(|status| status.state != "pending").map(|status| status.state == "success")
    }

    fn was_read(&self, ctx: &Ctx, number: u64) {
        ctx.pass_over(&ctx.repo.pull(number));
    }
}

/// Reads the server's comments on one pull request, one after the other.
struct Reader<'a, H> {
    ctx: &'a Ctx,
    host: &'a H,
    number: u64,
    read: usize,
}

impl<'a, H: FlowHost> Reader<'a, H> {
    async fn open(ctx: &'a Ctx, host: &'a H, branch: &str, file: (&str, &str)) -> Reader<'a, H> {
        Reader { ctx, host, number: host.open_one(ctx, branch, file).await, read: 0 }
    }

    /// Returns the next comment, without those about another pull request with the same change.
    async fn next(&mut self) -> Said {
        loop {
            let said = self.next_of_all().await;
            if said.marker["message"] != "also_changed" {
                return said;
            }
        }
    }

    async fn next_of_all(&mut self) -> Said {
        let (ctx, host, number, read) = (self.ctx, self.host, self.number, self.read);
        ctx.until("the server comments", async || host.answers(ctx, number).len() > read).await;
        host.was_read(ctx, number);
        self.read += 1;
        Said::new(&host.answers(ctx, number)[read])
    }

    /// Passes over the comments that are there.
    fn pass_over(&mut self) {
        while self.read < self.count() {
            self.host.was_read(self.ctx, self.number);
            self.read += 1;
        }
    }

    async fn say(&mut self, text: &str) -> Said {
        self.host.comment_on(self.ctx, self.number, text).await;
        self.next().await
    }

    async fn succeeds(&self, context: &str) {
        let is = async || self.host.is_success(self.ctx, self.number, context) == Some(true);
        self.ctx.until(&format!("{context} is a success"), is).await;
    }

    fn count(&self) -> usize {
        self.host.answers(self.ctx, self.number).len()
    }
}

/// One project at the root, whose steps need no Terraform; `keys` are those of every repository.
pub(crate) fn one_project(keys: &str) -> Setup {
    Setup::one_project().repos_yaml(&workflow(keys, &[PLANNED], &[APPLY]))
}

/// The same with approvals that a command to plan takes back.
fn discarding() -> Setup {
    one_project("apply_requirements: [approved]").flags(&["--discard-approval-on-plan"])
}

pub(crate) fn play<H: FlowHost>(host: H, setup: Setup, story: impl AsyncFnOnce(&Ctx, &H)) {
    run_test(host.served(setup), async |ctx| {
        host.connect(ctx).await;
        story(ctx, &host).await;
    });
}

/// A test of a story on each host.
macro_rules! on_each {
    ($setup:expr, $story:path; $($name:ident: $host:expr;)*) => {$(
        #[test]
        fn $name() {
            play($host, $setup, $story);
        }
    )*};
}

/// A test of a story on each host that another process can reach.
macro_rules! on_each_forge {
    ($setup:expr, $story:path) => {
        on_each! {
            $setup, $story;
            on_github: GithubForge;
            on_azure_devops: AzureDevOpsFake::start();
            on_gitlab: GitlabFake::start();
            on_gitea: GiteaFake::start();
            on_bitbucket_cloud: BitbucketCloudFake::start();
            on_bitbucket_data_center: BitbucketDataCenterFake::start();
        }

        #[test]
        #[ignore = "needs a real Gitea: scripts/with-gitea"]
        fn on_a_real_gitea() {
            play(RealGitea::start(), $setup, $story);
        }
    };
}

/// The same story on every host, with this set-up.
macro_rules! on_every_host {
    ($($story:ident: $setup:expr;)*) => {$(
        mod $story {
            use super::*;

            on_each_forge! { $setup, stories::$story }

            #[test]
            fn on_the_second_host() {
                play(Second::new(), $setup, stories::$story);
            }
        }
    )*};
}

on_every_host! {
    from_autoplan_to_merge: one_project("");
    only_a_moved_head_is_planned: one_project("");
    missed_deliveries_are_found: one_project("");
    a_redelivery_is_known: one_project("");
    an_approval_is_anothers_of_this_head_and_nobody_objects:
        one_project("apply_requirements: [approved]").flags(&["--approval-of-head"]);
    approvals_are_discarded_or_nothing_is_planned: discarding();
    it_is_merged_once_all_is_applied: one_project("delete_source_branch_on_merge: true").flags(&["--automerge"]);
    a_merge_that_the_host_refuses_is_told: one_project("").flags(&["--automerge"]);
    a_forged_delivery_is_refused: one_project("");
    a_guard_is_overridden_by_whom_it_names: one_project(&guards::guarded("user:nobody"));
    an_approval_applies_what_it_saw: one_project(AUTO_APPLY);
    a_missed_approval_is_found: one_project(AUTO_APPLY);
}

/// Other tokens may not do that on this host.
#[test]
fn the_token_of_a_gitlab_project_discards_approvals() {
    let host = GitlabFake::start();
    host.forge.set_token_is_of_bot(true);
    play(host, discarding(), stories::approvals_are_discarded);
}

/// The same story on every host that another process can reach, in mode `strict`.
macro_rules! in_mode_strict {
    ($($story:ident: $setup:expr;)*) => {$(
        mod $story {
            use super::*;

            on_each_forge! { $setup, strict::$story }
        }
    )*};
}

in_mode_strict! {
    an_apply_keeps_others_out_until_the_merge: one_project(STRICT);
    what_is_closed_after_an_apply_stays_owned: one_project(&format!("{STRICT}\nallowed_users: ['*', '*:unlock']"));
    what_is_merged_without_an_apply_is_applied_after_it: one_project(STRICT);
    what_nobody_planned_is_owed_after_the_merge: one_project(STRICT).flags(&["--disable-autoplan"]);
    a_push_to_the_base_branch_invalidates_a_plan: one_project(STRICT);
}
