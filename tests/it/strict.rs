//! Mode `strict`: plans lock nothing, and an apply makes its pull request the owner of what it changes. Half-applied or half-merged changes
//! keep others out until that has ended.

use crate::support::*;
use tidelock_forge::{Fault, OpenOptions};

/// Every project is in mode `strict`; each apply writes a line.
fn strict(dirs: &[&str]) -> Setup {
    let rules = workflow(
        "repo_locks: {mode: strict}",
        &[PLANNED],
        &["[ ! -e {tmp}/fails ]", "echo $PULL_NUM >> {tmp}/applied"],
    );
    Setup::projects(dirs).repos_yaml(&rules)
}

/// Fault of a host with an internal error.
fn failing() -> Fault {
    Fault::Status(500, "{}".to_owned(), Vec::new())
}

#[test]
fn two_pull_requests_plan_one_project_and_the_second_is_told_of_the_first() {
    run_test(strict(&["a"]), async |ctx| {
        let first = ctx.open_dirs("first", &["a"]).await;
        ctx.next(&first).await.is("plan", "success").has_not("locked");
        let second = ctx.open_dirs("second", &["a"]).await;
        ctx.next(&second)
            .await
            .is("plan", "success")
            .has("`a/default` is also changed by #1, which planned it just now");
        assert!(ctx.owners().await.is_empty());
    });
}

#[test]
fn an_apply_owns_all_that_the_pull_request_changes_and_others_are_refused_by_name() {
    run_test(strict(&["a", "b", "c"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a", "b"]).await;
        let second = ctx.planned_dirs("second", &["b", "c"]).await;
        ctx.say(&first, "atlantis apply -d a").await.is("apply", "success");
        assert_eq!(ctx.owners().await, ["a #1 applied_unmerged", "b #1 planned"]);
        // The project itself is free, and one that it changes as well is not.
        let said = ctx.say(&second, "atlantis apply -d c").await;
        said.is("apply", "failure").because("locked").has("#1").has("`b` (workspace `default`) has been owned by");
        said.has("`atlantis unlock` on #1");
        let row = &said.marker["results"][0];
        assert_eq!((row["owner"].as_u64(), row["next"].as_str()), (Some(1), Some("atlantis unlock")));
        assert_eq!(ctx.lines("applied"), 1);
        ctx.status(&second, "atlantis/apply: c/default", "failure", "Owned by #1").await;
        let (status, page) = ctx.request("GET", "/", &[]).await;
        assert!(status == 200 && page.contains("applied, not merged") && page.contains("owned, nothing applied yet"));
    });
}

#[test]
fn with_the_scope_of_a_project_others_are_free() {
    let rules = workflow(
        "repo_locks: {mode: strict, scope: project}\napply_scope: selected",
        &[PLANNED],
        &["echo $PULL_NUM >> {tmp}/applied"],
    );
    run_test(Setup::projects(&["a", "b"]).repos_yaml(&rules), async |ctx| {
        let first = ctx.planned_dirs("first", &["a", "b"]).await;
        let second = ctx.planned_dirs("second", &["a", "b"]).await;
        ctx.say(&first, "atlantis apply -d a").await.is("apply", "success");
        ctx.next(&second).await.is_message("plans_fell").has("#1").has("dir `a`").has_not("dir `b`");
        assert_eq!(ctx.owners().await, ["a #1 applied_unmerged"]);
        ctx.say(&second, "atlantis apply -d b").await.is("apply", "success");
        ctx.next(&first).await.is_message("plans_fell").has("#2").has("dir `b`");
        assert_eq!(ctx.owners().await, ["a #1 applied_unmerged", "b #2 applied_unmerged"]);
    });
}

#[test]
fn a_plan_is_invalidated_when_another_pull_request_applies_and_a_new_one_is_a_preview() {
    run_test(strict(&["a"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a"]).await;
        let second = ctx.planned_dirs("second", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.next(&second).await.is_message("plans_fell").has("#1 changes the same").has("`atlantis plan`");
        ctx.status(&second, "atlantis/plan", "failure", "Plan discarded: #1 changes the same").await;
        for command in ["atlantis apply", "atlantis apply -d a"] {
            let said = ctx.say(&second, command).await;
            said.has("plan is out of date since #1 started to apply; #1 owns `a/default` until it is merged");
        }
        let said = ctx.say(&second, "atlantis plan").await;
        said.is("plan", "success").has("The plan of `a/default` is a preview: #1 must be merged first");
        said.has_not("atlantis apply");
        ctx.say(&second, "atlantis apply").await.is("apply", "failure").because("locked").has("#1");
        first.merge().await.unwrap();
        ctx.next(&second).await.is_message("plans_fell").has("`main` has moved to").has("The server plans it again");
        ctx.until("the merge frees it", async || ctx.owners().await.is_empty()).await;
        // Both change the same line.
        ctx.next(&second).await.is("plan", "error").has("conflict");
        ctx.say(&second, "atlantis apply -d a").await.is("apply", "error");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_plan_invalidated_while_its_run_goes_on_fails_the_status_at_the_end_of_it() {
    let held = format!("if [ $PULL_NUM = 2 ] && [ $REPO_REL_DIR = b ]; then {}; fi", gate("plan"));
    let rules = workflow("repo_locks: {mode: strict}", &[&held, PLANNED], &["true"]);
    run_test(Setup::projects(&["a", "b"]).repos_yaml(&rules).flags(&["--parallel-pool-size=1"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a"]).await;
        let second = ctx.open_dirs("second", &["a", "b"]).await;
        ctx.reached("plan", 1).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.next(&second).await.is_message("plans_fell").has("dir `a`");
        ctx.open_gate("plan");
        ctx.next(&second).await.is("plan", "success");
        ctx.status(&second, "atlantis/plan", "failure", "1 with changes, 1 discarded").await;
    });
}

#[test]
fn a_failed_apply_owns_the_project_as_well() {
    run_test(strict(&["a"]), async |ctx| {
        std::fs::write(ctx.tmp.join("fails"), "").unwrap();
        let first = ctx.planned_dirs("first", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "error");
        assert_eq!(ctx.owners().await, ["a #1 applied_unmerged"]);
        ctx.say(&first, "atlantis unlock")
            .await
            .is_message("unlocked")
            .has("Still owned: 1 project")
            .has("--accept-drift");
        assert_eq!(ctx.owners().await, ["a #1 applied_unmerged"]);
    });
}

#[test]
fn what_was_closed_after_an_apply_stays_owned_until_somebody_accepts_that() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a", "b"]).await;
        ctx.say(&first, "atlantis apply -d a").await.is("apply", "success");
        first.close().unwrap();
        let said = ctx.next(&first).await;
        said.is_message("owes").has("Closed after an apply: 1 project").has("dir `a`").has_not("dir `b`");
        said.has("`atlantis unlock --accept-drift -m \"why\"`");
        ctx.status(&first, "atlantis/apply", "failure", "Closed after an apply of 1 project").await;
        assert_eq!(ctx.owners().await, ["a #1 closed_applied"]);
        let second = ctx.planned_dirs("second", &["a"]).await;
        let said = ctx.say(&second, "atlantis apply").await;
        said.is("apply", "failure").because("locked").has("it was closed after an apply");
        let way_out = said.marker["results"][0]["next"].as_str().unwrap().to_owned();
        ctx.say(&first, "atlantis unlock").await.is_message("unlocked").has("Still owned");
        ctx.say(&first, "atlantis unlock --accept-drift").await.is_message("usage").has("needs a reason");
        ctx.say(&first, &way_out).await.is_message("unlocked").has("dir `a`").has_not("Still owned");
        assert!(ctx.owners().await.is_empty());
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn who_can_only_read_ends_no_owner() {
    run_test(strict(&["a"]), async |ctx| {
        let accept = "atlantis unlock --accept-drift -m 'let me through'";
        let first = ctx.planned_dirs("first", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        let said = ctx.say_as("dave", &first, accept).await;
        said.is_message("not_permitted").has("dave may not use `unlock --accept-drift`").has("who may write to the");
        said.has(&format!("`{accept}`"));
        // An error of the host is a refusal.
        ctx.forge.fail_next("GET", "**/collaborators/bob/permission", failing(), 20).unwrap();
        let said = ctx.say_as("bob", &first, accept).await;
        said.is_message("not_permitted").has("did not say whether bob may use `unlock --accept-drift`");
        said.has(&format!("`{accept}`"));
        assert_eq!(ctx.owners().await, ["a #1 applied_unmerged"]);
        ctx.forge.clear_faults();
        // Without the flag everybody may unlock, as in Atlantis: it ends nothing that was applied.
        ctx.say_as("dave", &first, "atlantis unlock").await.is_message("unlocked").has("Still owned: 1 project");
        ctx.say_as("bob", &first, accept).await.is_message("unlocked").has("dir `a`");
        assert!(ctx.owners().await.is_empty());
    });
}

#[test]
fn a_rule_for_unlock_lets_who_can_only_read_end_an_owner_and_a_star_does_not() {
    for (rules, ends) in [("'*', 'dave:unlock'", true), ("'*'", false)] {
        let rules = format!("repo_locks: {{mode: strict}}\nallowed_users: [{rules}]");
        run_test(Setup::projects(&["a"]).repos_yaml(&workflow(&rules, &[PLANNED], &["true"])), async |ctx| {
            let first = ctx.planned_dirs("first", &["a"]).await;
            ctx.say(&first, "atlantis apply").await.is("apply", "success");
            let said = ctx.say_as("dave", &first, "atlantis unlock --accept-drift -m 'it is so'").await;
            said.is_message(if ends { "unlocked" } else { "not_permitted" });
            assert_eq!(ctx.owners().await.is_empty(), ends);
        });
    }
}

#[test]
fn what_is_taken_by_hand_is_not_ended_by_who_can_only_read() {
    for rules in ["repo_locks: {mode: strict}", "repo_locks: {mode: on_apply}"] {
        run_test(Setup::projects(&["a"]).repos_yaml(&workflow(rules, &[PLANNED], &["true"])), async |ctx| {
            let first = ctx.planned_dirs("first", &["a"]).await;
            ctx.say(&first, "atlantis lock -m 'I migrate its state by hand'").await.is_message("locked");
            let said = ctx.say_as("dave", &first, "atlantis unlock").await;
            said.is_message("not_permitted")
                .has("`a/default` is locked by hand")
                .has("who may write to the repository");
            assert_eq!(ctx.owners().await.len(), 1);
            ctx.say_as("bob", &first, "atlantis unlock").await.is_message("unlocked");
            assert!(ctx.owners().await.is_empty());
        });
    }
}

#[test]
fn several_owners_are_ended_at_once_by_who_has_the_right() {
    run_test(strict(&["a", "b", "c"]), async |ctx| {
        ctx.repo.set_permission("carol", "admin").unwrap();
        let first = ctx.planned_dirs("first", &["a"]).await;
        let second = ctx.planned_dirs("second", &["b"]).await;
        let third = ctx.planned_dirs("third", &["c"]).await;
        for pull in [&first, &second] {
            ctx.say(pull, "atlantis apply").await.is("apply", "success");
        }
        ctx.quiet().await;
        let said = ctx.say_as("carol", &third, "atlantis unlock #1, #2").await;
        said.is_message("unlocked")
            .has("Nothing unlocked for #1: it owns `a/default`")
            .has("Nothing unlocked for #2: it owns `b/default`");
        said.has("`atlantis unlock #2 --accept-drift -m 'why'`");
        assert_eq!(ctx.owners().await.len(), 2);
        let said = ctx.say_as("carol", &third, "atlantis unlock #1 #2 1 #99 --accept-drift -m 'start over'").await;
        said.is_message("unlocked").has("Unlocked for #1: `a/default`").has("Unlocked for #2: `b/default`");
        said.has("Nothing unlocked for #99: it has no matching");
        assert!(ctx.owners().await.is_empty());
        for pull in [&first, &second] {
            ctx.next(pull).await.is_message("unlocked").has("Unlocked by carol").has("start over");
        }
    });
}

#[test]
fn a_draft_is_planned_and_changes_no_state_until_it_is_ready() {
    let setup = strict(&["a"]).flags(&["--allow-draft-prs", "--allow-commands=all", "--api-secret=s3cret-of-the-api"]);
    run_test(setup, async |ctx| {
        let options = OpenOptions { draft: true, ..OpenOptions::default() };
        let early = ctx.open_as("alice", "early", &[("a/main.tf", &terraform("a", "early"))], options).await;
        let said = ctx.next(&early).await;
        said.is("plan", "success").has("is a draft").has_not("atlantis apply");
        let said = ctx.say(&early, "atlantis apply -d a").await;
        said.is("apply", "failure").because("requirement").has("is a draft").has("Mark it as ready for review");
        said.has("`atlantis apply -d a`");
        for command in ["import -d a null_resource.x id", "state -d a rm null_resource.x"] {
            let said = ctx.say(&early, &format!("atlantis {command}")).await;
            said.because("requirement").has("is a draft").has("Mark it as ready for review");
        }
        ctx.say(&early, "atlantis apply --force -m 'I want it'").await.because("requirement").has("is a draft");
        let body = r#"{"Repository":"acme/infra","Ref":"early","Type":"Github","PR":1,"Paths":[{"Directory":"a"}]}"#;
        let answer = reqwest::Client::builder()
            .no_proxy()
            .build()
            .unwrap()
            .post(format!("{}/api/apply", ctx.server.url()))
            .header("X-Atlantis-Token", "s3cret-of-the-api")
            .body(body);
        assert_eq!(answer.send().await.unwrap().status(), 500);
        ctx.next(&early).await.is("plan", "success");
        ctx.next(&early).await.is("apply", "failure").because("requirement").has("is a draft");
        assert!(ctx.owners().await.is_empty());
        assert_eq!(ctx.lines("applied"), 0);
        early.ready().unwrap();
        ctx.next(&early).await.is("plan", "success").has_not("draft").has("atlantis apply");
        ctx.say(&early, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn the_earlier_pull_request_is_told_once_of_a_later_one() {
    run_test(strict(&["a", "b", "c"]), async |ctx| {
        let first = ctx.planned_own("first", &["a", "b"]).await;
        let second = ctx.open_own("second", &["a", "b", "c"]).await;
        ctx.next(&second).await.is("plan", "success").has("`a/default` is also changed by #1");
        let told = ctx.next_of_all(&first).await;
        told.is_message("also_changed").has("#2 also changes 2 projects").has("dir `a`").has("dir `b`");
        told.has_not("dir `c`");
        // Only once, whoever plans, and from whatever server.
        ctx.say(&second, "atlantis plan").await.is("plan", "success");
        ctx.say(&first, "atlantis plan").await.is("plan", "success").has("`a/default` is also changed by #2");
        ctx.server.restart().await;
        ctx.push(&second, "a/more.tf", "# more").await;
        ctx.next(&second).await.is("plan", "success").has("`b/default` is also changed by #1");
        // For new changes, again.
        ctx.push(&first, "c/first.tf", "# first").await;
        ctx.next(&first).await.is("plan", "success").has("`c/default` is also changed by #2");
        ctx.next_of_all(&second).await.is_message("also_changed").has("#1 also changes 1 project").has("dir `c`");
        // A plan of a project that the pull request does not change is not reported to others.
        let third = ctx.planned_own("third", &["c"]).await;
        for pull in [&first, &second] {
            ctx.next_of_all(pull).await.is_message("also_changed").has("#3 also changes 1 project");
        }
        ctx.say(&third, "atlantis plan -d a").await.is("plan", "success").has("its plan is a preview");
        ctx.quiet().await;
        for (pull, comments) in [(&first, 5), (&second, 5), (&third, 2)] {
            assert_eq!(pull.bot_comments().unwrap().len(), comments, "#{}", pull.number());
        }
    });
}

#[test]
fn what_was_closed_and_is_reopened_goes_on_as_before() {
    run_test(strict(&["a"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        first.close().unwrap();
        ctx.next(&first).await.is_message("owes");
        first.reopen().unwrap();
        ctx.next(&first).await.is("plan", "success");
        assert_eq!(ctx.owners().await, ["a #1 applied_unmerged"]);
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        first.merge().await.unwrap();
        ctx.until("the merge frees it", async || ctx.owners().await.is_empty()).await;
    });
}

#[test]
fn what_was_only_planned_is_forgotten_at_the_close() {
    run_test(strict(&["a"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a"]).await;
        first.close().unwrap();
        ctx.quiet().await;
        assert!(ctx.owners().await.is_empty());
    });
}

#[test]
fn what_was_merged_without_being_applied_keeps_others_out() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a", "b"]).await;
        ctx.say(&first, "atlantis apply -d a").await.is("apply", "success");
        first.merge().await.unwrap();
        let said = ctx.next(&first).await;
        said.is_message("owes").has("Merged but not applied: 1 project").has("dir `b`").has_not("dir `a`");
        assert_eq!(ctx.owners().await, ["b #1 merged_unapplied"]);
        let second = ctx.open_dirs("second", &["b"]).await;
        ctx.next(&second).await.is("plan", "success").has("a preview: #1 must be applied first");
        ctx.say(&second, "atlantis apply")
            .await
            .is("apply", "failure")
            .because("locked")
            .has("#1")
            .has("it is merged but not applied");
        ctx.say(&first, "atlantis unlock --accept-drift -m \"applied by hand\"")
            .await
            .is_message("unlocked")
            .has("dir `b`")
            .has("Why: applied by hand.");
        assert!(ctx.owners().await.is_empty());
        // It was opened before the merge of the same line.
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn what_the_pull_request_does_not_change_is_a_preview() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a"]).await;
        let said = ctx.say(&first, "atlantis plan -d b").await;
        said.is("plan", "success").has("does not change `b/default`, so its plan is a preview");
        assert!(!said.text.contains("atlantis apply"), "{}", said.text);
        ctx.say(&first, "atlantis apply -d b").await.is("apply", "failure").because("not_permitted").has("preview");
        ctx.say(&first, "atlantis apply -d a").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn owners_outlive_a_push_and_a_restart() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.push(&first, "b/main.tf", &terraform("b", "2")).await;
        ctx.next(&first).await.is("plan", "success");
        ctx.server.restart().await;
        assert_eq!(ctx.owners().await, ["a #1 applied_unmerged"]);
        let second = ctx.planned_dirs("second", &["a"]).await;
        ctx.say(&second, "atlantis apply").await.is("apply", "failure").because("locked");
    });
}
