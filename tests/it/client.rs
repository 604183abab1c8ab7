//! `tidelock runs` and its sisters as programs, against a server that asks for a login; and the scopes of `tidelock token`.

use crate::support::*;
use serde_json::{Value, json};
use std::process::{Command, Output, Stdio};

const SECRET: &str = "an-api-secret-of-32-bytes-or-more";

/// Exit code, standard output and standard error.
type Ended = (Option<i32>, String, String);

/// Returns the program with nothing of a server or of tokens in its environment.
fn tidelock(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock"));
    command.args(args).env_clear().stdin(Stdio::null());
    command
}

fn ended(output: Output) -> Ended {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn token(scopes: &[&str]) -> String {
    let mut command = tidelock(&["token", "--owner", "ci@acme"]);
    command.args(scopes.iter().flat_map(|scope| ["--scope", scope])).env("ATLANTIS_API_SECRET", SECRET);
    let (code, token, said) = ended(command.output().unwrap());
    assert!(code == Some(0) && said.starts_with("It ends at "), "{said}");
    token.trim().to_owned()
}

/// Runs a command of the client.
async fn client(ctx: &Ctx, token: &str, args: &[&str]) -> Ended {
    let mut command = tidelock(args);
    command.env("TIDELOCK_SERVER", ctx.server.url()).env("TIDELOCK_TOKEN", token);
    tokio::task::spawn_blocking(move || ended(command.output().unwrap())).await.unwrap()
}

/// Runs a command that succeeds, and returns its output.
async fn output(ctx: &Ctx, token: &str, args: &[&str]) -> String {
    let (code, out, error) = client(ctx, token, args).await;
    assert_eq!(code, Some(0), "{args:?}: {out}{error}");
    out
}

fn with_login() -> Setup {
    Setup::one_project().flags(&[
        "--web-basic-auth=true",
        "--web-username=ada",
        "--web-password=of-a-person",
        "--api-secret=an-api-secret-of-32-bytes-or-more",
    ])
}

async fn call(ctx: &Ctx, method: &str, path: &str, token: &str, body: &Value) -> (u16, String) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{}{path}", ctx.server.url());
    let request = client.request(method.parse().unwrap(), url).header("X-Atlantis-Token", token);
    let response = request.body(body.to_string()).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[test]
fn a_token_does_what_its_scopes_name_and_nothing_else() {
    run_test(with_login().steps(&[PLANNED], &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let (reads, plans, unlocks) = (token(&["read"]), token(&["plan"]), token(&["unlock", "read"]));
        let plan = json!({"Repository": "acme/infra", "Ref": "change", "Type": "Github", "PR": 1, "Paths": [{"directory": "."}]});
        let lock = "/api/locks?id=acme%2Finfra%2F.%2Fdefault%2F";
        let forged = [plans.rsplit_once('.').unwrap().0, reads.rsplit_once('.').unwrap().1].join(".");
        for (method, path, token, status, said) in [
            ("GET", "/api/locks", &reads, 200, "acme/infra"),
            ("GET", "/api/runs", &reads, 200, "succeeded"),
            ("GET", "/api/projects?repository=acme/infra", &reads, 200, r#""locked_by":1,"#),
            ("GET", "/api/projects?q=other", &reads, 200, r#"{"projects":[],"next":null}"#),
            ("GET", "/api/projects?q=other", &plans, 403, "it has not the scope `read`"),
            ("GET", "/audit.json", &reads, 200, "entries"),
            ("GET", "/api/locks", &plans, 403, "it has not the scope `read`"),
            ("DELETE", lock, &reads, 403, "it has not the scope `unlock`"),
            ("POST", "/api/plan", &reads, 403, "it has not the scope `plan`"),
            ("POST", "/api/apply", &plans, 403, "it has not the scope `apply`"),
            ("POST", "/api/plan", &forged, 401, "neither the server's api-secret nor a token"),
            ("GET", "/api/locks", &String::new(), 401, "neither the server's api-secret nor a token"),
            ("GET", "/runs", &reads, 401, "password"),
        ] {
            let (got, answer) = call(ctx, method, path, token, &plan).await;
            assert!(got == status && answer.contains(said), "{method} {path} {token}: {got} {answer}");
        }
        let (status, answer) = call(ctx, "POST", "/api/plan", &plans, &plan).await;
        assert_eq!(status, 200, "{answer}");
        ctx.next(&pull).await.is("plan", "success");
        let (status, answer) = call(ctx, "DELETE", lock, &unlocks, &plan).await;
        assert_eq!(status, 200, "{answer}");
        ctx.next(&pull).await;
        let (_, audit) = call(ctx, "GET", "/audit.json?act=unlock", &unlocks, &plan).await;
        assert!(audit.contains(r#""who":"ci@acme (token)""#), "{audit}");
    });
}

#[test]
fn the_client_lists_what_the_pages_show_and_deletes_a_lock() {
    run_test(with_login().steps(&["echo hello from the step", PLANNED], &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let job = ctx.next(&pull).await.job();
        let all = token(&["read", "unlock"]);
        let runs = output(ctx, &all, &["runs", "--command", "plan"]).await;
        let mut rows = runs.lines();
        assert!(rows.next().unwrap().starts_with("RUN "), "{runs}");
        let row = rows.next().unwrap();
        assert!(row.contains(" plan ") && row.contains(" acme/infra#1 ") && row.contains("succeeded"), "{runs}");
        let run = row.split(' ').next().unwrap().to_owned();
        let found: Value = serde_json::from_str(&output(ctx, &all, &["runs", "--json"]).await).unwrap();
        assert_eq!(json!([found["runs"][0]["run"], found["runs"][0]["pull"]]), json!([run, 1]));
        let none = output(ctx, &all, &["runs", "--person", "nobody"]).await;
        assert_eq!(none.lines().count(), 1, "{none}");

        for id in
            [run.clone(), job.clone(), format!("http://tidelock.test/runs/{run}"), format!("https://x/jobs/{job}/")]
        {
            let log = output(ctx, &all, &["logs", &id]).await;
            assert!(log.contains("hello from the step\n"), "{id}: {log}");
        }
        let pulls = output(ctx, &all, &["pulls"]).await;
        assert!(pulls.contains("acme/infra#1") && pulls.contains("planned"), "{pulls}");
        let locks = output(ctx, &all, &["locks"]).await;
        assert!(locks.contains("acme/infra/./default/"), "{locks}");
        output(ctx, &all, &["unlock", "acme/infra/./default/"]).await;
        ctx.next(&pull).await;
        assert_eq!(output(ctx, &all, &["locks"]).await.lines().count(), 1);

        for (args, code, said) in [
            (&["unlock", "acme/infra/./default/"][..], 1, "404 Not Found: There is no such lock"),
            (&["logs", "00000000000000000000000000000000"], 1, "neither a job nor a run"),
            (&["logs", "../../status"], 1, "is not the id of a job or a run"),
            (&["runs", "--result", "ok"], 1, "result=ok: it is one of running"),
            (&["runs", "--server", "http://tide.example"], 2, "no token is sent there"),
            (&["runs", "--nonsense"], 2, "--nonsense"),
        ] {
            let (got, out, error) = client(ctx, &all, args).await;
            assert!(got == Some(code) && out.is_empty() && error.contains(said), "{args:?}: {got:?} {out}{error}");
        }
        let (code, _, error) = client(ctx, "", &["runs"]).await;
        assert!(code == Some(1) && error.contains("TIDELOCK_TOKEN"), "{error}");
    });
}

#[test]
fn a_followed_run_is_printed_to_its_end_and_its_result_is_the_exit_code() {
    let gated = gate("plan");
    run_test(with_login().steps(&["echo first line", &gated, "echo last line; exit 3"], &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        let reads = token(&["read"]);
        let runs: Value = serde_json::from_str(&output(ctx, &reads, &["runs", "--json"]).await).unwrap();
        assert_eq!(runs["runs"][0]["result"], "running", "{runs}");
        let run = runs["runs"][0]["run"].as_str().unwrap();
        let log = output(ctx, &reads, &["logs", run]).await;
        assert!(
            log.contains("==> plan ./default") && log.contains("first line") && !log.contains("last line"),
            "{log}"
        );
        let follow = ["logs", "--follow", run];
        let following = client(ctx, &reads, &follow);
        let opening = async {
            ctx.open_gate("plan");
            ctx.next(&pull).await.is("plan", "error");
        };
        let ((code, log, error), ()) = tokio::join!(following, opening);
        assert_eq!(code, Some(1), "{log}{error}");
        assert_eq!((log.matches("first line\n").count(), log.matches("last line\n").count()), (1, 1), "{log}");
    });
}

#[test]
fn a_token_is_made_only_with_what_it_needs() {
    for (secret, args, said) in [
        (None, &["token", "--owner", "ci"][..], "api-secret is needed"),
        (Some("short"), &["token", "--owner", "ci"], "32 bytes or more"),
        (Some(SECRET), &["token"], "--owner"),
        (Some(SECRET), &["token", "--owner", "two words"], "without spaces"),
        (Some(SECRET), &["token", "--owner", "ci", "--scope", "all"], "read, plan, apply, unlock, drift"),
        (Some(SECRET), &["token", "--owner", "ci", "--days", "0"], "--days"),
    ] {
        let mut command = tidelock(args);
        command.envs(secret.map(|secret| ("TIDELOCK_API_SECRET", secret)));
        let (code, out, error) = ended(command.output().unwrap());
        assert!(code == Some(2) && out.is_empty() && error.contains(said), "{args:?}: {code:?} {out}{error}");
    }
}
