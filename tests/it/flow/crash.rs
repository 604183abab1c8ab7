//! A server that ends before or after any commit of a story from autoplan to automerge. Another one, with an empty disk, continues, with
//! one answer to each command, one apply and one merge. On the hosts that another process can reach.

use super::{AUTO_APPLY, FlowHost, GithubForge, Reader, one_project};
use crate::azure_devops::AzureDevOpsFake;
use crate::bitbucket_cloud::BitbucketCloudFake;
use crate::bitbucket_data_center::BitbucketDataCenterFake;
use crate::gitea::{GiteaFake, RealGitea};
use crate::gitlab::GitlabFake;
use crate::resumed::{BUCKET, commits, cut_at, give_up_lease, tries_every_commit};
use crate::support::*;
use tidelock_storage_double::{Effect, Fault, Operation, Settings, StorageDouble};

/// Cause of the apply in the story.
#[derive(Clone, Copy)]
enum Cause {
    Command,
    Approval,
}

/// Ends the server when the bucket gets this commit, which is stored without an answer or not at all.
struct Cut<'a, H> {
    ctx: &'a Ctx,
    host: &'a H,
    double: &'a StorageDouble,
    /// True if the server has ended, or is not to end.
    is_over: bool,
}

impl<H: FlowHost> Cut<'_, H> {
    /// Waits for work of the server. If the commit is stored meanwhile, another server does the work.
    async fn through<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        if self.is_over {
            return work.await;
        }
        let is_asked_for = async || self.double.seen().iter().any(|seen| seen.effect.is_some());
        tokio::select! {
            done = &mut work => return done,
            () = self.ctx.until("the commit is asked for", is_asked_for) => {}
        }
        self.is_over = true;
        self.ctx.server.kill().await;
        self.double.heal();
        give_up_lease(self.double).await;
        self.ctx.server.flag(&format!("--data-dir={}", self.ctx.own.join("data-2").display()));
        self.ctx.server.start().await;
        self.host.hear(self.ctx, true);
        work.await
    }
}

/// Plays the story, interrupted at this commit with this effect, or not at all. Returns the number of commits.
fn trial<H: FlowHost>(host: &H, cause: Cause, effect: Effect, cut: Option<usize>) -> usize {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let double = runtime.block_on(StorageDouble::start()).unwrap();
    double.bucket(BUCKET, Settings::default());
    double.limit_mutations(false);
    let bucket = [format!("--bucket=gs://{BUCKET}/prod"), format!("--bucket-endpoint={}", double.endpoint())];
    let keys = match cause {
        Cause::Command => "",
        Cause::Approval => AUTO_APPLY,
    };
    let setup = one_project(keys).flags(&[&bucket[0], &bucket[1], "--lease-ttl=120s", "--automerge"]).own_process();
    let mut counted = 0;
    run_test(host.served(setup), async |ctx| {
        host.connect(ctx).await;
        let before = commits(&double);
        if let Some(cut) = cut {
            double.fault(Fault::next(Operation::Insert, effect).named("/journal/").skip(cut as u32 - 1));
        }
        let mut cut = Cut { ctx, host, double: &double, is_over: cut.is_none() };
        let opened = async {
            let mut pull = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
            pull.next().await.is("plan", "success");
            pull
        };
        let mut pull = cut.through(opened).await;
        let applied = async {
            match cause {
                Cause::Command => pull.say("atlantis apply").await,
                Cause::Approval => {
                    host.vote_on(ctx, pull.number, "bob", true).await;
                    pull.next().await
                }
            }
        };
        let applied = cut.through(applied).await;
        let is_applied = applied.marker["results"][0]["outcome"] == "success";
        if is_applied {
            cut.through(async {
                pull.next().await.is_message("automerge").has("Automatically merging");
            })
            .await;
            cut.through(async {
                pull.next().await.is_message("cleanup");
            })
            .await;
            assert!(host.is_merged(ctx, pull.number));
        } else {
            assert_eq!(applied.marker["results"][0]["reason"], "interrupted");
        }
        ctx.quiet().await;
        let told = if is_applied { 4 } else { 2 };
        assert_eq!((pull.count(), host.is_merged(ctx, pull.number)), (told, is_applied));
        assert!(ctx.lines("applied") <= 1 && (!is_applied || ctx.lines("applied") == 1));
        assert_eq!(ctx.locks().await.is_empty(), is_applied);
        // An orderly end records all posts as posted.
        ctx.server.stop().await;
        counted = commits(&double) - before;
        ctx.server.start().await;
    });
    counted
}

/// Plays the story with this effect, and with the other one too where every commit is tried.
fn at_each_commit<H: FlowHost>(host: impl Fn() -> H + Sync, cause: Cause, effect: Effect) {
    with_effect(&host, cause, effect);
    if tries_every_commit() {
        with_effect(&host, cause, if effect == Effect::Hang { Effect::Lost } else { Effect::Hang });
    }
}

/// Plays the story once for each commit. `Hang`: the effects of the last commit are done on the host, but not recorded as done. `Lost`:
/// the commit is stored, and none of its effects is done.
fn with_effect<H: FlowHost>(host: &(impl Fn() -> H + Sync), cause: Cause, effect: Effect) {
    let commits = trial(&host(), cause, effect, None);
    assert!((8..40).contains(&commits), "{commits}");
    // Nothing from before the first commit is looked for: that commit makes the repository known.
    let first = if effect == Effect::Hang { 2 } else { 1 };
    // Commits of the orderly end are not interrupted: nobody waits for them.
    cut_at(first..=commits - 1, |cut| {
        trial(&host(), cause, effect, Some(cut));
    });
}

#[test]
fn each_commit_on_github() {
    at_each_commit(|| GithubForge, Cause::Command, Effect::Hang);
}

#[test]
fn each_commit_of_an_automatic_apply_on_github() {
    at_each_commit(|| GithubForge, Cause::Approval, Effect::Lost);
}

// Its approvals have no time.
#[test]
fn each_commit_of_an_automatic_apply_on_bitbucket_data_center() {
    at_each_commit(BitbucketDataCenterFake::start_unsteady, Cause::Approval, Effect::Hang);
}

#[test]
fn each_commit_on_azure_devops() {
    at_each_commit(AzureDevOpsFake::start_unsteady, Cause::Command, Effect::Lost);
}

#[test]
fn each_commit_on_gitlab() {
    at_each_commit(GitlabFake::start_unsteady, Cause::Command, Effect::Lost);
}

// Gitea repeats no delivery.
#[test]
fn each_commit_on_gitea() {
    at_each_commit(GiteaFake::start_unsteady, Cause::Command, Effect::Hang);
}

// Merges are known by what was merged, as the host takes no expected head.
#[test]
fn each_commit_on_bitbucket_cloud() {
    at_each_commit(BitbucketCloudFake::start_unsteady, Cause::Command, Effect::Hang);
}

// Every write needs the version of what it changes, and a repeated one has another.
#[test]
fn each_commit_on_bitbucket_data_center() {
    at_each_commit(BitbucketDataCenterFake::start_unsteady, Cause::Command, Effect::Lost);
}

#[test]
#[ignore = "needs a real Gitea: scripts/with-gitea"]
fn each_commit_on_a_real_gitea() {
    at_each_commit(RealGitea::start, Cause::Command, Effect::Lost);
}
