//! `plan` and `apply` on a pull request that was merged before all of it was applied, in mode `strict`.

use crate::resumed::{BUCKET, commits, cut_at, give_up_lease};
use crate::support::*;
use std::time::Duration;
use tidelock_forge::Pull;
use tidelock_storage_double::{Effect, Fault, Operation, Settings, StorageDouble};

/// Wait for a commit that may have been combined with another.
const PATIENCE: Duration = Duration::from_secs(20);

/// Projects in mode `strict`; each apply writes its pull request's number.
fn strict(dirs: &[&str]) -> Setup {
    let rules =
        workflow("repo_locks: {mode: strict}", &["init", "plan"], &["apply", "echo $PULL_NUM >> {tmp}/applied"]);
    Setup::projects(dirs).repos_yaml(&rules)
}

/// Opens a pull request that changes these projects, has it planned and merged without an apply, and reads the comment about that.
async fn merged(ctx: &Ctx, branch: &str, dirs: &[&str]) -> Pull {
    let pull = ctx.open_dirs(branch, dirs).await;
    ctx.next(&pull).await.is("plan", "success");
    pull.merge().await.unwrap();
    ctx.next(&pull).await.is_message("owes").has("Merged but not applied").has("`atlantis apply`");
    pull
}

fn state(ctx: &Ctx, dir: &str) -> String {
    std::fs::read_to_string(ctx.tmp.join(format!("state/{dir}.tfstate"))).unwrap_or_default()
}

const SAME: &str = "before the merge. It is applied now.";
/// One more resource of project `a`.
const MORE: (&str, &str) = ("a/other.tf", "resource \"terraform_data\" \"other\" {}\n");

#[test]
fn one_apply_after_the_merge_is_enough_where_the_plan_changes_the_same() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let first = merged(ctx, "first", &["a", "b"]).await;
        ctx.repo.push("main", &[("readme.md", Some("of no project"))]).await.unwrap();
        let said = ctx.say(&first, "atlantis apply").await;
        said.is("plan", "success").has("The pull request is merged: this is planned at the tip of `main`").has(SAME);
        let said = ctx.next(&first).await;
        said.is("apply", "success");
        assert_eq!((ctx.lines("applied"), said.outcomes().len()), (2, 2));
        assert!(state(ctx, "a").contains("\"first\"") && state(ctx, "b").contains("\"first\""));
        assert!(ctx.locks().await.is_empty());
        ctx.say(&first, "atlantis apply").await.is_message("closed_pull");
    });
}

#[test]
fn a_plan_after_the_merge_that_differs_is_shown_and_a_second_apply_takes_it() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let first = merged(ctx, "first", &["a", "b"]).await;
        ctx.repo.push("main", &[(MORE.0, Some(MORE.1))]).await.unwrap();
        let said = ctx.say(&first, "atlantis apply -d a").await;
        said.is("plan", "success")
            .has("`a/default`: the plan differs from the one of")
            .has("To apply it: `atlantis apply`");
        assert_eq!(ctx.lines("applied"), 0);
        // The other project is applied at once, and this one stays.
        ctx.say(&first, "atlantis apply -d b").await.is("plan", "success").has(SAME);
        ctx.next(&first).await.is("apply", "success");
        assert_eq!((ctx.lines("applied"), ctx.locks().await.len()), (1, 1));
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        assert!(state(ctx, "a").contains("\"other\"") && ctx.locks().await.is_empty());
    });
}

#[test]
fn what_nobody_can_compare_is_shown_first() {
    let rules = workflow("repo_locks: {mode: strict}", &[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(Setup::projects(&["a"]).repos_yaml(&rules), async |ctx| {
        let first = merged(ctx, "first", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("plan", "success").has("the server cannot compare the plan with");
        assert_eq!(ctx.lines("applied"), 0);
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn on_merge_what_changes_the_same_is_applied_and_what_differs_is_shown() {
    let rules = workflow(
        "repo_locks: {mode: strict}\non_merge: apply",
        &["init", "plan"],
        &["apply", "echo $USER_NAME >> {tmp}/applied"],
    );
    run_test(Setup::projects(&["a", "b"]).repos_yaml(&rules), async |ctx| {
        let first = merged(ctx, "first", &["a"]).await;
        ctx.next(&first).await.is("plan", "success").has(SAME);
        ctx.next(&first).await.is("apply", "success");
        assert!(state(ctx, "a").contains("\"first\"") && ctx.locks().await.is_empty());
        let second = ctx.open_dirs("second", &["a", "b"]).await;
        ctx.next(&second).await.is("plan", "success");
        // The push must not be seen alone: the plan would be invalidated, and made again, before the merge.
        ctx.unseen_by_git(async {
            ctx.repo.push("main", &[(MORE.0, Some(MORE.1))]).await.unwrap();
            second.merge().await.unwrap();
        })
        .await;
        ctx.next(&second).await.is_message("owes");
        let said = ctx.next(&second).await;
        said.is("plan", "success")
            .has("`a/default`: the plan differs")
            .has("`b/default`: the plan has the same changes");
        let said = ctx.next(&second).await;
        said.is("apply", "success");
        assert_eq!(said.outcomes(), [("b".into(), "success".into())]);
        assert_eq!((ctx.lines("applied"), ctx.locks().await.len()), (2, 1));
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
        assert!(ctx.locks().await.is_empty());
    });
}

/// `a`, then `b`, then `c`, by order groups; `keys` are those of `a`.
fn in_order(keys: &str) -> String {
    format!(
        "version: 3\nprojects:\n  - dir: a\n    {keys}\n  - dir: b\n    execution_order_group: 1\n  - dir: c\n    \
         execution_order_group: 2\n"
    )
}

#[test]
fn on_merge_projects_are_applied_in_order_and_a_failed_group_stops_the_later_ones() {
    let apply = ["apply", "echo $REPO_REL_DIR >> {tmp}/applied", "test $REPO_REL_DIR != b || test -e {tmp}/mended"];
    let rules = workflow("repo_locks: {mode: strict}\non_merge: apply", &["init", "plan"], &apply);
    let setup = Setup::projects(&["a", "b", "c"]).file("atlantis.yaml", &in_order("execution_order_group: 0"));
    run_test(setup.repos_yaml(&rules), async |ctx| {
        let pull = merged(ctx, "first", &["a", "b", "c"]).await;
        ctx.next(&pull)
            .await
            .is("plan", "success")
            .has("`a/default`, `b/default`, `c/default`: the plan has the same changes");
        let said = ctx.next(&pull).await;
        said.has("an earlier group failed").has("To apply what is left: `atlantis apply`");
        let result = |dir: &str| said.outcomes().into_iter().find(|(of, _)| of == dir).map(|(_, result)| result);
        assert_eq!([result("a"), result("b")], [Some("success".into()), Some("error".into())]);
        assert_eq!(std::fs::read_to_string(ctx.tmp.join("applied")).unwrap(), "a\nb\n");
        std::fs::write(ctx.tmp.join("mended"), "").unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert!(state(ctx, "c").contains("\"first\"") && ctx.locks().await.is_empty());
    });
}

#[test]
fn on_merge_nothing_goes_before_what_a_person_applies_first() {
    let rules = "repo_locks: {mode: strict}\non_merge: apply\nallowed_overrides: [on_merge]";
    let rules = workflow(rules, &["init", "plan"], &["apply", "echo $REPO_REL_DIR >> {tmp}/applied"]);
    let setup = Setup::projects(&["a", "b", "c"]).file("atlantis.yaml", &in_order("on_merge: nothing"));
    run_test(setup.repos_yaml(&rules), async |ctx| {
        let pull = merged(ctx, "first", &["a", "b"]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success")
            .has("`b/default`: not applied yet, as `a/default` comes first")
            .has("`atlantis plan`");
        ctx.quiet().await;
        assert_eq!(ctx.lines("applied"), 0);
        let said = ctx.say(&pull, "atlantis plan").await;
        assert_eq!(said.is("plan", "success").outcomes().len(), 2);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(std::fs::read_to_string(ctx.tmp.join("applied")).unwrap(), "a\nb\n");
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn on_merge_a_gate_that_refuses_leads_to_a_command() {
    let rules = "repo_locks: {mode: strict}\non_merge: apply\napprovals: {of_plan: true}";
    let rules = workflow(rules, &["init", "plan"], &["apply", "echo applied >> {tmp}/applied"]);
    run_test(Setup::projects(&["a"]).repos_yaml(&rules), async |ctx| {
        let first = merged(ctx, "first", &["a"]).await;
        ctx.next(&first).await.is("plan", "success").has(SAME);
        let said = ctx.next(&first).await;
        said.is("apply", "failure").has("approved: 0 of 1 of").has("To apply what is left: `atlantis apply`");
        assert_eq!((ctx.lines("applied"), ctx.locks().await.len()), (0, 1));
        first.approve("bob").unwrap();
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        // An approval from before the merge counts after it.
        let second = ctx.open_dirs("second", &["a"]).await;
        ctx.next(&second).await.is("plan", "success");
        second.approve("bob").unwrap();
        second.merge().await.unwrap();
        ctx.next(&second).await.is_message("owes");
        ctx.next(&second).await.is("plan", "success").has(SAME);
        ctx.next(&second).await.is("apply", "success");
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn after_the_merge_code_owners_are_those_of_what_was_changed() {
    let rules = "repo_locks: {mode: strict}\non_merge: apply\napprovals: {all_of: [codeowners]}";
    let rules = workflow(rules, &["init", "plan"], &["apply", "echo applied >> {tmp}/applied"]);
    let setup = Setup::projects(&["a"]).file(".github/CODEOWNERS", "/a/main.tf @bob\n/a/other.tf @carol\n");
    run_test(setup.repos_yaml(&rules), async |ctx| {
        let pull = ctx.open("first", &[MORE]).await;
        ctx.next(&pull).await.is("plan", "success");
        pull.approve("bob").unwrap();
        pull.merge().await.unwrap();
        ctx.next(&pull).await.is_message("owes");
        ctx.next(&pull).await.is("plan", "success").has(SAME);
        ctx.next(&pull).await.is("apply", "failure").has("code owners have to approve `a/other.tf` (carol)");
        pull.approve("carol").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn on_merge_waits_where_somebody_may_not_apply() {
    let rules = workflow(
        "repo_locks: {mode: strict}\non_merge: apply\nallowed_users: ['*:plan', 'bob:apply']",
        &["init", "plan"],
        &["apply", "echo applied >> {tmp}/applied"],
    );
    run_test(Setup::projects(&["a"]).repos_yaml(&rules), async |ctx| {
        let first = merged(ctx, "first", &["a"]).await;
        ctx.next(&first).await.is("plan", "success").has(SAME);
        let said = ctx.next(&first).await;
        said.because("not_permitted");
        assert_eq!(ctx.lines("applied"), 0);
        ctx.say_as("bob", &first, "atlantis apply").await.is("apply", "success");
        assert!(ctx.locks().await.is_empty());
    });
}

/// Plays a merged pull request whose apply is interrupted by the end of its server after this many commits, or not at all. Returns the
/// number of commits. `on_merge`: the merge causes the apply, and not a comment.
fn trial(on_merge: bool, cut: Option<usize>) -> usize {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let double = runtime.block_on(StorageDouble::start()).unwrap();
    double.bucket(BUCKET, Settings::default());
    double.limit_mutations(false);
    let flags = [format!("--bucket=gs://{BUCKET}/prod"), format!("--bucket-endpoint={}", double.endpoint())];
    let keys = if on_merge { "repo_locks: {mode: strict}\non_merge: apply" } else { "repo_locks: {mode: strict}" };
    let rules = workflow(keys, &["init", "plan"], &["apply", "echo $PULL_NUM >> {tmp}/applied"]);
    let setup =
        Setup::projects(&["a"]).repos_yaml(&rules).flags(&[&flags[0], &flags[1], "--lease-ttl=120s"]).own_process();
    let mut counted = 0;
    run_test(setup, async |ctx| {
        let pull = match on_merge {
            false => merged(ctx, "first", &["a"]).await,
            true => {
                let pull = ctx.open_dirs("first", &["a"]).await;
                ctx.next(&pull).await.is("plan", "success");
                pull
            }
        };
        ctx.server.restart().await;
        let before = commits(&double);
        let lost = |cut: usize| Fault::next(Operation::Insert, Effect::Lost).named("/journal/").skip(cut as u32 - 1);
        cut.into_iter().for_each(|cut| double.fault(lost(cut)));
        match on_merge {
            false => drop(pull.comment("alice", "atlantis apply").unwrap()),
            true => drop(pull.merge().await.unwrap()),
        }
        if let Some(cut) = cut {
            let _ = tokio::time::timeout(
                PATIENCE,
                ctx.until("the commit is stored", async || commits(&double) >= before + cut),
            )
            .await;
            ctx.server.kill().await;
            double.heal();
            give_up_lease(&double).await;
            ctx.server.flag(&format!("--data-dir={}", ctx.own.join("data-2").display()));
            ctx.server.start().await;
        }
        if on_merge {
            ctx.next(&pull).await.is_message("owes");
        }
        ctx.next(&pull).await.is("plan", "success").has(SAME);
        let said = ctx.next(&pull).await;
        ctx.quiet().await;
        // It is reported as applied, and has run once; or as interrupted, and has run at most once.
        match said.outcomes().as_slice() {
            [(_, result)] if result == "success" => assert_eq!(ctx.lines("applied"), 1),
            _ => {
                said.because("interrupted");
                assert!(ctx.lines("applied") <= 1);
            }
        }
        assert_eq!(ctx.locks().await.is_empty(), said.outcomes()[0].1 == "success");
        if cut.is_none() {
            ctx.server.stop().await;
            counted = commits(&double) - before;
            ctx.server.start().await;
        }
    });
    counted
}

#[test]
fn an_apply_after_the_merge_that_is_cut_after_any_commit_goes_on_or_is_told_and_is_not_repeated() {
    after_each_commit(false);
}

#[test]
fn an_apply_on_merge_that_is_cut_after_any_commit_goes_on_or_is_told_and_is_not_repeated() {
    after_each_commit(true);
}

fn after_each_commit(on_merge: bool) {
    let commits = trial(on_merge, None);
    assert!((6..40).contains(&commits), "{commits}");
    cut_at(1..=commits, |cut| {
        trial(on_merge, Some(cut));
    });
}

#[test]
fn what_others_have_merged_since_is_planned_with_it_and_satisfied_by_one_apply() {
    run_test(strict(&["a"]), async |ctx| {
        let first = ctx.open_dirs("first", &["a"]).await;
        ctx.next(&first).await.is("plan", "success");
        let second = ctx.open("second", &[("a/other.tf", "resource \"terraform_data\" \"other\" {}\n")]).await;
        ctx.next(&second).await.is("plan", "success").has("also changed by #1");
        // The first request for the pull request comes from the invalidation, the second from the re-plan, which finds it merged.
        let replan = ctx.hold_second("**/pulls/2");
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("owes");
        ctx.next(&second).await.is_message("plans_fell").has("`main` has moved to");
        second.merge().await.unwrap();
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        replan.open();
        ctx.next(&second).await.is_message("owes");
        assert_eq!(ctx.locks().await.len(), 2);
        ctx.say(&second, "atlantis plan").await.is("plan", "success").has("2 to add");
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
        ctx.next(&first).await.is_message("applied_by_another").has("Applied with #2");
        assert!(ctx.locks().await.is_empty());
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_plan_without_changes_after_the_merge_ends_what_is_owed() {
    let plan = "[ -e {tmp}/same ] && echo 'No changes. Your infrastructure matches the configuration.' || echo 'Plan: 1 to add, 0 to change, 0 to destroy.'";
    let rules = workflow("repo_locks: {mode: strict}", &[plan], &["echo applied >> {tmp}/applied"]);
    run_test(Setup::projects(&["a"]).repos_yaml(&rules), async |ctx| {
        let first = merged(ctx, "first", &["a"]).await;
        ctx.say(&first, "atlantis plan").await.is("plan", "success");
        assert_eq!(ctx.locks().await.len(), 1);
        // Somebody has applied it by hand.
        std::fs::write(ctx.tmp.join("same"), "").unwrap();
        ctx.say(&first, "atlantis plan").await.is("plan", "success").has("No changes");
        assert!(ctx.locks().await.is_empty());
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn after_the_merge_only_what_is_owed_can_be_planned() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let first = merged(ctx, "first", &["a"]).await;
        ctx.say(&first, "atlantis plan -d b")
            .await
            .is("plan", "error")
            .has("is not one of its unapplied projects: `a/default`");
        ctx.repo.push("main", &[("readme.md", Some("moved"))]).await.unwrap();
        ctx.say(&first, "atlantis plan -d a").await.is("plan", "success");
        ctx.repo.push("main", &[("readme.md", Some("moved again"))]).await.unwrap();
        // The tip has moved since, so it is planned anew.
        ctx.say(&first, "atlantis apply -d a").await.is("plan", "success").has(SAME);
        ctx.next(&first).await.is("apply", "success");
        assert!(ctx.locks().await.is_empty());
    });
}

/// Rules that require an approval; plans are compared.
fn approved(keys: &str) -> Setup {
    let keys = format!("repo_locks: {{mode: strict}}\napply_requirements: [approved]\n{keys}");
    let rules = workflow(&keys, &["init", "plan"], &["apply", "echo $PULL_NUM >> {tmp}/applied"]);
    Setup::projects(&["a", "b"]).repos_yaml(&rules)
}

/// As [`merged`], after an approval by bob, and with this merge method.
async fn merged_approved(ctx: &Ctx, branch: &str, dirs: &[&str], method: &str) -> Pull {
    let pull = ctx.planned_dirs(branch, dirs).await;
    pull.approve("bob").unwrap();
    pull.merge_as("alice", method).await.unwrap();
    ctx.next_second().await;
    ctx.next(&pull).await.is_message("owes").has("Merged but not applied");
    pull
}

#[test]
fn what_nobody_approved_is_not_applied_after_the_merge() {
    for method in ["merge", "squash", "rebase"] {
        run_test(approved(""), async |ctx| {
            ctx.repo.allow_rebase_merges().unwrap();
            let first = merged_approved(ctx, "first", &["a"], method).await;
            let commit = ctx.repo.push_as("alice", "main", "Tune it", &[(MORE.0, Some(MORE.1))]).await.unwrap();
            ctx.say(&first, "atlantis apply").await.is("plan", "success").has("the plan differs from the one of");
            let said = ctx.say(&first, "atlantis apply").await;
            said.is("apply", "failure").because("requirement").has(&commit[..7]).has("Tune it").has("alice");
            said.has("approve #1").has("`atlantis apply --force -m \"why\"`");
            assert_eq!(ctx.lines("applied"), 0);
            // An approval now is of the plan of the tip; the author's own does not count.
            first.approve("bob").unwrap();
            ctx.say(&first, "atlantis apply").await.is("apply", "success");
            assert!(state(ctx, "a").contains("\"other\"") && ctx.locks().await.is_empty());
        });
    }
}

#[test]
fn commits_that_a_rebase_merge_has_written_again_are_what_was_approved() {
    run_test(approved(""), async |ctx| {
        ctx.repo.allow_rebase_merges().unwrap();
        let first = ctx.planned_dirs("first", &["a"]).await;
        ctx.push(&first, "a/more.tf", "# more\n").await;
        ctx.next(&first).await.is("plan", "success");
        ctx.repo.push("main", &[("readme.md", Some("of no project"))]).await.unwrap();
        first.approve("bob").unwrap();
        first.merge_as("alice", "rebase").await.unwrap();
        ctx.next(&first).await.is_message("owes");
        ctx.say(&first, "atlantis apply").await.is("plan", "success").has(SAME);
        ctx.next(&first).await.is("apply", "success");
        assert!(state(ctx, "a").contains("\"first\"") && ctx.locks().await.is_empty());
    });
}

#[test]
fn what_the_base_branch_has_of_other_files_needs_no_approval() {
    run_test(approved(""), async |ctx| {
        let first = merged_approved(ctx, "first", &["a"], "squash").await;
        ctx.repo
            .push("main", &[("readme.md", Some("of no project")), ("b/more.tf", Some("# of another\n"))])
            .await
            .unwrap();
        ctx.say(&first, "atlantis apply").await.is("plan", "success").has(SAME);
        ctx.next(&first).await.is("apply", "success");
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn what_others_have_merged_after_their_own_approval_is_applied_with_it() {
    run_test(approved(""), async |ctx| {
        let first = merged_approved(ctx, "first", &["a"], "merge").await;
        let second = ctx.open("second", &[MORE]).await;
        ctx.next(&second).await.is("plan", "success");
        second.push(&[("a/more.tf", Some("# more\n"))]).await.unwrap();
        ctx.next(&second).await.is("plan", "success");
        second.merge_as("alice", "squash").await.unwrap();
        ctx.next(&second).await.is_message("owes");
        ctx.say(&first, "atlantis apply").await.is("plan", "success").has("the plan differs");
        let said = ctx.say(&first, "atlantis apply").await;
        said.is("apply", "failure").because("requirement").has("#2");
        assert_eq!(ctx.lines("applied"), 0);
        second.approve("bob").unwrap();
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.next(&second).await.is_message("applied_by_another");
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn a_merge_commit_that_says_more_than_its_pull_request_was_approved_by_nobody() {
    run_test(approved(""), async |ctx| {
        let first = merged_approved(ctx, "first", &["a"], "merge").await;
        // Branched from the pushed commit, so the pull request does not show that change.
        let commit = ctx.repo.push("main", &[(MORE.0, Some(MORE.1))]).await.unwrap();
        let second = ctx.open("second", &[("a/second.tf", "# second\n")]).await;
        ctx.next(&second).await.is("plan", "success");
        second.push(&[("a/third.tf", Some("# third\n"))]).await.unwrap();
        ctx.next(&second).await.is("plan", "success");
        second.approve("bob").unwrap();
        second.merge_as("alice", "squash").await.unwrap();
        ctx.next(&second).await.is_message("owes");
        ctx.say(&first, "atlantis plan").await.is("plan", "success");
        ctx.say(&first, "atlantis apply").await.is("apply", "failure").because("requirement").has(&commit[..7]);
        assert_eq!(ctx.lines("applied"), 0);
        ctx.say_as("carol", &first, "atlantis apply --force -m 'seen it'").await.has("may not");
    });
}
