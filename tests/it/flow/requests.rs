//! Requests to each host's API: from the opening of a pull request to its merge, as the host's page says, and while nothing happens.

use super::{FlowHost, GithubForge, Reader, one_project, play};
use crate::azure_devops::AzureDevOpsFake;
use crate::bitbucket_cloud::BitbucketCloudFake;
use crate::bitbucket_data_center::BitbucketDataCenterFake;
use crate::forge_host::{ForgeHost, ForgeKind};
use crate::gitea::GiteaFake;
use crate::gitlab::GitlabFake;
use crate::support::*;
use std::time::Duration;
use tidelock_forge::Forge;

/// Start of the row with the number in the table of a host's page.
const ROW: &str = "| One pull request with one project: plan, approval, apply, automatic merge | ";
/// Most requests of the rounds of reconciliation that come in between on a slow machine.
const ROUNDS: usize = 12;
/// Open pull requests of an idle repository.
const IDLE_PULLS: usize = 100;
/// Most requests of an idle round: 60 an hour at the default of 12 rounds.
const MAX_IDLE: usize = 5;

/// A host that counts the requests that it gets.
pub(super) trait Counting: FlowHost {
    fn forge<'a>(&'a self, ctx: &'a Ctx) -> &'a Forge;

    /// Returns the number of requests so far, without those of git.
    fn count(&self, ctx: &Ctx) -> usize {
        let of_git = |path: &str| path.ends_with("/info/refs") || path.ends_with("/git-upload-pack");
        self.forge(ctx).requests().iter().filter(|request| !of_git(&request.path)).count()
    }
}

impl Counting for GithubForge {
    fn forge<'a>(&'a self, ctx: &'a Ctx) -> &'a Forge {
        &ctx.forge
    }
}

impl Counting for AzureDevOpsFake {
    fn forge<'a>(&'a self, _: &'a Ctx) -> &'a Forge {
        &self.forge
    }
}

impl<K: ForgeKind> Counting for ForgeHost<K> {
    fn forge<'a>(&'a self, _: &'a Ctx) -> &'a Forge {
        &self.forge
    }
}

async fn from_opening_to_merge<H: Counting>(ctx: &Ctx, host: &H) {
    let before = host.count(ctx);
    let mut pull = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    pull.next().await.is("plan", "success");
    host.vote_on(ctx, pull.number, "bob", true).await;
    pull.say("atlantis apply").await.is("apply", "success");
    pull.next().await.is_message("automerge");
    pull.next().await.is_message("cleanup");
    ctx.quiet().await;
    let counted = host.count(ctx) - before;
    let name = host.forge(ctx).kind().name();
    let page = std::fs::read_to_string(format!("{}/docs/{name}.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let row = page.lines().find_map(|line| line.strip_prefix(ROW)).unwrap_or_else(|| panic!("{name}: {counted}"));
    let said: usize = row.trim_end_matches([' ', '|']).parse().unwrap();
    assert!((said * 2 / 3..=said + ROUNDS).contains(&counted), "{name}: {counted} requests, and its page says {said}");
}

async fn an_idle_hour<H: Counting>(ctx: &Ctx, host: &H) {
    for number in 0..IDLE_PULLS {
        host.open_one(ctx, &format!("b{number}"), ("main.tf", &format!("# {number}\n"))).await;
    }
    ctx.quiet().await;
    // The first rounds look at what is new.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let before = host.count(ctx);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let counted = host.count(ctx) - before;
    let name = host.forge(ctx).kind().name();
    assert!((1..=10 * MAX_IDLE).contains(&counted), "{name}: {counted} requests in ten rounds");
}

fn approved_and_merged() -> Setup {
    one_project("apply_requirements: [approved]").flags(&["--automerge"])
}

fn rounds_of_a_second() -> Setup {
    one_project("").flags(&["--disable-autoplan", "--reconcile-interval=1s"])
}

macro_rules! on_every_forge {
    ($($name:ident: $host:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn its_page_says_how_many_requests_a_pull_request_takes() {
                play($host, approved_and_merged(), from_opening_to_merge);
            }

            #[test]
            #[ignore = "opens 100 pull requests, and then waits half a minute"]
            fn an_idle_hour_takes_at_most_60() {
                play($host, rounds_of_a_second(), an_idle_hour);
            }
        }
    )*};
}

on_every_forge! {
    github: GithubForge;
    azure_devops: AzureDevOpsFake::start();
    gitlab: GitlabFake::start();
    gitea: GiteaFake::start();
    bitbucket_cloud: BitbucketCloudFake::start();
    bitbucket_data_center: BitbucketDataCenterFake::start();
}
