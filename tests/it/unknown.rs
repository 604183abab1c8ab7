//! Merges with unknown changes, in mode `strict`: nobody applies over them, and the server tries to determine the changes until they are
//! known.

use crate::support::*;
use tidelock_forge::{Fault, Pull};

/// Every project is in mode `strict`, without autoplan.
fn strict(dirs: &[&str]) -> Setup {
    let rules = workflow("repo_locks: {mode: strict}", &[PLANNED], &["echo $PULL_NUM >> {tmp}/applied"]);
    Setup::projects(dirs).repos_yaml(&rules).flags(&["--disable-autoplan"])
}

/// Makes git get no answer from now on.
fn git_fails(ctx: &Ctx) {
    let refusal = Fault::Status(503, "not now".into(), Vec::new());
    ctx.forge.fail_next("GET", "*/info/refs", refusal, usize::MAX).unwrap();
}

/// Makes the recording of a merge's changes fail; git gets answers again.
fn refuse_records(ctx: &Ctx) {
    let when = "WHEN OLD.state = 'merged_unknown' BEGIN SELECT RAISE(ABORT, 'no room is left'); END";
    sql(ctx, &format!("CREATE TRIGGER full BEFORE DELETE ON owners {when}"));
    ctx.forge.clear_faults();
}

fn sql(ctx: &Ctx, text: &str) {
    let database = rusqlite::Connection::open(ctx.server.data("tidelock.db")).unwrap();
    database.busy_timeout(LIMIT).unwrap();
    database.execute_batch(text).unwrap();
}

/// Opens a pull request that changes this project, and merges it while git gets no answer.
async fn merged_unseen(ctx: &Ctx, branch: &str, dirs: &[&str]) -> Pull {
    let pull = ctx.open_own(branch, dirs).await;
    ctx.quiet().await;
    git_fails(ctx);
    pull.merge().await.unwrap();
    ctx.next(&pull)
        .await
        .is_message("merge_unknown")
        .has("not known yet")
        .has("`atlantis unlock --accept-drift -m \"why\"`");
    pull
}

#[test]
fn nobody_applies_until_it_is_known_what_a_merge_changes() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let other = ctx.open_own("other", &["b"]).await;
        ctx.say(&other, "atlantis plan").await.is("plan", "success");
        let first = merged_unseen(ctx, "first", &["a"]).await;
        assert_eq!(ctx.owners().await, [" #2 merged_unknown"]);
        let (status, page) = ctx.request("GET", "/", &[]).await;
        assert!(status == 200 && page.contains("merged, changes not known yet"));
        refuse_records(ctx);
        let said = ctx.say(&other, "atlantis apply").await;
        said.is("apply", "failure").because("locked").has("#2").has("does not know yet which projects it changes");
        assert_eq!(ctx.lines("applied"), 0);
        sql(ctx, "DROP TRIGGER full");
        ctx.next(&first).await.is_message("owes").has("dir `a`").has_not("dir `b`");
        // A pull request that waited only for that is planned.
        ctx.next(&other).await.is_message("lock_freed").has("`b`");
        assert_eq!(ctx.owners().await, ["a #2 merged_unapplied"]);
        ctx.say(&other, "atlantis apply").await.is("apply", "success");
        ctx.say(&first, "atlantis apply").await.is("plan", "success");
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn what_is_not_known_is_found_by_the_next_server() {
    run_test(strict(&["a"]), async |ctx| {
        let first = merged_unseen(ctx, "first", &["a"]).await;
        ctx.server.stop().await;
        ctx.forge.clear_faults();
        ctx.server.start().await;
        ctx.next(&first).await.is_message("owes").has("dir `a`");
        assert_eq!(ctx.owners().await, ["a #1 merged_unapplied"]);
    });
}

#[test]
fn a_person_may_end_what_is_not_known() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let other = ctx.open_own("other", &["b"]).await;
        ctx.say(&other, "atlantis plan").await.is("plan", "success");
        let first = merged_unseen(ctx, "first", &["a"]).await;
        ctx.say(&first, "atlantis unlock").await.is_message("unlocked").has("Still owned");
        assert_eq!(ctx.owners().await, [" #2 merged_unknown"]);
        ctx.say(&first, "atlantis apply").await.has("still not known").has("--accept-drift");
        ctx.say(&first, "atlantis unlock --accept-drift -m 'by hand'").await.is_message("unlocked");
        assert!(ctx.owners().await.is_empty());
        ctx.forge.clear_faults();
        ctx.say(&other, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_merged_configuration_that_does_not_parse_is_not_taken_for_one_without_projects() {
    let own = "version: 3\nprojects:\n  - dir: a\n";
    run_test(strict(&["a"]).file("atlantis.yaml", own), async |ctx| {
        let files = [("atlantis.yaml", "version: 3\nprojects: [{dir: a, nonsense: 1}]\n"), ("a/first.tf", "# first\n")];
        let first = ctx.open("first", &files).await;
        ctx.quiet().await;
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("merge_unknown").has("nonsense");
        ctx.repo.push("main", &[("atlantis.yaml", Some(own))]).await.unwrap();
        ctx.next(&first).await.is_message("owes").has("dir `a`");
        assert_eq!(ctx.owners().await, ["a #1 merged_unapplied"]);
    });
}

#[test]
fn a_merge_that_changes_nothing_is_told_when_that_is_known() {
    run_test(strict(&["a"]), async |ctx| {
        let first = ctx.open("first", &[("readme.md", "words\n")]).await;
        ctx.quiet().await;
        git_fails(ctx);
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("merge_unknown");
        ctx.forge.clear_faults();
        ctx.next(&first).await.is_message("merge_known").has("no longer blocks other pull requests");
        assert!(ctx.owners().await.is_empty());
    });
}

#[test]
fn a_merge_after_a_reopening_without_a_plan_is_owed() {
    run_test(strict(&["a"]), async |ctx| {
        let first = ctx.open_own("first", &["a"]).await;
        ctx.say(&first, "atlantis plan").await.is("plan", "success");
        first.close().unwrap();
        ctx.quiet().await;
        first.reopen().unwrap();
        ctx.quiet().await;
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("owes").has("dir `a`");
    });
}
