//! Plans of opened and pushed pull requests, and cases without one.

use crate::support::*;
use insta::assert_snapshot;
use tidelock_forge::{OpenOptions, Pull};

#[test]
fn opening_plans_what_changed_and_says_so() {
    run_test(Setup::projects(&["network", "dns"]), async |ctx| {
        let pull = ctx.open_dirs("ranges", &["network"]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success");
        assert_snapshot!(said.filtered(), @r#"
        ### Plan for dir `network` · workspace `default`

        **Plan: 1 to add, 0 to change, 0 to destroy** · commit COMMIT on top of `main` COMMIT · Terraform VERSION · TIME

        | | |
        |---|---|
        | **create** | `terraform_data.this` |

        <details><summary>Full plan (14 lines)</summary>

        ```diff
        Terraform used the selected providers to generate the following execution
        plan. Resource actions are indicated with the following symbols:
          + create

        Terraform will perform the following actions:

          # terraform_data.this will be created
        +   resource "terraform_data" "this" {
        +       id     = (known after apply)
        +       input  = "ranges"
        +       output = (known after apply)
            }

        Plan: 1 to add, 0 to change, 0 to destroy.
        ```

        </details>

        To apply: `atlantis apply -d network` · to plan again: `atlantis plan -d network` · to drop plan and lock: `atlantis unlock`

        [Log and history](http://tidelock.test/jobs/ID) · This project is now locked by this pull request ([lock](http://tidelock.test/lock?id=127.0.0.1%2Facme%2Finfra%2Fnetwork%2Fdefault%2F)).
        "#);
        ctx.status(&pull, "atlantis/plan", "success", "1 to add, 0 to change, 0 to destroy").await;
        ctx.status(&pull, "atlantis/plan: network/default", "success", "1 to add").await;
        ctx.nothing_pending(&pull, &[]).await;
        assert_eq!(ctx.locks().await, ["acme/infra/network/default/"]);
    });
}

/// The branch moves between the event and the checkout, and the host has not noticed yet.
#[test]
fn the_commit_of_the_event_is_planned_although_its_branch_has_moved_on() {
    let setup = Setup::one_project().steps(&["git rev-list HEAD > {tmp}/planned", PLANNED], &[]);
    run_test(setup, async |ctx| {
        ctx.forge.pause_webhooks(true);
        let pull = ctx.open_input("first", "2").await;
        let head = pull.head_commit().unwrap();
        let tip = ctx.repo.push_unnoticed("first", &[("main.tf", Some("# 3\n"))]).await.unwrap();
        assert_ne!(head, tip);
        ctx.forge.pause_webhooks(false);
        let said = ctx.next(&pull).await;
        said.is("plan", "success");
        assert_eq!(said.marker["head"], head.as_str());
        let planned = std::fs::read_to_string(ctx.tmp.join("planned")).unwrap();
        assert!(planned.contains(&head) && !planned.contains(&tip), "{head} without {tip}: {planned}");
    });
}

#[test]
fn a_push_replaces_the_plan_that_runs() {
    run_test(Setup::one_project().steps(&[&gate("plan"), PLANNED], &[]), async |ctx| {
        let pull = ctx.open_input("first", "2").await;
        ctx.reached("plan", 1).await;
        let before = pull.head_commit().unwrap();
        let head = ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
        ctx.reached("plan", 2).await;
        ctx.open_gate("plan");
        let said = ctx.next(&pull).await;
        said.is("plan", "success");
        assert_eq!(said.marker["head"], head.as_str());
        ctx.status(&pull, "atlantis/plan", "success", "1 to add").await;
        let superseded = format!("superseded by {}", &head[..7]);
        ctx.status_of(&before, "atlantis/plan", "failure", &superseded).await;
        ctx.nothing_pending_on(&before).await;
    });
}

/// Pushes while a plan of this pull request runs that bob asked for with this comment, so that the plan is repeated on the new head. Returns
/// that head.
async fn pushed_while_planning(ctx: &Ctx, pull: &Pull, comment: &str) -> String {
    // The first plan fails at once, so that only the requested one waits.
    ctx.next(pull).await.is("plan", "error");
    std::fs::write(ctx.tmp.join("unready"), "#!/bin/sh\n").unwrap();
    make_executable(&ctx.tmp.join("unready"));
    pull.comment("bob", comment).unwrap();
    ctx.reached("plan", 1).await;
    let head = ctx.push(pull, "main.tf", &terraform("root", "3")).await;
    ctx.reached("plan", 2).await;
    head
}

/// Waits for a plan of this head with this trigger.
async fn planned(ctx: &Ctx, pull: &Pull, head: &str, trigger: &str) {
    let said = ctx.next(pull).await;
    said.is("plan", "success");
    assert_eq!((&said.marker["head"], &said.marker["trigger"]), (&head.into(), &trigger.into()));
}

fn planned_when_ready() -> Setup {
    Setup::one_project().steps(&["{tmp}/unready", &gate("plan"), PLANNED], &[])
}

#[test]
fn a_plan_that_was_asked_for_is_run_again_on_the_new_head() {
    run_test(planned_when_ready(), async |ctx| {
        let pull = ctx.open_input("first", "2").await;
        let head = pushed_while_planning(ctx, &pull, "atlantis plan -d . -- -var x=y").await;
        ctx.open_gate("plan");
        planned(ctx, &pull, &head, "comment").await;
        // The push is planned as well: the command named one project only.
        planned(ctx, &pull, &head, "autoplan").await;
        ctx.nothing_pending(&pull, &[]).await;
    });
}

#[test]
fn a_push_that_a_whole_plan_has_covered_is_answered_without_another() {
    run_test(planned_when_ready(), async |ctx| {
        let pull = ctx.open_input("first", "2").await;
        let head = pushed_while_planning(ctx, &pull, "atlantis plan").await;
        ctx.open_gate("plan");
        planned(ctx, &pull, &head, "comment").await;
        let covered = ctx.next(&pull).await;
        covered.is_message("superseded").has(&format!("Commit {} is planned already", &head[..7]));
        ctx.nothing_pending(&pull, &[]).await;
        assert_eq!(ctx.lines("plan.reached"), 2);
    });
}

#[test]
fn a_delivery_that_an_automatic_plan_has_covered_is_not_answered() {
    run_test(planned_when_ready().flags(&["--allow-draft-prs"]), async |ctx| {
        let options = OpenOptions { draft: true, ..OpenOptions::default() };
        let pull = ctx.open_as("alice", "draft", &[("main.tf", &terraform("root", "2"))], options).await;
        let head = pushed_while_planning(ctx, &pull, "atlantis plan -d .").await;
        pull.ready().unwrap();
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        ctx.open_gate("plan");
        planned(ctx, &pull, &head, "comment").await;
        planned(ctx, &pull, &head, "autoplan").await;
        // The next command waits for the delivery: an answer to it would come first.
        pull.comment("bob", "atlantis plan").unwrap();
        planned(ctx, &pull, &head, "comment").await;
        assert_eq!(ctx.lines("plan.reached"), 4);
    });
}

#[test]
fn without_autoplan_a_superseded_plan_names_the_next_command() {
    let setup = Setup::one_project().steps(&[&gate("plan"), PLANNED], &[]).flags(&["--disable-autoplan"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("first", "2").await;
        pull.comment("alice", "atlantis plan -d .").unwrap();
        ctx.reached("plan", 1).await;
        let before = pull.head_commit().unwrap();
        let head = ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
        let said = ctx.next(&pull).await;
        said.is_message("superseded").has(&format!("superseded by commit {}", &head[..7])).has("`atlantis plan -d .`");
        ctx.nothing_pending_on(&before).await;
        ctx.open_gate("plan");
        ctx.say(&pull, "atlantis plan -d .").await.is("plan", "success");
    });
}

#[test]
fn drafts_are_planned_when_they_are_ready() {
    run_test(Setup::one_project().steps(&[PLANNED], &[]), async |ctx| {
        let options = OpenOptions { draft: true, ..OpenOptions::default() };
        let pull = ctx.open_as("alice", "draft", &[("main.tf", &terraform("root", "2"))], options).await;
        ctx.quiet().await;
        assert!(pull.bot_comments().unwrap().is_empty() && pull.statuses().unwrap().is_empty());
        pull.ready().unwrap();
        ctx.next(&pull).await.is("plan", "success");
    });
}

#[test]
fn forks_are_refused_until_an_operator_allows_them() {
    run_test(Setup::one_project().steps(&["touch {tmp}/ran", PLANNED], &[]), async |ctx| {
        let options = OpenOptions { fork: Some("mallory".to_owned()), ..OpenOptions::default() };
        let pull = ctx.open_as("mallory", "evil", &[("main.tf", &terraform("root", "2"))], options).await;
        ctx.next(&pull).await.is_message("fork_refused").has("--allow-fork-prs");
        ctx.say_as("bob", &pull, "atlantis plan").await.is_message("fork_refused");
        ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
        ctx.quiet().await;
        assert!(!ctx.tmp.join("ran").exists());
        ctx.server.flag("--allow-fork-prs");
        ctx.server.restart().await;
        ctx.say_as("bob", &pull, "atlantis plan").await.is("plan", "success");
    });
}

#[test]
fn a_fork_inside_the_organization_is_a_fork() {
    let setup = Setup::one_project().steps(&["touch {tmp}/ran", PLANNED], &["touch {tmp}/ran"]);
    run_test(setup, async |ctx| {
        let fork_name = Some("infra-eve".to_owned());
        let options = OpenOptions { fork: Some("acme".to_owned()), fork_name, ..OpenOptions::default() };
        let pull = ctx.open_as("mallory", "evil", &[("main.tf", &terraform("root", "2"))], options).await;
        ctx.next(&pull).await.is_message("fork_refused").has("--allow-fork-prs");
        for command in ["atlantis plan", "atlantis apply", "atlantis unlock"] {
            ctx.say_as("bob", &pull, command).await.is_message("fork_refused");
        }
        ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
        ctx.quiet().await;
        assert!(!ctx.tmp.join("ran").exists());
    });
}

#[test]
fn a_label_turns_autoplan_off() {
    let setup = Setup::one_project().steps(&[PLANNED], &[]).flags(&["--disable-autoplan-label=no-plan"]);
    run_test(setup, async |ctx| {
        let options = OpenOptions { labels: vec!["no-plan".to_owned()], ..OpenOptions::default() };
        let pull = ctx.open_as("alice", "quiet", &[("main.tf", &terraform("root", "2"))], options).await;
        ctx.quiet().await;
        assert!(pull.statuses().unwrap().is_empty());
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
    });
}

#[test]
fn a_pull_request_without_projects_gets_statuses_and_no_comment() {
    run_test(Setup::one_project(), async |ctx| {
        let pull = ctx.open("readme", &[("README.md", "Nothing to plan.\n")]).await;
        ctx.status(&pull, "atlantis/plan", "success", "0/0 projects planned").await;
        ctx.status(&pull, "atlantis/policy_check", "success", "0/0 projects checked").await;
        ctx.status(&pull, "atlantis/apply", "success", "0/0 applied").await;
        ctx.say(&pull, "atlantis plan").await.is_message("no_projects");
    });
}

#[test]
fn a_delivery_that_comes_twice_is_answered_once() {
    run_test(Setup::one_project().steps(&["echo ran >> {tmp}/runs", PLANNED], &[]), async |ctx| {
        let pull = ctx.open_input("first", "2").await;
        ctx.next(&pull).await;
        ctx.say(&pull, "atlantis plan -d .").await.is("plan", "success");
        for delivery in ctx.forge.deliveries() {
            ctx.forge.redeliver(delivery.id).unwrap();
        }
        ctx.quiet().await;
        assert!(ctx.forge.deliveries().iter().all(|delivery| delivery.status == Some(200)));
        assert_eq!(ctx.lines("runs"), 2);
        // The end of the test fails if there is one comment too many; this one comes last.
        ctx.say(&pull, "atlantis help").await.is_message("help");
    });
}

#[test]
fn own_comments_and_chatter_are_never_heard() {
    run_test(Setup::one_project().steps(&[PLANNED], &[]), async |ctx| {
        let pull = ctx.open_input("first", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        // The account of the server itself; the forge counts it among its comments.
        pull.comment(ctx.forge.bot(), "atlantis plan\n<!-- tidelock:{\"v\":1} -->").unwrap();
        assert_eq!(ctx.next(&pull).await.text, "atlantis plan");
        // A command of one line, which only its author distinguishes from a person's.
        pull.comment(ctx.forge.bot(), "atlantis help").unwrap();
        ctx.pass_over(&pull);
        for chatter in ["looks good", "we should run atlantis plan here", "> atlantis plan"] {
            pull.comment("bob", chatter).unwrap();
        }
        ctx.quiet().await;
        // GitHub's delivery when somebody edits a comment so that it becomes a command.
        let created = ctx.forge.deliveries().into_iter().rfind(|delivery| delivery.event == "issue_comment").unwrap();
        let edited = created.body.replace(r#""action":"created""#, r#""action":"edited""#);
        let edited = edited.replace("> atlantis plan", "atlantis plan");
        assert!(edited.contains(r#""body":"atlantis plan""#) && edited != created.body);
        assert_eq!(ctx.deliver("issue_comment", &edited).await, 200);
        ctx.quiet().await;
        ctx.say_as("bob", &pull, "atlantis aply").await.is_message("unknown_command").has("atlantis apply");
    });
}

#[test]
fn a_repository_that_is_not_allowed_is_told_so_where_that_is_wanted() {
    let setup = Setup::one_project().steps(&["touch {tmp}/ran", PLANNED], &[]);
    let flags = ["--repo-allowlist=127.0.0.1/acme/other", "--silence-allowlist-errors=false"];
    run_test(setup.flags(&flags), async |ctx| {
        let pull = ctx.open_input("first", "2").await;
        ctx.next(&pull).await.is_message("not_allowlisted").has("--repo-allowlist");
        ctx.say(&pull, "atlantis plan").await.is_message("not_allowlisted");
        pull.comment("bob", "just talking").unwrap();
        ctx.quiet().await;
        assert!(!ctx.tmp.join("ran").exists() && pull.statuses().unwrap().is_empty());
    });
}

/// Leaves files in a project's directory that git does not have, as a plan does.
const LEAVE: &str =
    "mkdir -p .terraform/modules && touch .terraform/modules/x generated.tf lambda.zip .terraform.lock.hcl";

#[test]
fn a_project_whose_directory_was_deleted_after_a_plan_is_planned_no_more() {
    let config = "version: 3\nprojects:\n- dir: gone/a\n- dir: stays\n";
    let setup = Setup::projects(&["gone/a", "stays"]).file("atlantis.yaml", config);
    run_test(setup.steps(&[LEAVE, PLANNED], &["true"]), async |ctx| {
        let pull = ctx.open_dirs("change", &["gone/a", "stays"]).await;
        let said = ctx.next(&pull).await;
        assert_eq!(said.outcomes(), [("gone/a".into(), "success".into()), ("stays".into(), "success".into())]);
        pull.push(&[("gone/a/main.tf", None)]).await.unwrap();
        let said = ctx.next(&pull).await;
        assert_eq!(said.outcomes(), [("stays".into(), "success".into())]);
        ctx.status(&pull, "atlantis/plan", "success", "1 to add").await;
        ctx.say(&pull, "atlantis plan -d gone/a").await.has("`gone/a` does not exist in this pull request");
        assert_eq!(ctx.locks().await, ["acme/infra/stays/default/"]);
    });
}

#[test]
fn a_project_that_was_renamed_after_a_plan_is_planned_under_its_new_name_only() {
    // The first name was never on the base branch; a pattern outside of the directory still touches it.
    let config = "version: 3\nprojects:\n- dir: old\n  autoplan: {when_modified: ['../**/*.tf']}\n- dir: new\n";
    let setup = Setup::repo(&[("README.md", "x"), ("atlantis.yaml", config)]);
    run_test(setup.steps(&[LEAVE, PLANNED], &["true"]), async |ctx| {
        let pull = ctx.open_dirs("change", &["old"]).await;
        assert_eq!(ctx.next(&pull).await.outcomes(), [("old".into(), "success".into())]);
        let text = ctx.fill(&terraform("old", "change"));
        pull.push(&[("old/main.tf", None), ("new/main.tf", Some(&text))]).await.unwrap();
        assert_eq!(ctx.next(&pull).await.outcomes(), [("new".into(), "success".into())]);
        // And back again.
        pull.push(&[("new/main.tf", None), ("old/main.tf", Some(&text))]).await.unwrap();
        assert_eq!(ctx.next(&pull).await.outcomes(), [("old".into(), "success".into())]);
    });
}

#[test]
fn a_local_state_outlives_its_directorys_deletion_and_keeps_no_project_alive() {
    let main = "resource \"terraform_data\" \"this\" {}\n";
    run_test(Setup::repo(&[("a/main.tf", "# empty\n"), ("b/main.tf", "# empty\n")]), async |ctx| {
        let pull = ctx.open("change", &[("a/main.tf", main), ("b/main.tf", main)]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply -d a").await.is("apply", "success");
        let state = ctx.server.data("repos/acme/infra/1/default/a/terraform.tfstate");
        let before = std::fs::read_to_string(&state).unwrap();
        pull.push(&[("a/main.tf", None)]).await.unwrap();
        assert_eq!(ctx.next(&pull).await.outcomes(), [("b".into(), "success".into())]);
        assert_eq!(std::fs::read_to_string(&state).unwrap(), before);
        pull.push(&[("a/main.tf", Some(main))]).await.unwrap();
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("No changes");
        assert_eq!(said.outcomes().len(), 2);
    });
}

#[test]
fn a_directory_that_a_hook_makes_is_a_project_although_git_has_it_not() {
    let config = "version: 3\nprojects:\n- dir: made\n  autoplan: {when_modified: ['../*.json']}\n";
    let keys = "pre_workflow_hooks:\n  - run: mkdir -p made && echo '# made' > made/main.tf\n";
    let setup = Setup::repo(&[("atlantis.yaml", config)]).repos_yaml(&workflow(keys, &[PLANNED], &["true"]));
    run_test(setup, async |ctx| {
        let pull = ctx.open("change", &[("stacks.json", "{}")]).await;
        assert_eq!(ctx.next(&pull).await.outcomes(), [("made".into(), "success".into())]);
        ctx.push(&pull, "stacks.json", "[]").await;
        assert_eq!(ctx.next(&pull).await.outcomes(), [("made".into(), "success".into())]);
    });
}

#[test]
fn other_repositories_of_an_organizations_webhook_hear_nothing_and_their_deliveries_succeed() {
    let setup = Setup::one_project().steps(&["touch {tmp}/ran", PLANNED], &[]);
    run_test(setup.flags(&["--repo-allowlist=127.0.0.1/acme/other"]), async |ctx| {
        let pull = ctx.open_input("first", "2").await;
        ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
        let said = pull.comment("alice", "atlantis plan").unwrap();
        pull.enqueue(None).await.unwrap();
        ctx.quiet().await;
        let answered = ctx.forge.deliveries();
        let odd: Vec<_> = answered.iter().filter(|one| one.status != Some(200)).collect();
        assert!(odd.is_empty(), "{odd:#?}");
        assert!(answered.last().unwrap().answer.contains("--repo-allowlist"), "{answered:#?}");
        assert!(!ctx.tmp.join("ran").exists() && pull.statuses().unwrap().is_empty());
        assert!(pull.reactions(said).unwrap().is_empty());
    });
}
