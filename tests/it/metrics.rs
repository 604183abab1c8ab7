//! `metrics` of `repos.yaml` and `stats-namespace`: destinations of the server's metrics.

use crate::support::*;
use tokio::net::UdpSocket;

#[test]
fn figures_are_at_the_named_path_under_the_named_namespace() {
    let yaml = "repos: []\nmetrics: {prometheus: {endpoint: /internal/prometheus}}\n";
    let setup = Setup::one_project().repos_yaml(yaml).flags(&["--stats-namespace=acme.infra"]);
    run_test(setup, async |ctx| {
        for path in ["/internal/prometheus", "/metrics"] {
            let (status, text) = ctx.request("GET", path, &[]).await;
            assert!(status == 200 && text.contains("\nacme_infra_role{role=\"leading\"} 1\n"), "{status} {text}");
        }
        // The same access rules hold for both pages: a proxy's visitors have no login.
        let (status, text) = ctx.request("GET", "/internal/prometheus", &[("x-forwarded-for", "192.0.2.1")]).await;
        assert_eq!(status, 403, "{text}");
    });
}

#[test]
fn figures_are_sent_to_statsd_while_the_server_works_and_when_it_ends() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let port = socket.local_addr().unwrap().port();
    let setup = Setup::one_project().repos_yaml(&format!(
        "{}metrics: {{statsd: {{host: 127.0.0.1, port: '{port}'}}}}\n",
        workflow("", &[PLANNED], &["true"])
    ));
    run_test(setup, async |ctx| {
        let socket = UdpSocket::from_std(socket).unwrap();
        let mut counted = std::collections::BTreeMap::<String, f64>::new();
        let mut gauges = std::collections::BTreeMap::<String, f64>::new();
        let mut buffer = vec![0; 65_536];
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let told = async {
            while gauges.get("tidelock.role.leading") != Some(&1.0) || !counted.contains_key("tidelock.commits_total") {
                let length = socket.recv(&mut buffer).await.unwrap();
                assert!(length <= 1432);
                for line in std::str::from_utf8(&buffer[..length]).unwrap().lines() {
                    let (name, value) = line.split_once(':').unwrap();
                    match value.split_once('|').unwrap() {
                        (value, "c") => *counted.entry(name.to_owned()).or_default() += value.parse::<f64>().unwrap(),
                        (value, "g") => drop(gauges.insert(name.to_owned(), value.parse().unwrap())),
                        other => panic!("{other:?}"),
                    }
                }
            }
        };
        tokio::time::timeout(LIMIT, told).await.unwrap();
        while socket.try_recv(&mut buffer).is_ok() {}
        ctx.quiet().await;
        ctx.server.stop().await;
        // The latest values are sent at the end.
        tokio::time::timeout(LIMIT, socket.recv(&mut buffer)).await.unwrap().unwrap();
        ctx.server.start().await;
    });
}

/// Runs and jobs are counted by result and labels, with the times of their phases, for scrapers of both formats.
#[test]
fn work_is_counted_and_measured() {
    let yaml = workflow("", &[PLANNED], &["false"]);
    let flags = ["--metrics-labels=project", "--metrics-atlantis-names"];
    run_test(Setup::one_project().repos_yaml(&yaml).flags(&flags), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "error");
        let accept = [("accept", "application/openmetrics-text; version=1.0.0")];
        let scrape = async || ctx.request("GET", "/metrics", &accept).await.1;
        let counted =
            |page: &str, pattern: &str| regex::Regex::new(&format!("(?m)^{pattern}$")).unwrap().is_match(page);
        let apply = r#"tidelock_runs_total\{command="apply",result="error",repository="[^"]+/acme/infra"\} 1"#;
        ctx.until("the apply is counted", async || counted(&scrape().await, apply)).await;
        let page = scrape().await;
        for pattern in [
            "# TYPE tidelock_runs counter",
            r#"tidelock_runs_total\{command="plan",result="success",repository="[^"]+/acme/infra"\} 1"#,
            r#"tidelock_jobs_total\{command="plan",result="success",repository="[^"]+/acme/infra",project="[^"]+/default"\} 1"#,
            r#"tidelock_jobs_total\{command="apply",result="error",repository="[^"]+/acme/infra",project="[^"]+/default"\} 1"#,
            r#"tidelock_run_duration_seconds_count\{command="plan",trigger="autoplan"\} 1"#,
            r#"tidelock_phase_duration_seconds_count\{phase="run"\} [1-9]"#,
            r#"tidelock_phase_duration_seconds_count\{phase="checkout"\} [1-9]"#,
            "tidelock_queue_duration_seconds_count [1-9]",
            "tidelock_cmd_autoplan_execution_time_count 1",
            "tidelock_cmd_comment_apply_execution_time_count 1",
            "tidelock_project_apply_execution_error 1",
            "# EOF",
        ] {
            assert!(counted(&page, pattern), "{pattern}: {page}");
        }
    });
}

#[test]
fn jobs_at_an_executor_are_counted_and_shown_without_their_keys() {
    let setup = Setup::projects(&["a", "b"]).repos_yaml(&format!(
        "executors: {{jobs: {{kind: process, limit: 1}}}}\n{}",
        workflow("executor: [{plan: jobs, apply: jobs}]", &[&gate("plan"), PLANNED], &["true"])
    ));
    run_test(setup.own_process(), async |ctx| {
        let first = ctx.open_dirs("first", &["a"]).await;
        ctx.reached("plan", 1).await;
        let second = ctx.open_dirs("second", &["b"]).await;
        let expected = serde_json::json!([{"name": "jobs", "running": 1, "waiting": 1, "limit": 1}]);
        ctx.until("the second job waits", async || ctx.json("/status").await["executors"] == expected).await;
        let (_, metrics) = ctx.request("GET", "/metrics", &[]).await;
        for (figure, value) in [("running", 1), ("waiting", 1), ("limit", 1)] {
            let line = format!("\ntidelock_executor_jobs_{figure}{{executor=\"jobs\"}} {value}\n");
            assert!(metrics.contains(&line), "{metrics}");
        }
        let keys: Vec<String> = std::fs::read_dir(ctx.server.data("vault/jobs/jobs"))
            .unwrap()
            .map(|key| key.unwrap().file_name().into_string().unwrap())
            .collect();
        let (_, dashboard) = ctx.request("GET", "/", &[]).await;
        assert!(dashboard.contains("at the executor jobs"), "{dashboard}");
        let job = regex::Regex::new("jobs/([0-9a-f]{32})").unwrap().captures(&dashboard).unwrap()[0].to_owned();
        let (_, page) = ctx.request("GET", &format!("/{job}"), &[]).await;
        assert!(page.contains("at the executor jobs"), "{page}");
        let shown = dashboard + &page + &metrics;
        assert!(!keys.is_empty() && keys.iter().all(|key| !shown.contains(key.as_str())), "{keys:?} {shown}");
        ctx.open_gate("plan");
        ctx.next(&first).await.is("plan", "success");
        ctx.next(&second).await.is("plan", "success");
        let free = serde_json::json!([{"name": "jobs", "running": 0, "waiting": 0, "limit": 1}]);
        ctx.until("all have ended", async || ctx.json("/status").await["executors"] == free).await;
    });
}
