//! Polling: the same server without any delivery. What happens between two looks is made to happen while the server is stopped.

use super::requests::Counting;
use super::{FlowHost as _, GithubForge, Reader, one_project, play};
use crate::azure_devops::AzureDevOpsFake;
use crate::bitbucket_cloud::BitbucketCloudFake;
use crate::bitbucket_data_center::BitbucketDataCenterFake;
use crate::forge_host::{ForgeHost, ForgeKind};
use crate::gitea::GiteaFake;
use crate::gitlab::GitlabFake;
use crate::support::*;
use jiff::SignedDuration;
use tidelock_forge::{Fault, OpenOptions, Pull};

const CHANGE: (&str, &str) = ("main.tf", "# 2\n");
const PUSHED: (&str, &str) = ("main.tf", "# 3\n");

/// A server that takes no deliveries and has no secret for them.
fn polling() -> Setup {
    one_project("").flags(&["--poll=1s"])
}

/// Repository whose lists fail.
const BROKEN: &str = "acme/broken";

/// Returns the number of lists of open pull requests that the host was asked for.
fn lists<H: Counting>(ctx: &Ctx, host: &H) -> usize {
    let of_pulls = |path: &str| {
        let path = path.split('?').next().unwrap_or_default();
        let is_list =
            ["/pulls", "/pullrequests", "/pull-requests", "/merge_requests"].iter().any(|end| path.ends_with(end));
        is_list && !path.contains(BROKEN)
    };
    let requests = host.forge(ctx).requests();
    requests.iter().filter(|one| one.method == "GET" && of_pulls(&one.path)).count()
}

/// Waits until a look that begins from now on has ended.
async fn a_look<H: Counting>(ctx: &Ctx, host: &H) {
    let before = lists(ctx, host);
    ctx.until("there are two more looks", async || lists(ctx, host) >= before + 2).await;
}

/// Stops the deliveries, and starts the server again, which then knows the repository of the host.
async fn begin<H: Counting>(ctx: &Ctx, host: &H) {
    host.hear(ctx, false);
    restart(ctx, host, async || {}).await;
}

/// Does this while no server runs, so that one look finds all of it.
async fn restart<H: Counting>(ctx: &Ctx, host: &H, meanwhile: impl AsyncFnOnce()) {
    ctx.until("no command runs", async || ctx.json("/status").await["in_progress_operations"] == 0).await;
    ctx.server.stop().await;
    meanwhile().await;
    ctx.server.start().await;
    a_look(ctx, host).await;
}

/// A host on which a closed pull request can be opened again.
trait Reopening: Counting {
    fn pull(&self, ctx: &Ctx, number: u64) -> Pull;
}

impl Reopening for GithubForge {
    fn pull(&self, ctx: &Ctx, number: u64) -> Pull {
        ctx.repo.pull(number)
    }
}

impl Reopening for AzureDevOpsFake {
    fn pull(&self, _: &Ctx, number: u64) -> Pull {
        AzureDevOpsFake::pull(self, number)
    }
}

impl<K: ForgeKind> Reopening for ForgeHost<K> {
    fn pull(&self, _: &Ctx, number: u64) -> Pull {
        ForgeHost::pull(self, number)
    }
}

async fn from_autoplan_to_close<H: Counting>(ctx: &Ctx, host: &H) {
    begin(ctx, host).await;
    let mut one = Reader::open(ctx, host, "one", CHANGE).await;
    one.next().await.is("plan", "success");
    host.push_to(ctx, one.number, PUSHED).await;
    one.next().await.is("plan", "success");
    one.say("atlantis plan").await.is("plan", "success");
    ctx.next_second().await;
    one.say("atlantis apply").await.is("apply", "success");
    assert_eq!(ctx.lines("applied"), 1);
    host.touch(ctx, one.number).await;
    host.close_one(ctx, one.number).await;
    one.next().await.is_message("cleanup");
    assert!(ctx.locks().await.is_empty());
    let mut two = Reader::open(ctx, host, "two", CHANGE).await;
    two.next().await.is("plan", "success");
    host.merge_one(ctx, two.number).await;
    two.next().await.is_message("cleanup");
    a_look(ctx, host).await;
    assert_eq!((one.count(), two.count()), (5, 2));
}

/// Reads the refusal of an apply and a plan, in any order. Returns the refusal once a further look has applied nothing.
async fn refused_and_planned<H: Counting>(ctx: &Ctx, host: &H, one: &mut Reader<'_, H>, message: &str) -> Said {
    let said = [one.next().await, one.next().await];
    assert!(said.iter().any(|one| one.marker["command"] == "plan"), "{} {}", said[0].text, said[1].text);
    let texts = format!("{} {}", said[0].text, said[1].text);
    let refused = said.into_iter().find(|one| one.marker["message"] == message);
    a_look(ctx, host).await;
    assert_eq!(ctx.lines("applied"), 0);
    refused.unwrap_or_else(|| panic!("no {message}: {texts}"))
}

/// Pull requests and comments of before the first look are known from then on.
async fn nothing_of_before_the_first_look_runs<H: Counting>(ctx: &Ctx, host: &H) {
    ctx.server.stop().await;
    host.hear(ctx, false);
    let mut one = Reader::open(ctx, host, "one", CHANGE).await;
    for _ in 0..2 {
        // Some hosts do not change the version of a pull request again so soon.
        ctx.next_second().await;
        host.comment_on(ctx, one.number, "atlantis plan").await;
    }
    ctx.next_second().await;
    ctx.server.flag("--poll=1s");
    ctx.server.start().await;
    a_look(ctx, host).await;
    a_look(ctx, host).await;
    assert_eq!(one.count(), 0);
    ctx.next_second().await;
    one.say("atlantis plan").await.is("plan", "success");
    ctx.next_second().await;
    one.say("atlantis apply").await.is("apply", "success");
    assert_eq!(ctx.lines("applied"), 1);
}

/// The look that finds the push finds the apply of before it as well.
async fn an_apply_of_before_a_push_is_refused<H: Counting>(ctx: &Ctx, host: &H) {
    begin(ctx, host).await;
    let mut one = Reader::open(ctx, host, "one", CHANGE).await;
    one.next().await.is("plan", "success");
    ctx.next_second().await;
    restart(ctx, host, async || {
        host.comment_on(ctx, one.number, "atlantis apply").await;
        host.push_to(ctx, one.number, PUSHED).await;
    })
    .await;
    refused_and_planned(ctx, host, &mut one, "superseded").await;
    ctx.next_second().await;
    one.say("atlantis apply").await.is("apply", "success");
    assert_eq!(ctx.lines("applied"), 1);
}

/// Nobody knows which head a person saw who commented before the first look.
async fn an_apply_of_before_the_first_look_is_refused<H: Counting>(ctx: &Ctx, host: &H) {
    begin(ctx, host).await;
    let mut opened = None;
    restart(ctx, host, async || {
        let one = opened.insert(Reader::open(ctx, host, "one", CHANGE).await);
        ctx.next_second().await;
        host.comment_on(ctx, one.number, "atlantis apply").await;
        host.push_to(ctx, one.number, PUSHED).await;
    })
    .await;
    let mut one = opened.unwrap();
    let refused = refused_and_planned(ctx, host, &mut one, "interrupted").await;
    refused.has("before the server saw commit").has("`atlantis apply`");
}

/// The list does not have it any more, and the host does not find it.
async fn a_deleted_pull_request_is_closed<H: Counting>(ctx: &Ctx, host: &H) {
    begin(ctx, host).await;
    let mut one = Reader::open(ctx, host, "one", CHANGE).await;
    one.next().await.is("plan", "success");
    let path = format!("**/{{pulls,pullrequests,pullRequests,pull-requests,merge_requests}}/{}", one.number);
    host.forge(ctx).refuse_next("GET", &path, 404, usize::MAX).unwrap();
    host.close_one(ctx, one.number).await;
    ctx.until("its lock is released", async || ctx.locks().await.is_empty()).await;
    let asked = || {
        let end = format!("/{}", one.number);
        host.forge(ctx).requests().iter().filter(|request| request.path.ends_with(&end)).count()
    };
    ctx.quiet().await;
    let before = asked();
    a_look(ctx, host).await;
    assert_eq!(asked(), before, "it is not asked for any more");
    one.pass_over();
}

/// Whoever writes too many comments hides only these.
async fn comments_that_cannot_be_listed_hide_nothing_else<H: Counting>(ctx: &Ctx, host: &H) {
    begin(ctx, host).await;
    let mut one = Reader::open(ctx, host, "one", CHANGE).await;
    one.next().await.is("plan", "success");
    let path = format!("**/{}/{{comments,threads,notes,activities}}", one.number);
    host.forge(ctx).refuse_next("GET", &path, 400, usize::MAX).unwrap();
    host.push_to(ctx, one.number, PUSHED).await;
    one.succeeds("atlantis/plan").await;
    one.next().await.is("plan", "success");
    assert_eq!(ctx.locks().await.len(), 1);
    host.close_one(ctx, one.number).await;
    one.next().await.is_message("cleanup");
    assert!(ctx.locks().await.is_empty());
}

async fn what_was_said_while_it_was_closed_never_runs<H: Reopening>(ctx: &Ctx, host: &H) {
    begin(ctx, host).await;
    let mut one = Reader::open(ctx, host, "one", CHANGE).await;
    one.next().await.is("plan", "success");
    host.close_one(ctx, one.number).await;
    one.next().await.is_message("cleanup");
    ctx.next_second().await;
    restart(ctx, host, async || {
        host.comment_on(ctx, one.number, "atlantis apply").await;
        host.pull(ctx, one.number).reopen().unwrap();
    })
    .await;
    let refused = refused_and_planned(ctx, host, &mut one, "interrupted").await;
    refused.has("before the server saw this pull request open").has("`atlantis apply`");
    ctx.next_second().await;
    one.say("atlantis apply").await.is("apply", "success");
    assert_eq!(ctx.lines("applied"), 1);
}

/// Others may edit a comment, so nobody knows who wrote the command.
async fn an_edited_command_is_answered_and_not_run<H: Reopening>(ctx: &Ctx, host: &H) {
    begin(ctx, host).await;
    let mut one = Reader::open(ctx, host, "one", CHANGE).await;
    one.next().await.is("plan", "success");
    restart(ctx, host, async || {
        ctx.next_second().await;
        let id = host.pull(ctx, one.number).comment("alice", "Looks good.").unwrap();
        // A host that writes whole seconds may not tell one of them from none.
        ctx.next_second().await;
        ctx.next_second().await;
        host.pull(ctx, one.number).edit_comment("alice", id, "atlantis apply").unwrap();
    })
    .await;
    one.next().await.is_message("interrupted").has("was edited").has("`atlantis apply`");
    a_look(ctx, host).await;
    assert_eq!((one.count(), ctx.lines("applied")), (2, 0));
}

/// The host's answers name a time that none of its records has.
async fn a_host_whose_clock_is_ahead_is_answered<H: Reopening>(ctx: &Ctx, host: &H) {
    host.forge(ctx).set_clock_ahead(SignedDuration::from_mins(5));
    what_was_said_while_it_was_closed_never_runs(ctx, host).await;
}

async fn a_server_that_is_replaced_repeats_nothing<H: Counting>(ctx: &Ctx, host: &H) {
    begin(ctx, host).await;
    let mut one = Reader::open(ctx, host, "one", CHANGE).await;
    one.next().await.is("plan", "success");
    ctx.next_second().await;
    one.say("atlantis apply").await.is("apply", "success");
    for _ in 0..2 {
        restart(ctx, host, async || {}).await;
    }
    assert_eq!((one.count(), ctx.lines("applied")), (2, 1));
    restart(ctx, host, async || host.comment_on(ctx, one.number, "atlantis help").await).await;
    one.next().await.is_message("help");
    a_look(ctx, host).await;
    assert_eq!(one.count(), 3);
}

macro_rules! polled {
    ($($story:ident: $setup:expr; on $($name:ident: $host:expr),*;)*) => {$(
        mod $story {
            use super::*;

            $(#[test]
            fn $name() {
                play($host, $setup, super::$story);
            })*
        }
    )*};
}

macro_rules! on_every_polled_host {
    ($($story:ident: $setup:expr;)*) => {
        polled! {$(
            $story: $setup; on
                on_github: GithubForge,
                on_azure_devops: AzureDevOpsFake::start(),
                on_gitlab: GitlabFake::start(),
                on_gitea: GiteaFake::start(),
                on_bitbucket_cloud: BitbucketCloudFake::start(),
                on_bitbucket_data_center: BitbucketDataCenterFake::start();
        )*}
    };
}

/// On Bitbucket Cloud, a declined pull request stays declined.
macro_rules! on_every_host_that_reopens {
    ($($story:ident: $setup:expr;)*) => {
        polled! {$(
            $story: $setup; on
                on_github: GithubForge,
                on_azure_devops: AzureDevOpsFake::start(),
                on_gitlab: GitlabFake::start(),
                on_gitea: GiteaFake::start(),
                on_bitbucket_data_center: BitbucketDataCenterFake::start();
        )*}
    };
}

on_every_polled_host! {
    from_autoplan_to_close: polling();
    nothing_of_before_the_first_look_runs: one_project("");
    an_apply_of_before_a_push_is_refused: polling();
    an_apply_of_before_the_first_look_is_refused: polling();
    a_deleted_pull_request_is_closed: polling();
    comments_that_cannot_be_listed_hide_nothing_else: polling();
    a_server_that_is_replaced_repeats_nothing: polling();
}

on_every_host_that_reopens! {
    what_was_said_while_it_was_closed_never_runs: polling();
    a_host_whose_clock_is_ahead_is_answered: polling();
    an_edited_command_is_answered_and_not_run: polling();
}

/// It is killed at any moment after a comment that it may or may not have seen.
#[test]
fn a_server_that_is_killed_applies_once() {
    let setup = polling().variable("TIDELOCK_GH_WEBHOOK_SECRET", "").own_process();
    play(GithubForge, setup, async |ctx, host: &GithubForge| {
        begin(ctx, host).await;
        let mut one = Reader::open(ctx, host, "one", CHANGE).await;
        one.next().await.is("plan", "success");
        ctx.next_second().await;
        let before = lists(ctx, host);
        host.comment_on(ctx, one.number, "atlantis apply").await;
        ctx.until("it is looked at", async || lists(ctx, host) > before).await;
        ctx.server.kill().await;
        ctx.server.start().await;
        let said = one.next().await;
        a_look(ctx, host).await;
        assert!(ctx.lines("applied") <= 1, "{}", said.text);
        assert_eq!(one.count(), 2);
    });
}

/// A list that fails in one repository delays no other one.
#[test]
fn a_repository_that_cannot_be_listed_holds_up_no_other() {
    play(GithubForge, polling(), async |ctx, host: &GithubForge| {
        ctx.forge.create_repo(BROKEN, &[("main.tf", "# 1\n")]).await.unwrap();
        ctx.forge
            .fail_next("GET", &format!("**/{BROKEN}/pulls"), Fault::Status(500, String::new(), Vec::new()), usize::MAX)
            .unwrap();
        begin(ctx, host).await;
        let mut one = Reader::open(ctx, host, "one", CHANGE).await;
        one.next().await.is("plan", "success");
    });
}

/// The repository is no new one under its present name.
#[test]
fn a_pull_request_of_just_after_a_rename_is_planned() {
    let setup = polling().flags(&["--repo-allowlist=127.0.0.1/acme/*"]);
    play(GithubForge, setup, async |ctx, host: &GithubForge| {
        begin(ctx, host).await;
        let mut one = Reader::open(ctx, host, "one", CHANGE).await;
        one.next().await.is("plan", "success");
        host.close_one(ctx, one.number).await;
        one.next().await.is_message("cleanup");
        let mut opened = None;
        restart(ctx, host, async || {
            ctx.forge.transfer("acme/infra", "acme/net").unwrap();
            let (repo, options) = (ctx.forge.repo("acme/net"), OpenOptions::default());
            opened = Some(repo.open_pull("two", "alice", "Two", &[("main.tf", Some("# 3\n"))], options).await.unwrap());
        })
        .await;
        ctx.next(&opened.unwrap()).await.is("plan", "success");
    });
}

/// The host is asked for the pull request itself before anything is freed.
#[test]
fn a_list_that_passes_over_a_pull_request_closes_nothing() {
    play(GithubForge, polling(), async |ctx, host: &GithubForge| {
        begin(ctx, host).await;
        let mut one = Reader::open(ctx, host, "one", CHANGE).await;
        one.next().await.is("plan", "success");
        let empty = Fault::Status(200, "[]".to_owned(), Vec::new());
        ctx.forge.fail_next("GET", "**/acme/infra/pulls", empty, 2).unwrap();
        a_look(ctx, host).await;
        a_look(ctx, host).await;
        assert_eq!((one.count(), ctx.locks().await.len()), (1, 1));
        ctx.next_second().await;
        one.say("atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn deliveries_are_refused_and_no_secret_is_needed() {
    let setup = polling().variable("TIDELOCK_GH_WEBHOOK_SECRET", "");
    play(GithubForge, setup, async |ctx, host: &GithubForge| {
        begin(ctx, host).await;
        let mut one = Reader::open(ctx, host, "one", CHANGE).await;
        one.next().await.is("plan", "success");
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let last = ctx.forge.deliveries().pop().unwrap();
        assert_eq!(last.status, Some(403));
        assert!(last.answer.contains("--poll"), "{}", last.answer);
    });
}
