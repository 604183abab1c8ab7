//! The configuration changes while the server runs: by its files or by SIGHUP, for what begins afterwards, and never with a mistake.

use crate::support::*;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A project without Terraform.
fn planned() -> Setup {
    Setup::one_project().repos_yaml(&rules(""))
}

/// Returns a `repos.yaml` with these keys for all repositories.
fn rules(keys: &str) -> String {
    workflow(keys, &[PLANNED], &["echo applied >> {tmp}/applied"])
}

async fn configuration(ctx: &Ctx) -> Value {
    ctx.server.status().await["configuration"].clone()
}

/// Changes something, and waits until the server has read it without a mistake. It notices by itself.
async fn reread(ctx: &Ctx, change: impl FnOnce()) -> Value {
    let before = configuration(ctx).await;
    change();
    ctx.until("the configuration is read again", async || {
        let now = configuration(ctx).await;
        now["read"] != before["read"] && now["faulty_since"].is_null()
    })
    .await;
    configuration(ctx).await
}

/// Changes something, and waits until the server has found a mistake in it.
async fn refused(ctx: &Ctx, change: impl FnOnce()) {
    change();
    ctx.until("the mistake is found", async || configuration(ctx).await["faulty_since"].is_string()).await;
}

async fn metric(ctx: &Ctx, name: &str) -> String {
    let (_, metrics) = ctx.request("GET", "/metrics", &[]).await;
    let line = metrics.lines().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name} in {metrics}")).rsplit(' ').next().unwrap().to_owned()
}

async fn reloads(ctx: &Ctx) -> Vec<String> {
    let entries = ctx.json("/audit.json?act=reload").await["entries"].as_array().unwrap().clone();
    entries
        .iter()
        .map(|entry| format!("{}: {}", entry["who"].as_str().unwrap(), entry["result"].as_str().unwrap()))
        .collect()
}

/// Waits until the audit log has this. It is recorded once the configuration is in effect.
async fn recorded(ctx: &Ctx, entry: &str) {
    ctx.until(&format!("the audit log has `{entry}`"), async || reloads(ctx).await.iter().any(|had| had == entry))
        .await;
}

#[test]
fn a_tightened_requirement_counts_for_the_next_apply_of_an_older_plan() {
    run_test(planned(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let stricter = rules("approvals: {any_of: ['user:bob']}");
        reread(ctx, || ctx.rewrite_repos_yaml(&stricter)).await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").because("requirement").has("approved");
        assert_eq!(ctx.lines("applied"), 0);
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        let names = ["tidelock: in effect: repos[/.*/].approvals in repos.yaml"];
        recorded(ctx, names[0]).await;
        // What is the same but for a comment is no change.
        reread(ctx, || ctx.rewrite_repos_yaml(&format!("# the same\n{stricter}"))).await;
        assert_eq!(reloads(ctx).await, names);
    });
}

#[test]
fn a_new_guard_counts_for_the_next_apply_of_an_older_plan() {
    let guards = |guards: &str| format!("repos:\n  - id: /.*/\n    guards: {guards}\n");
    run_test(Setup::one_project().repos_yaml(&guards("[]")), async |ctx| {
        let pull = ctx.open("first", &[("note.tf", "# first\n")]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        pull.close().unwrap();
        ctx.next(&pull).await.is_message("cleanup");
        let renamed = terraform("root", "1").replace("\"this\"", "\"other\"");
        let pull = ctx.open("second", &[("main.tf", &renamed)]).await;
        ctx.next(&pull).await.is("plan", "success").has_not("Guard");
        reread(ctx, || ctx.rewrite_repos_yaml(&guards("[{name: few, max_destroys: 0}]"))).await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure");
        assert!(fs::read_to_string(ctx.tmp.join("state/root.tfstate")).unwrap().contains("\"this\""));
        ctx.say(&pull, "atlantis plan").await.is("plan", "success").has("Guard `few` refuses an apply");
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("guard few");
    });
}

#[test]
fn a_mistake_changes_nothing_and_is_told_until_it_is_corrected() {
    run_test(planned(), async |ctx| {
        let started = configuration(ctx).await["read"].clone();
        assert_eq!(metric(ctx, "tidelock_config_reload_failed").await, "0");
        refused(ctx, || ctx.rewrite_repos_yaml("repos:\n  - id: /.*/\n    secret_requirements: [approved]\n")).await;
        assert_eq!(metric(ctx, "tidelock_config_reload_failed").await, "1");
        let status = ctx.request("GET", "/status", &[]).await.1;
        assert!(!status.contains("secret_requirements"), "this page is open: {status}");
        assert_eq!(configuration(ctx).await["read"], started);
        let (_, page) = ctx.request("GET", "/", &[]).await;
        assert!(page.contains("have a mistake") && page.contains("repos.yaml:3:5"), "{page}");
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        reread(ctx, || ctx.rewrite_repos_yaml(&rules("plan_requirements: [approved]"))).await;
        assert_eq!(metric(ctx, "tidelock_config_reload_failed").await, "0");
        assert!(!ctx.request("GET", "/", &[]).await.1.contains("have a mistake"));
        ctx.say(&pull, "atlantis plan").await.is("plan", "failure").because("requirement");
        recorded(ctx, "tidelock: in effect: repos[/.*/].plan_requirements in repos.yaml").await;
        assert_eq!(reloads(ctx).await.len(), 1);
    });
}

#[test]
fn a_command_that_runs_keeps_its_configuration() {
    let steps = |word: &str| {
        let echo = format!("echo {word} >> {{tmp}}/steps");
        workflow("", &[&gate("plan"), PLANNED, &echo], &["echo applied >> {tmp}/applied"])
    };
    run_test(Setup::one_project().repos_yaml(&steps("old")), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        reread(ctx, || ctx.rewrite_repos_yaml(&steps("new"))).await;
        ctx.open_gate("plan");
        ctx.next(&pull).await.is("plan", "success");
        // Its plan is bound to the configuration with which it was made.
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").because("stale_plan").has("configuration");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        assert_eq!(fs::read_to_string(ctx.tmp.join("steps")).unwrap(), "old\nnew\n");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn sighup_reads_at_once_and_hostile_files_are_refused_in_words() {
    run_test(planned().own_process(), async |ctx| {
        let file = ctx.own.join("repos.yaml");
        reread(ctx, || ctx.server.reload()).await;
        assert!(ctx.server.log().contains("SIGHUP: the configuration was read again, and nothing in it has changed"));
        let big = |path: &Path| fs::File::create(path).unwrap().set_len(1 << 30).unwrap();
        let pipe = |path: &Path| {
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        };
        let circle = |path: &Path| symlink(path, path).unwrap();
        let zeros = |path: &Path| symlink("/dev/zero", path).unwrap();
        let missing = |_: &Path| ();
        let empty = |path: &Path| fs::write(path, "").unwrap();
        let replacements = [
            ("is larger than", big as fn(&Path)),
            ("is no regular file", pipe),
            ("Too many levels of symbolic links", circle),
            ("is no regular file", zeros),
            ("No such file", missing),
            ("the file is empty", empty),
        ];
        for (words, replace) in replacements {
            refused(ctx, || {
                fs::remove_file(&file).unwrap();
                replace(&file);
                ctx.server.reload();
            })
            .await;
            ctx.until(&format!("the log says that it {words}"), async || {
                let log = ctx.server.log();
                let mut told = log.lines().filter(|line| line.contains("the one before stays in effect"));
                told.next_back().is_some_and(|line| line.contains(words))
            })
            .await;
            reread(ctx, || {
                let _ = fs::remove_file(&file);
                ctx.rewrite_repos_yaml(&rules(""));
                ctx.server.reload();
            })
            .await;
        }
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!(reloads(ctx).await, Vec::<String>::new(), "the same configuration is no change");
    });
}

#[test]
fn a_swapped_link_of_a_mounted_config_map_is_noticed() {
    run_test(planned(), async |ctx| {
        // As the kubelet does: files are links through a link that is replaced as a whole.
        let mount = ctx.own.join("mount");
        let version = |name: &str, text: &str| {
            fs::create_dir_all(mount.join(name)).unwrap();
            fs::write(mount.join(name).join("repos.yaml"), ctx.fill(text)).unwrap();
        };
        version("..one", &rules(""));
        symlink("..one", mount.join("..data")).unwrap();
        reread(ctx, || {
            fs::remove_file(ctx.own.join("repos.yaml")).unwrap();
            symlink("mount/..data/repos.yaml", ctx.own.join("repos.yaml")).unwrap();
        })
        .await;
        version("..two", &rules("plan_requirements: [approved]"));
        reread(ctx, || {
            symlink("..two", mount.join("..data_tmp")).unwrap();
            fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
        })
        .await;
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "failure").because("requirement");
    });
}

#[test]
fn allowlist_templates_and_other_live_settings_change_and_others_wait_for_a_restart() {
    let setup = planned().config("repo-allowlist: '*'\n").flags(&["--markdown-template-overrides-dir={own}/home"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let config = |text: &str| fs::write(ctx.own.join("tidelock.yaml"), text).unwrap();
        reread(ctx, || fs::write(ctx.own.join("home/help.md"), "Ask the platform team.\n").unwrap()).await;
        ctx.say(&pull, "atlantis help").await.has("Ask the platform team.");
        refused(ctx, || fs::write(ctx.own.join("home/help.md"), "{{ broken").unwrap()).await;
        ctx.say(&pull, "atlantis help").await.has("Ask the platform team.");
        reread(ctx, || fs::remove_file(ctx.own.join("home/help.md")).unwrap()).await;
        ctx.say(&pull, "atlantis help").await.has_not("Ask the platform team.");
        // The tests' steps write other files there, too: none of them is a template, or delays anything.
        fs::write(ctx.own.join("home/notes.txt"), "{{ broken").unwrap();

        reread(ctx, || config("repo-allowlist: elsewhere.example/*\n")).await;
        pull.comment("alice", "atlantis plan").unwrap();
        ctx.quiet().await;
        let now = reread(ctx, || config("repo-allowlist: '*'\ndisable-apply-all: true\nport: 5555\n")).await;
        assert_eq!(now["needs_restart"], serde_json::json!(["port"]));
        assert_eq!(metric(ctx, "tidelock_config_needs_restart").await, "1");
        assert!(ctx.request("GET", "/", &[]).await.1.contains("in effect after a restart of the server: port"));
        // The comment from before is not answered, and this one is.
        ctx.say(&pull, "atlantis apply").await.has("disable-apply-all");
        refused(ctx, || config("repo-allowlist: '*'\nplan-max-age: soon\n")).await;
        let now = reread(ctx, || config("repo-allowlist: '*'\n")).await;
        assert!(now["needs_restart"].is_null(), "{now}");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        recorded(ctx, "tidelock: in effect: comment templates").await;
        recorded(ctx, "tidelock: in effect: disable-apply-all, repo-allowlist").await;
    });
}

#[test]
fn a_command_that_waits_is_refused_when_its_repository_leaves_the_allowlist() {
    let steps = workflow("", &[&gate("plan"), PLANNED], &["echo applied >> {tmp}/applied"]);
    let rules = |rules: &str| format!("repo-allowlist: '{rules}'\nsilence-allowlist-errors: false\n");
    run_test(Setup::one_project().repos_yaml(&steps).config(&rules("*")), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        pull.comment("alice", "atlantis apply").unwrap();
        reread(ctx, || fs::write(ctx.own.join("tidelock.yaml"), rules("elsewhere.example/*")).unwrap()).await;
        ctx.open_gate("plan");
        ctx.next(&pull).await.is("plan", "success");
        ctx.next(&pull).await.is_message("not_allowlisted");
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn the_next_leader_has_the_newest_configuration_and_agrees_on_the_allowlist() {
    let setup = planned().config("repo-allowlist: '*'\n").flags(&["--bucket=file://{own}/bucket"]).own_process();
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        reread(ctx, || fs::write(ctx.own.join("tidelock.yaml"), "repo-allowlist: '*,x.example/*'\n").unwrap()).await;
        // The lease has the fingerprint of the new allowlist with its next renewal, and the new server the same one.
        let second = ctx.server.beside(&ctx.own.join("data-2"), &[]);
        second.start_as_standby().await;
        second.role("leading").await;
        ctx.server.role("standby").await;
        second.take_webhooks();
        // The standby follows as well, and leads with what it has read last.
        reread(ctx, || ctx.rewrite_repos_yaml(&rules("approvals: {any_of: ['user:bob']}"))).await;
        second.stop().await;
        ctx.server.role("leading").await;
        ctx.server.take_webhooks();
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").because("requirement").has("approved");
        recorded(ctx, "tidelock: in effect: repos[/.*/].approvals in repos.yaml").await;
    });
}
