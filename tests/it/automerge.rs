//! Conditions and methods of automerge. Behaviour that all hosts share is in `flow`.

use crate::support::*;
use tidelock_forge::{OpenOptions, Pull};

const APPLY: &str = "echo $REPO_REL_DIR >> {tmp}/applied";

fn projects(flags: &[&str]) -> Setup {
    Setup::projects(&["one", "two"]).steps(&[PLANNED], &[APPLY]).flags(flags)
}

/// Checks that the pull request gets a comment about its merge, and is merged.
async fn is_merged(ctx: &Ctx, pull: &Pull) {
    ctx.next(pull).await.is_message("automerge");
    ctx.next(pull).await.is_message("cleanup");
    assert!(pull.is_merged().unwrap());
}

/// Checks that the pull request is not merged: comments come in the order of their recording, so the next one would be about the merge.
async fn is_left_open(ctx: &Ctx, pull: &Pull) {
    ctx.quiet().await;
    ctx.say(pull, "atlantis help").await.is_message("help");
    assert!(pull.is_open().unwrap());
}

#[test]
fn all_projects_have_to_be_applied_and_the_method_is_the_commands_or_the_servers() {
    run_test(projects(&["--automerge", "--automerge-method=squash"]), async |ctx| {
        let pull = ctx.open_dirs("first", &["one", "two"]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply -d one").await.is("apply", "success");
        is_left_open(ctx, &pull).await;
        ctx.say(&pull, "atlantis apply -d two").await.is("apply", "success");
        is_merged(ctx, &pull).await;
        assert_eq!(ctx.repo.subject("main").await.unwrap(), "Change by first (#1)", "squashed");
        assert!(ctx.repo.tip("first").await.is_ok(), "nobody asked for its deletion");
        let pull = ctx.open_dirs("second", &["one"]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply --auto-merge-method merge").await.is("apply", "success");
        is_merged(ctx, &pull).await;
        assert_eq!(ctx.repo.subject("main").await.unwrap(), "Merge pull request #2 from second");
    });
}

#[test]
fn a_failed_plan_of_everything_a_draft_and_the_label_keep_it_open() {
    let setup = projects(&["--automerge", "--allow-draft-prs", "--disable-automerge-label=by-hand"]);
    run_test(setup, async |ctx| {
        let labelled = OpenOptions { labels: vec!["by-hand".to_owned()], ..OpenOptions::default() };
        for (branch, options) in [("label", labelled), ("draft", OpenOptions { draft: true, ..OpenOptions::default() })]
        {
            let pull = ctx.open_as("alice", branch, &[("one/main.tf", "# 2\n")], options).await;
            ctx.next(&pull).await.is("plan", "success");
            ctx.say(&pull, "atlantis apply").await.is("apply", "success");
            is_left_open(ctx, &pull).await;
            ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
        }
        // Planning everything fails, and planning one project succeeds.
        let broken = "version: 3\nprojects: [{dir: one}, {dir: two, autoplan: {when_modified: ['[']}}]\n";
        let pull = ctx.open("broken", &[("one/main.tf", "# 2\n"), ("atlantis.yaml", broken)]).await;
        ctx.next(&pull).await.is("plan", "error").because("config");
        ctx.say(&pull, "atlantis plan -d one").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        is_left_open(ctx, &pull).await;
        ctx.push(&pull, "atlantis.yaml", "version: 3\nprojects: [{dir: one}]\n").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        is_merged(ctx, &pull).await;
    });
}

#[test]
fn what_was_planned_for_some_projects_only_is_left_open_until_all_of_it_was() {
    run_test(projects(&["--automerge", "--disable-autoplan"]), async |ctx| {
        let pull = ctx.open_dirs("first", &["one", "two"]).await;
        ctx.say(&pull, "atlantis plan -d one").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        is_left_open(ctx, &pull).await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        is_merged(ctx, &pull).await;
    });
}

#[test]
fn a_repository_says_for_itself_whether_it_is_merged_and_what_has_no_changes_is_not_waited_for() {
    let yaml =
        "version: 3\nautomerge: true\nprojects: [{dir: one}, {dir: two, autoplan: {when_modified: ['../one/*.tf']}}]\n";
    run_test(Setup::projects(&["one", "two"]).file("atlantis.yaml", yaml), async |ctx| {
        // The second one's input was never applied; the first apply creates it.
        let pull = ctx.open_dirs("first", &["one"]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        is_merged(ctx, &pull).await;
        let pull = ctx.open("second", &[("one/main.tf", &ctx.fill(&terraform("one", "3")))]).await;
        let plan = ctx.next(&pull).await;
        plan.is("plan", "success");
        assert_eq!(plan.marker["results"][1]["no_changes"], true, "{}", plan.text);
        ctx.say(&pull, "atlantis apply -d one").await.is("apply", "success");
        is_merged(ctx, &pull).await;
        let off = yaml.replace("automerge: true", "automerge: false");
        let text = ctx.fill(&terraform("one", "4"));
        let pull = ctx.open("third", &[("one/main.tf", &text), ("atlantis.yaml", &off)]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        is_left_open(ctx, &pull).await;
    });
}

#[test]
fn repos_yaml_turns_it_on_with_a_method_and_a_repo_config_may_turn_it_off() {
    let rules = workflow("automerge: true\nmerge_method: squash", &[PLANNED], &[APPLY]);
    let setup = Setup::projects(&["one", "two"]).repos_yaml(&rules).flags(&["--automerge-method=rebase"]);
    run_test(setup, async |ctx| {
        for (branch, apply, subject) in [
            ("first", "atlantis apply", "Change by first (#1)"),
            ("second", "atlantis apply --auto-merge-method merge", "Merge pull request #2 from second"),
        ] {
            let pull = ctx.open_dirs(branch, &["one"]).await;
            ctx.next(&pull).await.is("plan", "success");
            ctx.say(&pull, apply).await.is("apply", "success");
            is_merged(ctx, &pull).await;
            assert_eq!(ctx.repo.subject("main").await.unwrap(), subject);
        }
        let off = ("atlantis.yaml", "version: 3\nautomerge: false\n");
        let pull = ctx.open("third", &[("one/main.tf", "# 4\n"), off]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        is_left_open(ctx, &pull).await;
    });
}

#[test]
fn no_repo_config_turns_on_what_repos_yaml_turns_off() {
    let rules = workflow("automerge: false", &[PLANNED], &[APPLY]);
    run_test(Setup::projects(&["one"]).repos_yaml(&rules).flags(&["--automerge"]), async |ctx| {
        let on = ("atlantis.yaml", "version: 3\nautomerge: true\n");
        let pull = ctx.open("first", &[("one/main.tf", "# 2\n"), on]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        is_left_open(ctx, &pull).await;
    });
}

#[test]
fn what_the_host_refused_to_merge_is_merged_by_a_review_or_another_apply() {
    run_test(projects(&["--automerge"]), async |ctx| {
        for (branch, dir) in [("review", "one"), ("apply", "two")] {
            let pull = ctx.open_dirs(branch, &[dir]).await;
            ctx.next(&pull).await.is("plan", "success");
            pull.set_mergeable_state("blocked").unwrap();
            ctx.say(&pull, "atlantis apply").await.is("apply", "success");
            ctx.next(&pull).await.is_message("automerge");
            ctx.next(&pull).await.is_message("automerge").has("Automerging failed");
            if branch == "apply" {
                // A second refusal for the same reason is reported to the person who asked.
                ctx.say(&pull, "atlantis apply").await.is_message("automerge").has("Automatically merging");
                ctx.next(&pull).await.is_message("automerge").has("Automerging failed");
            } else {
                // A review that is not sufficient causes no comment.
                pull.approve("bob").unwrap();
                ctx.quiet().await;
            }
            pull.set_mergeable_state("clean").unwrap();
            match branch {
                "review" => pull.approve("carol").unwrap(),
                _ => {
                    pull.comment("alice", "atlantis apply").unwrap();
                    ctx.next(&pull).await.is_message("automerge").has("Automatically merging");
                }
            }
            ctx.next(&pull).await.is_message("cleanup");
            assert!(pull.is_merged().unwrap());
        }
    });
}

/// A host that sends no delivery about a status is asked in each round.
#[test]
fn what_the_host_refused_to_merge_is_merged_by_a_round_once_it_may() {
    run_test(projects(&["--automerge", "--reconcile-interval=1s"]), async |ctx| {
        let pull = ctx.open_dirs("change", &["one"]).await;
        ctx.next(&pull).await.is("plan", "success");
        pull.set_mergeable_state("blocked").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.next(&pull).await.is_message("automerge");
        ctx.next(&pull).await.is_message("automerge").has("Automerging failed");
        ctx.server.restart().await;
        pull.set_mergeable_state("clean").unwrap();
        ctx.next(&pull).await.is_message("cleanup");
        assert!(pull.is_merged().unwrap());
    });
}
