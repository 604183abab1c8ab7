//! One server for all hosts at once.

use super::{APPLY, FlowHost, GithubForge, Reader, one_project};
use crate::azure_devops::AzureDevOpsFake;
use crate::bitbucket_cloud::BitbucketCloudFake;
use crate::bitbucket_data_center::BitbucketDataCenterFake;
use crate::gitea::GiteaFake;
use crate::gitlab::GitlabFake;
use crate::support::*;
use tidelock_forge::{Fault, Gate, OpenOptions};

const ALLOWED: &str = "--repo-allowlist=127.0.0.1/acme/*,localhost/DefaultCollection/*,127.0.0.2/acme/*,127.0.0.3/acme/*,\
                       127.0.0.4/acme/*,127.0.0.5/acme/*";

/// Opens a pull request on this host, and waits for its plan.
async fn planned<H: FlowHost>(ctx: &Ctx, host: &H, branch: &str) {
    let mut pull = Reader::open(ctx, host, branch, (&format!("{branch}.tf"), "# 2\n")).await;
    pull.next().await.is("plan", "success");
    pull.succeeds("atlantis/plan").await;
    host.close_one(ctx, pull.number).await;
    pull.next().await.is_message("cleanup");
}

/// The names of the repositories differ: checkouts of equally named ones on two hosts would lie in the same place.
#[test]
fn a_host_that_answers_nothing_holds_up_no_other_host() {
    let (azure_devops, gitlab, gitea) = (AzureDevOpsFake::start(), GitlabFake::start(), GiteaFake::start());
    let (cloud, data_center) = (BitbucketCloudFake::start(), BitbucketDataCenterFake::start());
    let setup = gitea.served(gitlab.served(azure_devops.served(one_project(""))));
    run_test(data_center.served(cloud.served(setup)).flags(&[ALLOWED]), async |ctx| {
        azure_devops.connect(ctx).await;
        gitlab.connect(ctx).await;
        gitea.connect(ctx).await;
        cloud.connect(ctx).await;
        data_center.connect(ctx).await;
        let others = async |branch: &str| {
            tokio::join!(
                planned(ctx, &GithubForge, branch),
                planned(ctx, &azure_devops, branch),
                planned(ctx, &gitea, branch),
                planned(ctx, &cloud, branch),
                planned(ctx, &data_center, branch),
            );
        };
        tokio::join!(planned(ctx, &gitlab, "one"), others("one"));
        let gate = Gate::new();
        gitlab.forge.fail_next("*", "**", Fault::Hold(gate.clone()), usize::MAX).unwrap();
        let mut held = Reader::open(ctx, &gitlab, "two", ("two.tf", "# 2\n")).await;
        gate.reached(1).await;
        others("two").await;
        assert_eq!(held.count(), 0);
        gate.open();
        held.next().await.is("plan", "success");
    });
}

/// While a step of the first plan runs, a pull request of the same number in a repository of the same name on another host is planned.
#[test]
fn equally_named_repositories_of_two_hosts_have_checkouts_of_their_own() {
    let gitea = GiteaFake::start();
    let wait = format!("if grep -q ours main.tf; then {}; fi", gate("plan"));
    let rules = workflow("", &[&wait, "cat main.tf >> {tmp}/seen", PLANNED], &[APPLY]);
    run_test(gitea.served(Setup::one_project().repos_yaml(&rules)), async |ctx| {
        gitea.connect(ctx).await;
        let theirs = gitea.forge.create_repo("acme/infra", &[("main.tf", "# 1\n")]).await.unwrap();
        let mut ours = Reader::open(ctx, &GithubForge, "one", ("main.tf", "# ours\n")).await;
        ctx.reached("plan", 1).await;
        let changes = [("main.tf", Some("# theirs\n"))];
        let pull = theirs.open_pull("one", "alice", "Theirs", &changes, OpenOptions::default()).await.unwrap();
        assert_eq!(pull.number(), ours.number);
        ctx.until("it is planned", async || pull.bot_comments().unwrap().len() == 1).await;
        ctx.open_gate("plan");
        let said = ours.next().await;
        let seen = std::fs::read_to_string(ctx.tmp.join("seen")).unwrap();
        assert_eq!(seen, "# theirs\n# ours\n", "{}", said.text);
        said.is("plan", "success");
    });
}
