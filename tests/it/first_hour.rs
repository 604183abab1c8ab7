//! First experiences of a newcomer: statuses that end, a dashboard that lists errors, and changes that need a confirmation.

use crate::support::*;

async fn dashboard(ctx: &Ctx, query: &str) -> String {
    let (status, page) = ctx.request("GET", &format!("/{query}"), &[]).await;
    assert_eq!(status, 200, "{page}");
    page.replace("&#x2f;", "/")
}

#[test]
fn a_command_without_a_status_of_its_own_leaves_none_pending() {
    let allowed = ["--allow-commands=all"];
    run_test(Setup::one_project().flags(&allowed), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis version").await.is("version", "success");
        let id = "11111111-2222-3333-4444-555555555555";
        ctx.say(&pull, &format!("atlantis import -d . terraform_data.this {id}")).await.is("import", "success");
        ctx.say(&pull, "atlantis state rm -d . terraform_data.this").await.is("state_rm", "success");
        // All comments on them are posted before the server ends, or after its start.
        ctx.quiet().await;
        ctx.server.restart().await;
        ctx.nothing_pending(&pull, &[]).await;
        let statuses = pull.statuses().unwrap();
        let others = ["version", "import", "state"].iter().any(|name| statuses.keys().any(|key| key.contains(name)));
        assert!(!others, "{statuses:#?}");
    });
}

#[test]
fn a_pull_request_whose_plan_failed_as_a_whole_is_listed_and_counted() {
    run_test(Setup::one_project(), async |ctx| {
        let broken = "version: 3\nprojets:\n  - dir: .\n";
        let pull = ctx.open("broken", &[("atlantis.yaml", broken), ("main.tf", &terraform("root", "2"))]).await;
        ctx.next(&pull).await.has("projets");
        let page = dashboard(ctx, "").await;
        for shown in ["1 failed", "acme/infra#1", "Change by broken", "plan failed", "projets"] {
            assert!(page.contains(shown), "{shown} is missing:\n{page}");
        }
        ctx.push(&pull, "atlantis.yaml", "version: 3\nprojects:\n  - dir: .\n").await;
        ctx.next(&pull).await.is("plan", "success");
        let page = dashboard(ctx, "").await;
        assert!(!page.contains("projets") && !page.contains("1 failed"), "{page}");
    });
}

#[test]
fn the_dashboard_shows_what_waits_for_what_and_finds_words() {
    run_test(Setup::one_project().steps(&[PLANNED], &[&gate("apply"), "echo applied"]), async |ctx| {
        let first = ctx.open_input("first", "2").await;
        ctx.next(&first).await.is("plan", "success");
        let second = ctx.open_input("second", "3").await;
        ctx.next(&second).await.because("locked");
        let page = dashboard(ctx, "").await;
        let lock = "href=\"./lock?id=127.0.0.1%2Facme%2Finfra%2F.%2Fdefault%2F\"><span class=\"mark warn\">waits for #1</span>";
        assert!(page.contains(lock), "{page}");
        first.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        let page = dashboard(ctx, "").await;
        assert!(page.contains("<span class=\"mark busy\">applying</span>"), "{page}");
        let page = dashboard(ctx, "?q=change+by+second").await;
        assert!(page.contains("acme/infra#2") && !page.contains("acme/infra#1<"), "{page}");
        let page = dashboard(ctx, "?q=nobody+says+this").await;
        assert!(page.contains("No open pull request has the words") && page.contains("Show all"), "{page}");
        assert!(page.contains("value=\"nobody says this\""), "{page}");
        ctx.open_gate("apply");
        ctx.next(&first).await;
    });
}

#[test]
fn stopping_all_applies_wants_a_reason_of_people() {
    run_test(Setup::one_project().steps(&[PLANNED], &[]), async |ctx| {
        let browser = [("Accept", "text/html")];
        let (status, page) = ctx.request("POST", "/apply/lock", &browser).await;
        assert!(status == 400 && page.contains("say why"), "{status} {page}");
        assert!(!dashboard(ctx, "").await.contains("applies are stopped"));
        let (status, _) = ctx.request("POST", "/apply/lock?reason=freeze", &browser).await;
        assert_eq!(status, 303);
        let page = dashboard(ctx, "?notice=applies-stopped").await;
        assert!(page.contains("class=\"notice warn\"") && page.contains("freeze"), "{page}");
        assert_eq!(ctx.request("POST", "/apply/unlock", &browser).await.0, 303);
        // Scripts for Atlantis give none.
        assert_eq!(ctx.request("POST", "/apply/lock", &[]).await.0, 200);
    });
}

#[test]
fn the_api_has_all_results_of_a_run() {
    run_test(Setup::projects(&["a", "b"]), async |ctx| {
        let pull = ctx.open_dirs("both", &["a", "b"]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("Together: 2 to add, 0 to change, 0 to destroy").has("To apply all of it");
        let run = ctx.json(&format!("/api/runs/{}", said.marker["run"].as_str().unwrap())).await;
        assert_eq!((&run["results"], &run["command"]), (&said.marker["results"], &said.marker["command"]));
        assert_eq!(run["head"], pull.head_commit().unwrap().as_str());
        assert_eq!(ctx.request("GET", &format!("/api/runs/{}", "0".repeat(32)), &[]).await.0, 404);
        assert_eq!(ctx.request("GET", "/api/runs/nonsense", &[]).await.0, 404);
        // A commit in the comment leads to its page on the host.
        let link = format!("{}/acme/infra/commit/{}", ctx.forge.url(), pull.head_commit().unwrap());
        said.has(&link);
        let page = reqwest::Client::builder().no_proxy().build().unwrap().get(&link).send().await.unwrap();
        assert_eq!(page.status().as_u16(), 200);
        assert!(page.text().await.unwrap().replace("&#x2f;", "/").contains("a/main.tf"));
    });
}

#[test]
fn a_failed_init_says_terraforms_own_error_first() {
    let broken = "terraform {\n  backend \"nowhere\" {}\n}\n";
    run_test(Setup::one_project(), async |ctx| {
        let pull = ctx.open("broken", &[("main.tf", broken)]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "error");
        let heading = said.text.lines().next().unwrap();
        assert!(heading.contains("failed at init: Unsupported backend type"), "{heading}");
        // Standard output and error are two pipes: a line of one may arrive after the other's.
        let shown = said.text.split("<details>").next().unwrap();
        let before = shown.split("Error: Unsupported backend type").next().unwrap();
        assert!(before.len() < shown.len() && !before.contains("Initializing"), "{shown}");
    });
}

#[test]
fn a_syntax_error_is_told_by_its_first_error() {
    run_test(Setup::one_project(), async |ctx| {
        let broken = terraform("root", "1") + "resource \"terraform_data\" \"b\" {\n  input = \n}\n";
        let pull = ctx.open("broken", &[("main.tf", &broken)]).await;
        let said = ctx.next(&pull).await;
        let heading = said.is("plan", "error").text.lines().next().unwrap();
        assert!(heading.contains("failed at init: Invalid expression"), "{heading}");
    });
}

#[test]
fn a_failed_import_is_no_internal_error() {
    let setup = Setup::one_project().flags(&["--allow-commands=all"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let said = ctx.say(&pull, "atlantis import -d . terraform_data.nothing 1").await;
        said.is("import", "error").because("import").has_not("internal");
        let said = ctx.say(&pull, "atlantis state rm -d . terraform_data.nothing").await;
        said.is("state_rm", "error").because("state_rm").has_not("internal").has("No state file was found");
    });
}

/// Runs the program with a command line. Returns exit code, standard output and standard error.
fn told(args: &[&str]) -> (Option<i32>, String, String) {
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_tidelock"))
        .args(args)
        .env_clear()
        .env("HOME", "/nonexistent")
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

#[test]
fn a_mistake_on_the_command_line_is_told_once_with_exit_code_2() {
    for (args, expected) in [
        (&["srever"][..], "did you mean `tidelock server`?"),
        (&["server", "--gh-usr=x"], "did you mean --gh-user?"),
        (&["server"], "--gh-token (ATLANTIS_GH_TOKEN) is missing"),
        (&["vault", "lss"], "lss"),
        (&["sandbox", "--prt=1"], "unexpected argument"),
        (&["sandbox", "--executor=kubernetes"], "[possible values: local, process]"),
        (&["completions", "cobol"], "cobol"),
    ] {
        let (code, out, error) = told(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {error}");
        assert_eq!(error.matches(expected).count(), 1, "{args:?}: {error}");
    }
}

#[test]
fn help_fits_a_screen_and_the_rest_is_a_flag_away() {
    let (code, short, _) = told(&["help", "server"]);
    let (_, whole, _) = told(&["server", "--help"]);
    assert_eq!(code, Some(0));
    assert!(short.lines().count() <= 60 && whole.lines().count() > 200, "{short}");
    let place = |text: &str, word: &str| text.find(word).unwrap_or_else(|| panic!("{word} is missing: {text}"));
    assert!(place(&short, "Required:") < place(&short, "Usual:"), "{short}");
    assert!(place(&whole, "--repo-allowlist") < place(&whole, "--allow-commands"));
    assert!(!short.contains("--silence-no-projects"));
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = told(&["completions", shell]);
        assert!(code == Some(0) && script.contains("repo-allowlist"), "{shell}: {script}");
    }
    let (code, page, _) = told(&["man"]);
    assert!(code == Some(0) && page.starts_with(".ie") && page.contains("doctor"), "{page}");
}

#[test]
fn an_error_at_the_start_is_told_once() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let dir = tempfile::tempdir().unwrap();
    let (port, data) = (format!("--port={port}"), format!("--data-dir={}", dir.path().display()));
    let (code, out, error) = told(&[
        "server",
        "--gh-user=bot",
        "--gh-token=t",
        "--gh-webhook-secret=s",
        "--repo-allowlist=github.com/acme/*",
        "--bind=127.0.0.1",
        &port,
        &data,
    ]);
    assert_eq!(code, Some(1));
    assert_eq!(format!("{out}{error}").matches("cannot listen on").count(), 1, "{out}{error}");
}
