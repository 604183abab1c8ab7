//! One server for all hosts at once.

use super::{FlowHost, GithubForge, Reader, one_project};
use crate::azure_devops::AzureDevOpsFake;
use crate::bitbucket_cloud::BitbucketCloudFake;
use crate::bitbucket_data_center::BitbucketDataCenterFake;
use crate::gitea::GiteaFake;
use crate::gitlab::GitlabFake;
use crate::support::*;
use tidelock_forge::{Fault, Gate};

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
