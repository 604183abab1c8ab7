//! `tidelock doctor` with a real server and the sandbox's forge: its report without faults, and for each fault.

use crate::bitbucket_cloud::BitbucketCloudFake;
use crate::flow::FlowHost as _;
use crate::gitea::GiteaFake;
use crate::gitlab::GitlabFake;
use crate::support::*;
use secrecy::ExposeSecret as _;
use serde_json::json;
use tidelock_forge::Fault;
use tidelock_run_double::tasks::TasksDouble;

/// Returns the doctor's report on this server, with parts that differ from run to run replaced.
async fn doctor(ctx: &Ctx, extra: &[&str]) -> (Option<i32>, String) {
    let url = format!("--atlantis-url={}", ctx.server.url());
    let (code, text) = ctx.server.command("doctor", &[&[url.as_str()], extra].concat()).await;
    let text = text.replace(&ctx.server.url(), "URL").replace(ctx.forge.url(), "FORGE");
    (code, text.replace(ctx.own.to_str().unwrap(), "OWN"))
}

fn well() -> Setup {
    Setup::one_project().flags(&["--lease-ttl=5s", "--bucket=file://{own}/bucket"]).own_process()
}

#[test]
fn a_server_that_is_well_has_no_fault() {
    run_test(well(), async |ctx| {
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let (code, text) = doctor(ctx, &[]).await;
        assert_eq!(code, Some(0), "{text}");
        for wanted in [
            "ok       settings   the server is URL, deliveries come to URL/events",
            "ok       tools      git version ",
            "ok       tools      Terraform ",
            "OWN/data: ",
            "ok       bucket     file://OWN/bucket: create, read, list and delete work; a write took ",
            " leads with epoch 1 and renews its lease",
            "ok       github     may write to acme/infra",
            "ok       webhook    acme/infra: comes to URL/events, its last delivery was taken",
            "ok       web        URL/healthz answers",
            "ok       web        URL/events refuses a delivery without a signature (401)",
            "ok       web        URL/ answers this machine",
            "\n0 faults, ",
        ] {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
        // It leaves nothing behind.
        assert!(std::fs::read_dir(ctx.own.join("bucket/doctor")).is_ok_and(|left| left.count() == 0));
        let (code, json) = doctor(ctx, &["--json"]).await;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((code, &json["well"]), (Some(0), &serde_json::json!(true)), "{json:#}");
        assert!(json["findings"].as_array().unwrap().iter().all(|finding| finding["verdict"] != "fault"));
        // From another machine, this one's tools and directory do not matter.
        let (code, text) = doctor(ctx, &["--from-outside"]).await;
        assert!(code == Some(0) && !text.contains(" tools ") && !text.contains(" data-dir "), "{text}");
    });
}

#[test]
fn a_task_is_left_in_the_queue_that_wakes_the_server() {
    run_test(well(), async |ctx| {
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let tasks = TasksDouble::start().await.unwrap();
        let queue = "projects/acme/locations/europe-west1/queues/tidelock";
        let flags = [
            "--idle-release=10m".to_owned(),
            format!("--wake-queue={queue}"),
            format!("--wake-url={}/wake", ctx.server.url()),
            "--wake-account=wake@acme.iam.gserviceaccount.com".to_owned(),
            format!("--cloud-tasks-endpoint={}", tasks.endpoint()),
        ];
        let flags = flags.each_ref().map(String::as_str);
        let (code, text) = doctor(ctx, &flags).await;
        let fault = format!("FAULT    wake       no task can be left in {queue}: Cloud Tasks refuses it with 404");
        assert!(code == Some(1) && text.contains(&fault) && text.contains("roles/cloudtasks.enqueuer"), "{text}");
        tasks.queue(queue);
        let (code, text) = doctor(ctx, &flags).await;
        let fine = format!("ok       wake       a task was left in {queue}, which calls URL/wake");
        assert!(code == Some(0) && text.contains(&fine), "{text}");
        assert_eq!(tasks.seen().created.len(), 1);
    });
}

#[test]
fn each_executor_runs_a_job_that_says_where_it_is() {
    let repos = "executors: {jobs: {kind: process}, here: {kind: local}}\nrepos: [{id: /.*/, executor: [{plan: jobs, apply: here}]}]";
    run_test(well().repos_yaml(repos), async |ctx| {
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let (code, text) = doctor(ctx, &[]).await;
        assert_eq!(code, Some(0), "{text}");
        let line = text.lines().find(|line| line.contains(" executor ")).unwrap_or_default();
        assert!(line.starts_with("ok       executor   jobs: a job ran in ") && line.contains(" as user "), "{text}");
        assert!(!text.contains(" here: ") && !text.contains("in the bucket: list"), "{text}");
        // Only the claim is left: it keeps a late start from running anything.
        let left = || walk(&ctx.own.join("bucket/jobs"));
        assert!(matches!(&left()[..], [claim] if claim.ends_with("claim")), "{:?}", left());
        let (_, text) = doctor(ctx, &["--from-outside"]).await;
        assert!(!text.contains(" executor "), "{text}");
    });
}

/// Returns the files below a directory.
fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn each_fault_is_said_with_its_mend() {
    run_test(well(), async |ctx| {
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let cases: [(&[&str], &str, &str); 7] = [
            (
                &["--gh-user=somebody"],
                "the token is tidelock-bot's, and --gh-user is somebody",
                "--gh-user=tidelock-bot",
            ),
            (&["--repo-allowlist=github.com/other/*"], "the token sees no repository", "write access"),
            (&["--expect-iap"], "not with the redirect of Identity-Aware Proxy", "terraform/iap.tf"),
            (&["--events-url=http://127.0.0.1:9/events"], "http://127.0.0.1:9/events: no answer", "--atlantis-url"),
            (&["--data-dir=/proc/tidelock"], "cannot write to /proc", "--data-dir"),
            (&["--default-tf-version=0.0.1"], "0.0.1 is not installed", "--default-tf-version"),
            (&["--port=0x"], "port", "docs/settings.md"),
        ];
        for (flags, fault, mend) in cases {
            let (code, text) = doctor(ctx, flags).await;
            assert_eq!(code, Some(1), "{flags:?}: {text}");
            let mut lines = text.lines().skip_while(|line| !(line.starts_with("FAULT") && line.contains(fault)));
            assert!(lines.next().is_some(), "{flags:?} lacks `{fault}`:\n{text}");
            assert!(lines.next().is_some_and(|line| line.contains(mend)), "{flags:?} lacks `{mend}`:\n{text}");
        }
        // The webhook goes elsewhere.
        ctx.forge.set_webhook(&format!("{}/event", ctx.server.url()));
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let (code, text) = doctor(ctx, &[]).await;
        assert!(code == Some(1) && text.contains("one comes to URL/event and not to URL/events"), "{text}");
        assert!(text.contains("mend: correct its payload URL at FORGE/acme/infra/settings/hooks"), "{text}");
        ctx.server.take_webhooks();
        // The server's answer to a refused delivery is repeated, with the correction.
        ctx.server.stop().await;
        ctx.server.flag("--webhook-allowlist=192.0.2.0/24");
        ctx.server.start().await;
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let (code, text) = doctor(ctx, &[]).await;
        let said =
            "answered 403: deliveries from 127.0.0.1 are not taken: --webhook-allowlist does not name that address";
        assert!(code == Some(1) && text.contains(said), "{text}");
        assert!(text.contains("mend: let the host's addresses in (--webhook-allowlist)"), "{text}");
        ctx.server.stop().await;
        ctx.server.flag("--webhook-allowlist=127.0.0.1/32");
        ctx.server.start().await;
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        // A token without the right to read webhooks is no fault.
        ctx.forge.fail_next("GET", "/api/v3/repos/*/hooks", Fault::Status(404, "{}".into(), vec![]), 1).unwrap();
        let (code, text) = doctor(ctx, &[]).await;
        assert!(code == Some(0) && text.contains("the token may not read those of acme/infra"), "{text}");
        // A token that the host rejects.
        let denied = Fault::Status(401, r#"{"message":"Bad credentials"}"#.into(), vec![]);
        ctx.forge.fail_next("GET", "/api/v3/user", denied, 1).unwrap();
        let (code, text) = doctor(ctx, &[]).await;
        assert!(code == Some(1) && text.contains("the token is not taken: GET /user"), "{text}");
        assert!(text.contains("mend: make a new token for tidelock-bot"), "{text}");
    });
}

#[test]
fn a_leader_that_is_gone_and_a_server_with_other_settings_are_found() {
    run_test(well(), async |ctx| {
        let (code, text) = doctor(ctx, &["--repo-allowlist=*,!*/secret"]).await;
        assert!(
            code == Some(1) && text.contains("the repository allowlist") && text.contains("--force-takeover"),
            "{text}"
        );
        let url = format!("--atlantis-url={}", ctx.server.url());
        ctx.server.kill().await;
        let (code, text) = ctx.server.command("doctor", &[&url]).await;
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("has not renewed its lease for 5s") && text.contains("/healthz: no answer"), "{text}");
        ctx.server.start().await;
        ctx.server.stop().await;
        let (_, text) = ctx.server.command("doctor", &[&url]).await;
        assert!(text.contains("nobody leads; epoch 2 was the last"), "{text}");
        ctx.server.start().await;
    });
}

#[test]
fn an_id_of_the_global_config_that_is_for_no_repository_is_a_warning() {
    let rules = "repos:\n  - id: 127.0.0.1/ACME/Infra\n  - id: github.com/acme/infra\n  - id: /.*\\/acme\\/nothing/\n  - id: /.*/\n";
    run_test(well().repos_yaml(rules), async |ctx| {
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let (code, text) = doctor(ctx, &[]).await;
        let warned: Vec<_> = text.lines().filter(|line| line.contains("is for none of the 1 repositories")).collect();
        assert_eq!((code, warned.len()), (Some(0), 2), "{text}");
        assert!(warned[0].contains("`id: github.com/acme/infra`") && warned[1].contains("nothing`"), "{text}");
        assert!(text.contains("mend: write it as 127.0.0.1/acme/infra is written"), "{text}");
    });
}

#[test]
fn requests_to_the_host_go_through_the_proxy_unless_it_is_exempt() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let asked = std::sync::Arc::<std::sync::Mutex<String>>::default();
    let lines = std::sync::Arc::clone(&asked);
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut bytes = [0; 1024];
            let read = stream.read(&mut bytes).unwrap_or_default();
            lines.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
            let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    let setup = |exempt: &str| well().variable("HTTPS_PROXY", &proxy).variable("NO_PROXY", exempt);
    for (exempt, goes_through) in [("other.test", true), ("git.example.test", false)] {
        asked.lock().unwrap().clear();
        run_test(setup(exempt), async |ctx| {
            ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
            let (code, text) = doctor(ctx, &["--gh-hostname=git.example.test"]).await;
            assert!(code != Some(0) && text.contains("GET /user: no answer"), "{text}");
            let asked = asked.lock().unwrap();
            assert_eq!(asked.contains("CONNECT git.example.test:443 "), goes_through, "{asked}\n{text}");
        });
    }
}

/// Replaces the webhook of the repository on Bitbucket Cloud by one that lacks its secret and most events.
async fn spoil_webhook(ctx: &Ctx, cloud: &BitbucketCloudFake) {
    let settings = cloud.forge.server_settings();
    let (_, user) = settings.iter().find(|(name, _)| *name == "bitbucket-user").unwrap();
    let events = ["pullrequest:created", "pullrequest:updated", "pullrequest:fulfilled", "pullrequest:rejected"];
    let hook = json!({"url": format!("{}/events", ctx.server.url()), "events": events});
    let hooks = format!("{}/repositories/{}/hooks", cloud.forge.hostname_setting(), cloud.full_name());
    let request = client().post(hooks).basic_auth(user, Some(cloud.forge.token().expose_secret())).json(&hook);
    let answer = request.send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
}

#[test]
fn accounts_tokens_and_webhooks_of_other_hosts_are_checked() {
    let (gitlab, gitea, cloud) = (GitlabFake::start(), GiteaFake::start(), BitbucketCloudFake::start());
    let allowed = "--repo-allowlist=127.0.0.1/acme/*,127.0.0.2/acme/*,127.0.0.3/acme/*,127.0.0.4/acme/*";
    run_test(cloud.served(gitea.served(gitlab.served(well()))).flags(&[allowed]), async |ctx| {
        gitlab.connect(ctx).await;
        gitea.connect(ctx).await;
        cloud.connect(ctx).await;
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let (code, text) = doctor(ctx, &[]).await;
        assert_eq!(code, Some(0), "{text}");
        for wanted in [
            "ok       gitlab     the token is tidelock-bot's on 127.0.0.2 (GitLab ",
            "ok       gitlab     the token has the scope api",
            "ok       gitlab     may set statuses in acme/platform/live",
            "acme/platform/live: that to URL/events does not verify our certificate",
            "ok       gitea      the token is tidelock-bot's on 127.0.0.3 (Gitea ",
            "warning  gitea      the token has the scopes of an administrator",
            "ok       gitea      may set statuses in acme/stage",
            "ok       webhook    acme/stage: that to URL/events is active; whether its last delivery was taken is on its page",
            "ok       bitbucket  the token is that of tidelock-bot on 127.0.0.4",
            "ok       bitbucket  the token has the scopes of docs/bitbucket-cloud.md",
            "ok       bitbucket  may set statuses in acme/live",
            "ok       webhook    acme/live: that to URL/events is active; its requests are on",
        ] {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
        gitlab.forge.set_token_limits(&["read_api"], Some("2026-01-31"));
        gitea.forge.set_token_scopes(&["write:repository", "read:user", "read:organization"]);
        spoil_webhook(ctx, &cloud).await;
        let (code, text) = doctor(ctx, &[]).await;
        assert_eq!(code, Some(1), "{text}");
        for wanted in [
            "FAULT    gitlab     the token lacks the scope api: nothing can be posted",
            "FAULT    gitlab     the token has expired on 2026-01-31",
            "FAULT    gitea      the token lacks the scope write:issue: nothing can be posted",
            "FAULT    webhook    acme/live: that to URL/events has no secret: its deliveries are not signed, and refused",
            "FAULT    webhook    acme/live: that to URL/events lacks the event pullrequest:comment_created: ",
            "warning  webhook    acme/live: that to URL/events lacks the event pullrequest:changes_request_removed: ",
        ] {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
    });
}
