//! Modules of private repositories, which `init` fetches over HTTP.

use crate::support::*;

/// Code of a project that uses the module of this source.
fn using(source: &str) -> String {
    format!("{}\nmodule \"m\" {{\n  source = \"{source}\"\n}}\n", terraform("root", "2"))
}

const MODULE: &[(&str, &str)] = &[("main.tf", "output \"x\" {\n  value = 1\n}\n")];

/// Returns true if git got access to anything below this path.
fn let_in(ctx: &Ctx, path: &str) -> bool {
    ctx.forge.requests().iter().any(|request| request.path.starts_with(path) && request.status == 200)
}

fn asked(ctx: &Ctx, path: &str) -> bool {
    ctx.forge.requests().iter().any(|request| request.path.starts_with(path))
}

#[test]
fn init_fetches_modules_of_the_named_organization_and_of_no_other() {
    let setup = Setup::one_project().flags(&["--module-credentials={forge}/acme"]);
    run_test(setup, async |ctx| {
        for name in ["acme/modules", "other/modules"] {
            ctx.forge.create_repo(name, MODULE).await.unwrap();
        }
        let pull = ctx.open("change", &[("main.tf", &using("git::{forge}/acme/modules.git"))]).await;
        ctx.next(&pull).await.is("plan", "success");
        assert!(let_in(ctx, "/acme/modules.git/"));
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");

        ctx.push(&pull, "main.tf", &using("git::{forge}/other/modules.git")).await;
        ctx.next(&pull).await.is("plan", "error");
        assert!(asked(ctx, "/other/modules.git/") && !let_in(ctx, "/other/modules.git/"));
    });
}

#[test]
fn without_the_setting_init_has_no_token() {
    run_test(Setup::one_project(), async |ctx| {
        ctx.forge.create_repo("acme/modules", MODULE).await.unwrap();
        let pull = ctx.open("change", &[("main.tf", &using("git::{forge}/acme/modules.git"))]).await;
        ctx.next(&pull).await.is("plan", "error").has("init");
        assert!(asked(ctx, "/acme/modules.git/") && !let_in(ctx, "/acme/modules.git/"));
    });
}

#[test]
fn the_credentials_of_atlantis_are_those_of_the_whole_host() {
    run_test(Setup::one_project().flags(&["--write-git-creds"]), async |ctx| {
        ctx.forge.create_repo("other/modules", MODULE).await.unwrap();
        let pull = ctx.open("change", &[("main.tf", &using("git::{forge}/other/modules.git"))]).await;
        ctx.next(&pull).await.is("plan", "success");
        assert!(!ctx.own.join("home/.git-credentials").exists());
    });
}

#[test]
fn no_redirect_and_no_other_name_leads_out_of_the_origin() {
    let setup = Setup::one_project().flags(&["--module-credentials={forge}/acme"]);
    run_test(setup, async |ctx| {
        for name in ["acme/modules", "other/secret"] {
            ctx.forge.create_repo(name, MODULE).await.unwrap();
        }
        ctx.forge.transfer("acme/modules", "other/moved").unwrap();
        let pull = ctx.open("change", &[("main.tf", &using("git::{forge}/acme/modules.git"))]).await;
        ctx.next(&pull).await.is("plan", "error");
        assert!(asked(ctx, "/acme/modules.git/") && !asked(ctx, "/other/moved.git/"));

        // Configuration that a step may have left in the home directory: a rewritten address, and a helper that collects tokens.
        let config = "[url \"{forge}/other/\"]\n\tinsteadOf = {forge}/acme/alias/\n\
                      [credential]\n\thelper = \"!f() { cat >> {tmp}/collected; }; f\"\n";
        std::fs::write(ctx.own.join("home/.gitconfig"), ctx.fill(config)).unwrap();
        ctx.push(&pull, "main.tf", &using("git::{forge}/acme/alias/secret.git")).await;
        ctx.next(&pull).await.is("plan", "error");
        assert!(asked(ctx, "/other/secret.git/") && !let_in(ctx, "/other/secret.git/"));

        ctx.forge.create_repo("acme/again", MODULE).await.unwrap();
        ctx.push(&pull, "main.tf", &using("git::{forge}/acme/again.git")).await;
        ctx.next(&pull).await.is("plan", "success");
        let collected = std::fs::read_to_string(ctx.tmp.join("collected")).unwrap_or_default();
        assert!(!collected.contains("password"), "{collected}");
    });
}

#[test]
fn only_init_has_the_token() {
    let steps = ["test -z \"$(cat /proc/self/fd/3 2>/dev/null)\" && echo none >> {tmp}/seen", "init", "plan"];
    let setup = Setup::one_project().steps(&steps, &["apply"]).flags(&["--module-credentials={forge}/acme"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!(ctx.lines("seen"), 1);
    });
}

/// The steps of jobs on executors can read their own specification. A token there can do nothing but read code.
#[test]
fn an_executor_gets_a_token_that_can_only_read_code() {
    let rules = "executors: {jobs: {kind: process}}\nrepos:\n- {id: /.*/, executor: [{plan: jobs, apply: jobs}]}\n";
    let setup = Setup::one_project().repos_yaml(rules).flags(&["--module-credentials={forge}/acme"]).own_process();
    run_test(setup.signed_in_as_app("acme-tidelock"), async |ctx| {
        for name in ["acme/modules", "other/modules"] {
            ctx.forge.create_repo(name, MODULE).await.unwrap();
        }
        let pull = ctx.open("change", &[("main.tf", &using("git::{forge}/acme/modules.git"))]).await;
        ctx.next(&pull).await.is("plan", "success");
        assert!(let_in(ctx, "/acme/modules.git/"));
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        // The App's own token, and one for all jobs.
        let made =
            |request: &tidelock_forge::Request| request.path.ends_with("/access_tokens") && request.status == 201;
        assert_eq!(ctx.forge.requests().iter().filter(|request| made(request)).count(), 2);

        ctx.push(&pull, "main.tf", &using("git::{forge}/other/modules.git")).await;
        ctx.next(&pull).await.is("plan", "error").has("init");
        assert!(asked(ctx, "/other/modules.git/") && !let_in(ctx, "/other/modules.git/"));
    });
}

#[test]
fn an_executor_gets_no_token_of_an_account() {
    run_test(Setup::one_project(), async |ctx| {
        ctx.rewrite_repos_yaml("executors: {jobs: {kind: process}}\n");
        let config = format!("--repo-config={}", ctx.own.join("repos.yaml").display());
        let credentials = ctx.fill("--module-credentials={forge}/acme");
        let (code, said) = ctx.server.command("server", &[&config, &credentials, "--port=1"]).await;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("with the executor `jobs`") && said.contains("can do nothing but read code"), "{said}");
    });
}
