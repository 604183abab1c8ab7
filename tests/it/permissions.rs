//! Permissions for commands and projects: by login and team, in comments and on pages.

use crate::support::*;
use std::collections::BTreeMap;
use tidelock_forge::{CommitStatus, Fault, Gate};

/// Two projects, and these rules.
fn guarded(rules: &str) -> Setup {
    let rules = workflow(rules, &[PLANNED], &["echo applied >> {tmp}/applied"]);
    Setup::projects(&["conf/pay", "conf/net"]).repos_yaml(&rules)
}

/// Returns the number of requests about memberships of this team.
fn asked(ctx: &Ctx, team: &str) -> usize {
    ctx.forge.requests().iter().filter(|request| request.path.contains(&format!("/teams/{team}/memberships/"))).count()
}

#[test]
fn only_those_whom_the_rules_name_apply_a_project() {
    let rules = "allowed_users: ['*:plan', 'bob:apply:conf/pay']\nallowed_teams: ['sre:apply']";
    run_test(guarded(rules), async |ctx| {
        ctx.forge.set_team("acme", "sre", &["carol"]);
        let pull = ctx.open_dirs("change", &["conf/pay", "conf/net"]).await;
        ctx.next(&pull).await.is("plan", "success");
        let planned = ["atlantis/plan", "atlantis/plan: conf/net/default", "atlantis/plan: conf/pay/default"];
        for context in planned {
            ctx.status(&pull, context, "success", "").await;
        }
        let statuses = || {
            let statuses = ctx.repo.statuses_of(&pull.head_commit().unwrap()).unwrap();
            let told = |(context, status): (String, CommitStatus)| (context, (status.state, status.description));
            statuses.into_iter().map(told).collect::<BTreeMap<_, _>>()
        };
        let before = statuses();
        assert!(before.keys().eq(planned), "{before:?}");
        let said = ctx.say_as("alice", &pull, "atlantis apply -d conf/net").await;
        said.is("apply", "error").because("not_permitted").has("alice may not use `apply`: ");
        said.has("let only bob, team sre do so").has("`atlantis apply`");
        ctx.say_as("alice", &pull, "atlantis version").await.is("version", "error").has("let nobody do so");
        // A refused command changes nothing that others see, but that nothing is applied yet.
        ctx.status(&pull, "atlantis/apply", "pending", "0/2 applied").await;
        ctx.quiet().await;
        let mut after = statuses();
        after.remove("atlantis/apply");
        assert_eq!(after, before);
        assert_eq!(ctx.lines("applied"), 0);

        let said = ctx.say_as("bob", &pull, "atlantis apply").await;
        let mut outcomes = said.outcomes();
        outcomes.sort();
        assert_eq!(outcomes, [("conf/net".into(), "failure".into()), ("conf/pay".into(), "success".into())]);
        said.has("bob may not use `apply` on `conf/net/default`").has("let only team sre do so");
        said.has("`atlantis apply -d conf/net`");
        assert_eq!(ctx.lines("applied"), 1);
        ctx.say_as("carol", &pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 2);
    });
}

#[test]
fn a_membership_is_remembered_and_a_refusal_asks_again() {
    run_test(guarded("allowed_users: ['*:plan', '*:version']\nallowed_teams: ['sre:apply']"), async |ctx| {
        ctx.forge.set_team("acme", "sre", &[]);
        ctx.forge.invite("acme", "sre", "bob");
        let pull = ctx.open_dirs("change", &["conf/pay", "conf/net"]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say_as("bob", &pull, "atlantis apply -d conf/pay").await.is("apply", "error").because("not_permitted");
        let refused = asked(ctx, "sre");
        assert_eq!(refused, 1);
        ctx.forge.set_team("acme", "sre", &["bob"]);
        ctx.say_as("bob", &pull, "atlantis apply -d conf/pay").await.is("apply", "success");
        ctx.say_as("bob", &pull, "atlantis apply -d conf/net").await.is("apply", "success");
        assert_eq!(asked(ctx, "sre"), refused + 1);
    });
}

#[test]
fn the_host_is_asked_about_so_many_teams_for_a_command() {
    let teams: Vec<String> = (0..60).map(|number| format!("'t{number}:apply'")).collect();
    let rules = format!("allowed_users: ['*:plan']\nallowed_teams: [{}]", teams.join(", "));
    run_test(guarded(&rules), async |ctx| {
        let pull = ctx.open_dirs("change", &["conf/pay"]).await;
        ctx.next(&pull).await.is("plan", "success");
        let said = ctx.say_as("bob", &pull, "atlantis apply").await;
        said.is("apply", "error").has("the host is asked about 50 teams for a command, and there are more");
        let asked = ctx.forge.requests().iter().filter(|request| request.path.contains("/memberships/")).count();
        assert_eq!(asked, 50);
    });
}

#[test]
fn no_answer_about_a_team_is_no_yes() {
    run_test(guarded("allowed_users: ['*:plan']\nallowed_teams: ['sre:apply']"), async |ctx| {
        ctx.forge.set_team("acme", "sre", &["bob"]);
        let pull = ctx.open_dirs("change", &["conf/pay"]).await;
        ctx.next(&pull).await.is("plan", "success");
        let fault = Fault::Status(403, "{}".to_owned(), Vec::new());
        ctx.forge.fail_next("GET", "/api/v3/orgs/**", fault, 1).unwrap();
        let said = ctx.say_as("bob", &pull, "atlantis apply").await;
        said.is("apply", "error").has("did not say in which teams bob is").has("`atlantis apply`");
        assert_eq!(ctx.lines("applied"), 0);
        ctx.say_as("bob", &pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_cancel_that_waits_for_the_host_leaves_alone_what_is_said_after_it() {
    run_test(guarded("allowed_users: ['*:plan', '*:version']\nallowed_teams: ['sre:cancel']"), async |ctx| {
        ctx.forge.set_team("acme", "sre", &["bob"]);
        let pull = ctx.open_dirs("change", &["conf/pay"]).await;
        ctx.next(&pull).await.is("plan", "success");
        let gate = Gate::new();
        ctx.forge.fail_next("GET", "/api/v3/orgs/**", Fault::Hold(gate.clone()), 1).unwrap();
        pull.comment("bob", "atlantis cancel").unwrap();
        gate.reached(1).await;
        let held = Gate::new();
        let path = format!("**/pulls/{}", pull.number());
        ctx.forge.fail_next("GET", &path, Fault::Hold(held.clone()), 1).unwrap();
        pull.comment("alice", "atlantis plan").unwrap();
        held.reached(1).await;
        gate.open();
        ctx.next(&pull).await.is_message("cancelled").has("Nothing to cancel");
        held.open();
        ctx.next(&pull).await.is("plan", "success");
    });
}

#[test]
fn a_cancel_that_waits_for_the_host_is_answered_once_by_the_next_start() {
    run_test(guarded("allowed_users: ['*:plan']\nallowed_teams: ['sre:cancel']"), async |ctx| {
        ctx.forge.set_team("acme", "sre", &["bob"]);
        let pull = ctx.open_dirs("change", &["conf/pay"]).await;
        ctx.next(&pull).await.is("plan", "success");
        let gate = Gate::new();
        ctx.forge.fail_next("GET", "/api/v3/orgs/**", Fault::Hold(gate.clone()), 2).unwrap();
        pull.comment("bob", "atlantis cancel").unwrap();
        gate.reached(1).await;
        // The next start does not wait for the host either.
        ctx.server.restart().await;
        gate.reached(2).await;
        gate.open();
        ctx.next(&pull).await.is_message("cancelled").has("Nothing to cancel");
        // A duplicate comment would be read here.
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
    });
}

#[test]
fn an_unpermitted_plan_leaves_the_plans_of_others_alone() {
    run_test(guarded("allowed_users: ['alice', 'bob:plan:conf/net', 'bob:apply']"), async |ctx| {
        let pull = ctx.open_dirs("change", &["conf/pay", "conf/net"]).await;
        ctx.next(&pull).await.is("plan", "success");
        let said = ctx.say_as("bob", &pull, "atlantis plan").await;
        assert_eq!(said.outcomes().len(), 2);
        said.has("bob may not use `plan` on `conf/pay/default`").has("let only alice do so");
        ctx.status(&pull, "atlantis/plan", "success", "").await;
        ctx.say_as("bob", &pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 2);
    });
}

#[test]
fn who_may_not_plan_causes_no_plan_by_a_push_either() {
    run_test(guarded("allowed_users: ['alice']"), async |ctx| {
        let files = [("conf/pay/main.tf", terraform("conf/pay", "evil"))];
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let pull = ctx.open_as("bob", "evil", &files, Default::default()).await;
        ctx.status(&pull, "atlantis/plan", "failure", "bob may not use `plan`").await;
        assert!(ctx.locks().await.is_empty());
        ctx.say_as("alice", &pull, "atlantis plan").await.is("plan", "success");
        ctx.say_as("bob", &pull, "atlantis unlock").await.is_message("not_permitted").has("let only alice do so");
        ctx.say_as("bob", &pull, "atlantis cancel").await.is_message("not_permitted");
        assert_eq!(ctx.locks().await.len(), 1);
        ctx.say_as("alice", &pull, "atlantis unlock").await.is_message("unlocked");
    });
}

#[test]
fn a_pull_request_narrows_the_rules_where_it_may_and_never_widens_them() {
    let file = "version: 3\nprojects:\n  - dir: conf/pay\n    allowed_users: ['*', 'alice', 'dave']\n  - name: conf/pay\n    dir: conf/net\n    allowed_users: [alice]\n";
    let rules = "allowed_overrides: [allowed_users]\nallowed_users: ['*:plan', 'bob:apply:conf/pay', 'alice:apply']";
    run_test(guarded(rules).file("atlantis.yaml", file), async |ctx| {
        let pull = ctx.open_dirs("change", &["conf/pay", "conf/net"]).await;
        ctx.next(&pull).await.is("plan", "success");
        // A name that looks like the directory that bob may apply gives him nothing, and no star of the file does.
        ctx.say_as("bob", &pull, "atlantis apply -p conf/pay").await.because("not_permitted").is("apply", "failure");
        ctx.say_as("dave", &pull, "atlantis apply -d conf/pay").await.because("not_permitted").has("`repos.yaml`");
        assert_eq!(ctx.lines("applied"), 0);
        ctx.say_as("bob", &pull, "atlantis apply -d conf/pay").await.is("apply", "success");
        ctx.say_as("alice", &pull, "atlantis apply -p conf/pay").await.is("apply", "success");
    });
    run_test(guarded("allowed_users: ['*']").file("atlantis.yaml", file), async |ctx| {
        let pull = ctx.open_dirs("change", &["conf/pay"]).await;
        ctx.next(&pull).await.is("plan", "error").has("not allowed to set `allowed_users`");
    });
}

#[test]
fn the_team_allowlist_of_atlantis_holds() {
    let setup = Setup::one_project()
        .steps(&[PLANNED], &["echo applied >> {tmp}/applied"])
        .flags(&["--gh-team-allowlist=*:plan, SRE:apply"]);
    run_test(setup, async |ctx| {
        ctx.forge.set_team("acme", "sre", &["bob"]);
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "error").because("not_permitted").has("`--gh-team-allowlist`").has("team sre");
        ctx.say_as("bob", &pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_lock_is_deleted_on_a_page_by_those_who_may() {
    let login = |name: &str| {
        use base64::Engine as _;
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{name}:a long secret")))
    };
    let setup = |rules: &str| {
        guarded(rules)
            .flags(&["--web-basic-auth"])
            .variable("ATLANTIS_WEB_PASSWORD", "a long secret")
            .variable("ATLANTIS_WEB_USERNAME", "pages")
    };
    for (rules, status) in [
        ("allowed_users: [alice]\nallowed_teams: [sre]", 403),
        ("allowed_users: [alice, 'pages:unlock:conf/pay']", 200),
    ] {
        run_test(setup(rules), async |ctx| {
            let pull = ctx.open_dirs("change", &["conf/pay"]).await;
            ctx.next(&pull).await.is("plan", "success");
            let key = "acme%2Finfra%2Fconf%2Fpay%2Fdefault%2F";
            let headers = [("authorization", login("pages"))];
            let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let (answered, text) = ctx.request("DELETE", &format!("/locks?id={key}"), &headers).await;
            assert_eq!(answered, status, "{text}");
            if status == 403 {
                assert!(
                    text.contains("pages may not use `unlock` on `conf/pay/default`") && text.contains("alice"),
                    "{text}"
                );
                ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
            } else {
                ctx.next(&pull).await.is_message("discarded");
            }
        });
    }
}

/// With `abort_on_execution_order_fail`, a project that the person may not apply counts as failed in its own group.
#[test]
fn a_refused_project_holds_later_groups_and_no_earlier_one() {
    let config = "version: 3\nabort_on_execution_order_fail: true\nprojects:\n  - {dir: first}\n  - {dir: middle, execution_order_group: 1}\n  \
                  - {dir: last, execution_order_group: 2}\n";
    let rules = "allowed_users: ['*:plan', 'bob:apply:first', 'bob:apply:last']\nallowed_teams: ['sre:apply']";
    let steps = workflow(rules, &[PLANNED], &["echo $REPO_REL_DIR >> {tmp}/applied"]);
    let setup = Setup::projects(&["first", "middle", "last"]).file("atlantis.yaml", config).repos_yaml(&steps);
    run_test(setup, async |ctx| {
        ctx.forge.set_team("acme", "sre", &["carol"]);
        let pull = ctx.open_dirs("change", &["first", "middle", "last"]).await;
        ctx.next(&pull).await.is("plan", "success");
        let said = ctx.say_as("bob", &pull, "atlantis apply").await;
        let mut outcomes = said.outcomes();
        outcomes.sort();
        let expected = [("first", "success"), ("middle", "failure")];
        assert_eq!(outcomes, expected.map(|(dir, ended)| (dir.to_owned(), ended.to_owned())));
        said.has("bob may not use `apply` on `middle/default`").has("an earlier group failed: ");
        ctx.say_as("carol", &pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(std::fs::read_to_string(ctx.tmp.join("applied")).unwrap(), "first\nmiddle\nlast\n");
    });
}
