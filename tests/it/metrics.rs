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
