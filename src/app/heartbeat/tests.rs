use super::*;
use crate::app::logging;
use regex::Regex;
use serde_json::Value;
use std::io::Write;
use std::sync::Mutex;

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the lines of the log, in the server's format.
fn logged(act: impl FnOnce()) -> Vec<Value> {
    let kept = Kept::default();
    let writer = kept.clone();
    tracing::subscriber::with_default(logging::json_lines(move || writer.clone()), act);
    let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn leading(figures: &Figures, commits: &mut u64) -> Value {
    let counts = Counts { inbox_waiting: 2, inbox_unusable: 1, in_progress: 1, refused_by_host: 3 };
    logged(|| write(Role::Leading, Some(7), Some(figures), &counts, commits)).remove(0)
}

#[test]
fn the_modules_metrics_count_a_leaders_line_and_no_other() {
    let terraform = include_str!("../../../terraform/monitoring.tf");
    let metric = Regex::new(r#"(?s)resource "google_logging_metric" "(\w+)" \{.*?\n\}"#).unwrap();
    let equal = Regex::new(r#"jsonPayload\.(\w+)=\\"(\w+)\\""#).unwrap();
    let least = Regex::new(r"jsonPayload\.(\w+)>=(\d+)").unwrap();
    let extracted = Regex::new(r"EXTRACT\(jsonPayload\.(\w+)\)").unwrap();
    let counts = |text: &str, line: &Value| {
        equal.captures_iter(text).all(|found| line[&found[1]] == found[2])
            && least.captures_iter(text).all(|found| line[&found[1]].as_u64() >= found[2].parse().ok())
            && extracted.captures_iter(text).all(|found| line[&found[1]].is_u64())
    };
    let ours = leading(&Figures::default(), &mut 0);
    let others = logged(|| {
        write(Role::Standby, Some(7), None, &Counts::default(), &mut 0);
        tracing::info!(role = "leading", epoch = 7, "ready");
    });
    let (metrics, further): (Vec<_>, Vec<_>) =
        metric.captures_iter(terraform).partition(|found| found[0].contains(r#"message=\"heartbeat\""#));
    assert_eq!(metrics.len(), 3);
    for found in &metrics {
        let text = &found[0];
        assert!(equal.is_match(text), "{text}");
        assert!(counts(text, &ours), "{} does not count {ours}", &found[1]);
        for other in &others {
            assert!(!counts(text, other), "{} counts {other}", &found[1]);
        }
    }
    // The line "ready" counts the servers that begin to lead.
    let takeovers = further.iter().find(|found| &found[1] == "takeovers").unwrap();
    assert!(counts(&takeovers[0], &others[1]), "takeovers does not count {}", others[1]);
    assert!([&others[0], &ours].iter().all(|line| !counts(&takeovers[0], line)));
    // All expressions of the module are checked above.
    assert_eq!(
        terraform.matches("jsonPayload.").count(),
        [&equal, &least, &extracted].map(|kind| kind.find_iter(terraform).count()).iter().sum::<usize>()
    );
}

#[test]
fn a_line_has_what_an_operator_looks_for() {
    let figures = Figures {
        commits: 3,
        last_commit: Duration::from_millis(50),
        lease_age: Duration::from_millis(1500),
        ..Figures::default()
    };
    let mut line = leading(&figures, &mut 2);
    line.as_object_mut().unwrap().remove("timestamp");
    insta::assert_snapshot!(line, @r#"{"commit_lag_ms":50,"epoch":7,"in_progress":1,"inbox_unusable":1,"inbox_waiting":2,"lease_age_ms":1500,"level":"INFO","message":"heartbeat","refused_by_host":3,"role":"leading"}"#);
}

#[test]
fn the_lag_is_what_people_wait_for_and_not_the_time_since_the_last_commit() {
    let mut commits = 0;
    let lag = |commits: &mut u64, done: u64, last: u64, ongoing: Option<u64>| {
        let figures = Figures {
            commits: done,
            last_commit: Duration::from_millis(last),
            ongoing: ongoing.map(Duration::from_millis),
            ..Figures::default()
        };
        leading(&figures, commits)["commit_lag_ms"].as_u64().unwrap()
    };
    assert_eq!(lag(&mut commits, 0, 0, None), 0);
    assert_eq!(lag(&mut commits, 5, 80, None), 80);
    // No commit since then: nobody waits.
    assert_eq!(lag(&mut commits, 5, 80, None), 0);
    // One commit hangs.
    assert_eq!(lag(&mut commits, 5, 80, Some(61_000)), 61_000);
    assert_eq!(lag(&mut commits, 6, 70_000, Some(3)), 70_000);
}

/// A server whose log lines the test reads.
struct Beating {
    kept: Kept,
    tell: watch::Sender<Arc<ServerStatus>>,
    _logging: tracing::subscriber::DefaultGuard,
}

/// Interval between two lines of a leader.
const EVERY: Duration = Duration::from_millis(5);

impl Beating {
    fn start() -> Beating {
        let kept = Kept::default();
        let writer = kept.clone();
        let logging = tracing::subscriber::set_default(logging::json_lines(move || writer.clone()));
        let (tell, server_status) = watch::channel(Arc::new(ServerStatus::starting()));
        tokio::spawn(beat(server_status, Arc::default(), EVERY));
        Beating { kept, tell, _logging: logging }
    }

    /// Changes to this role and waits until that many lines of it are written; returns their number.
    async fn until(&self, role: Role, lines: usize) -> usize {
        self.tell.send(Arc::new(ServerStatus { role, epoch: Some(1), ..ServerStatus::starting() })).unwrap();
        self.written(role, lines).await
    }

    /// Waits until that many lines of a role are written; returns their number.
    async fn written(&self, role: Role, lines: usize) -> usize {
        let all_said = async {
            loop {
                let text = String::from_utf8(self.kept.0.lock().unwrap().clone()).unwrap();
                let said = text.lines().filter(|line| line.contains(&format!("\"role\":\"{}\"", role.name()))).count();
                if said >= lines {
                    return said;
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), all_said).await.expect("a line was not written")
    }
}

#[tokio::test]
async fn a_leader_beats_again_and_again_and_others_only_when_they_change() {
    let server = Beating::start();
    server.until(Role::Standby, 1).await;
    // Meanwhile a leader writes ten lines.
    let (leader, server_status) =
        watch::channel(Arc::new(ServerStatus { role: Role::Restoring, epoch: Some(1), ..ServerStatus::starting() }));
    tokio::spawn(beat(server_status, Arc::default(), EVERY));
    leader.send(Arc::new(ServerStatus { role: Role::Draining, epoch: Some(1), ..ServerStatus::starting() })).unwrap();
    server.written(Role::Draining, 10).await;
    drop(leader);
    assert_eq!(server.written(Role::Standby, 1).await, 1);
    server.until(Role::Leading, 3).await;
    let before = server.written(Role::Draining, 10).await;
    server.until(Role::Draining, before + 2).await;
    server.until(Role::Standby, 2).await;
}

#[tokio::test]
async fn a_change_in_the_moment_of_a_beat_is_written_too() {
    let server = Beating::start();
    for round in 1..30 {
        server.until(Role::Leading, round).await;
        // The tick is due and the change has happened before the task runs.
        std::thread::sleep(2 * EVERY);
        assert_eq!(server.until(Role::Standby, round).await, round);
    }
}
