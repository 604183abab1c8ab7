//! What an opened or pushed pull request causes, and what it does not.

use crate::support::*;
use insta::assert_snapshot;
use std::time::Duration;
use tidelock::sandbox::OpenOptions;

const NOTHING: [(&str, &str); 1] = [("README.md", "Nothing to plan.\n")];

#[test]
fn opening_plans_what_changed_and_says_so() {
    run_test(Setup::projects(&["network", "dns"]), async |ctx| {
        let pull = ctx.open_dirs("ranges", &["network"]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success");
        assert_snapshot!(said.filtered(), @"");
        ctx.status(&pull, "atlantis/plan", "success", "1 to add, 0 to change, 0 to destroy").await;
        ctx.status(&pull, "atlantis/plan: network/default", "success", "1 to add").await;
        ctx.nothing_pending(&pull, &[]).await;
        assert_eq!(ctx.locks().await.len(), 1);
    });
}
