//! Nothing is applied in a frozen repository, nor in a window of its configuration.

use crate::support::*;
use jiff::{Timestamp, ToSpan};

/// One project and these rules.
fn guarded(rules: &str) -> Setup {
    Setup::one_project()
        .repos_yaml(&workflow(rules, &[PLANNED], &["echo applied >> {tmp}/applied"]))
        .flags(&["--allow-commands=all"])
}

/// Formats a window of dates, from and to this many hours from now.
fn window(from: i32, to: i32) -> String {
    let written = |hours: i32| (Timestamp::now() + hours.hours()).strftime("%Y-%m-%d %H:%M").to_string();
    format!("from: '{}', to: '{}'", written(from), written(to))
}

#[test]
fn a_frozen_repository_applies_nothing_until_it_is_lifted() {
    run_test(guarded(""), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say_as("bob", &pull, "atlantis freeze -m mine").await.is_message("not_permitted").has("administrators");
        let said = ctx.say(&pull, "atlantis freeze -m 'release *week*'").await;
        said.is_message("frozen").has("alice froze acme/infra at").has("`atlantis unfreeze`");
        ctx.say(&pull, "atlantis freeze -m again").await.is_message("frozen").has("Already frozen").has("release");
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").because("frozen").has("alice froze acme/infra").has("`atlantis unfreeze`");
        let said = ctx.say(&pull, "atlantis apply --force -m 'I must'").await;
        said.is("apply", "failure").because("frozen");
        ctx.say(&pull, "atlantis import -d . a.b c").await.is("import", "failure").because("frozen");
        ctx.say(&pull, "atlantis state -d . rm a.b").await.is("state_rm", "failure").because("frozen");
        ctx.say(&pull, "atlantis version").await.is("version", "success");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        assert_eq!(ctx.lines("applied"), 0);

        let freezes = ctx.json("/api/freezes").await;
        assert_eq!(freezes["Freezes"][0]["Repo"], "127.0.0.1/acme/infra");
        assert_eq!((&freezes["Freezes"][0]["User"], &freezes["Freezes"][0]["Pull"]), (&"alice".into(), &1.into()));
        let (_, page) = ctx.request("GET", "/", &[]).await;
        assert!(page.contains("1 repository is frozen") && page.contains("release *week*"), "{page}");

        // It survives a restart, and is lifted by people with the right.
        ctx.server.restart().await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").because("frozen");
        ctx.say_as("bob", &pull, "atlantis unfreeze").await.is_message("not_permitted");
        ctx.say(&pull, "atlantis unfreeze").await.is_message("unfrozen").has("alice removed this freeze");
        ctx.say(&pull, "atlantis unfreeze").await.is_message("unfrozen").has("Nothing was frozen");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_freeze_is_lifted_on_the_page_by_its_own_origin_only() {
    run_test(guarded(""), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis freeze -m release").await.is_message("frozen");
        let path = "/freezes/lift?repo=127.0.0.1%2Facme%2Finfra";
        assert_eq!(ctx.request("POST", path, &[("origin", "https://evil.example")]).await.0, 403);
        assert_eq!(ctx.request("POST", path, &[]).await.0, 200);
        assert_eq!(ctx.request("POST", path, &[]).await.0, 404);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_freeze_is_lifted_on_the_page_by_those_who_may_unfreeze() {
    let login = |name: &str| {
        use base64::Engine as _;
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{name}:a long secret")))
    };
    for (right, status) in [("alice:unfreeze", 403), ("pages:unfreeze", 200)] {
        let setup = guarded(&format!("allowed_users: ['*', 'alice:freeze', '{right}']"))
            .flags(&["--web-basic-auth"])
            .variable("ATLANTIS_WEB_PASSWORD", "a long secret")
            .variable("ATLANTIS_WEB_USERNAME", "pages");
        run_test(setup, async |ctx| {
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull).await.is("plan", "success");
            ctx.say(&pull, "atlantis freeze -m release").await.is_message("frozen");
            let path = "/freezes/lift?repo=127.0.0.1%2Facme%2Finfra";
            let (answered, text) = ctx.request("POST", path, &[("authorization", login("pages").as_str())]).await;
            assert_eq!(answered, status, "{text}");
            assert!(status == 200 || text.contains("pages may not use `unfreeze`"), "{text}");
        });
    }
}

#[test]
fn a_window_stops_all_but_those_whom_it_excepts() {
    let rules = |except: &str| format!("freeze:\n  - {{{}, reason: holidays{except}}}", window(-1, 24));
    let setup = guarded(&rules(", except: ['user:bob', 'team:sre']"));
    run_test(setup, async |ctx| {
        ctx.forge.set_team("acme", "sre", &["carol"]);
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let said = ctx.say(&pull, "atlantis apply --force -m please").await;
        said.is("apply", "failure").because("frozen").has("UTC (holidays); meanwhile only bob, team sre may apply");
        ctx.say_as("carol", &pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
        ctx.rewrite_repos_yaml(&workflow(
            &format!("freeze:\n  - {{{}}}", window(2, 24)),
            &[PLANNED],
            &["echo applied >> {tmp}/applied"],
        ));
        ctx.server.restart().await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_pull_request_sets_windows_only_where_it_may() {
    let file = |window: &str| format!("version: 3\nprojects:\n  - dir: .\n    freeze: [{{{window}}}]\n");
    run_test(guarded("").file("atlantis.yaml", &file(&window(-1, 24))), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "error").has("not allowed to set `freeze` here");
        ctx.rewrite_repos_yaml(&workflow(
            "allowed_overrides: [freeze]",
            &[PLANNED],
            &["echo applied >> {tmp}/applied"],
        ));
        ctx.server.restart().await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").because("frozen");
        ctx.push(&pull, "atlantis.yaml", &file("from: 'Fri 16:00', to: 'someday'")).await;
        ctx.next(&pull).await.is("plan", "error").has("freeze.to").has("Fri 16:00");
    });
}
