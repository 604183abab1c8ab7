//! `/metrics` in Prometheus' text format: role and lease, commits, the journal, the bucket, the inbox, deliveries. All
//! values are counters in memory, so a scrape reads neither the state nor the bucket.

use super::Site;
use super::answer::{HttpProblem, typed};
use crate::server_status::{Meters, Role, ServerStatus};
use crate::vault::leader::Figures;
use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Content type of the text format.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page.
pub(super) async fn page(State(site): State<Arc<Site>>) -> Result<Response, HttpProblem> {
    let server_status = site.server_status();
    let leader = server_status.services.as_ref().map(|services| &services.leader);
    let facts = MetricsData {
        server_status: &server_status,
        meters: &site.state.meters,
        figures: leader.map(|leader| leader.figures()),
        position: leader.map(|leader| leader.position().seq),
        in_progress: server_status.services.as_ref().map_or(0, |services| services.dispatch.in_progress()),
        requests: site.state.vault.bucket.requests(),
        now: Timestamp::now(),
    };
    Ok(typed(CONTENT_TYPE, facts.text()))
}

struct MetricsData<'a> {
    server_status: &'a ServerStatus,
    meters: &'a Meters,
    figures: Option<Figures>,
    position: Option<u64>,
    in_progress: usize,
    requests: Vec<(&'static str, u64)>,
    now: Timestamp,
}

impl MetricsData<'_> {
    fn text(&self) -> String {
        let mut page = Exposition(String::new());
        let server_status = self.server_status;
        page.family("role", "gauge", "1 for the role that this server has.");
        for role in Role::ALL {
            page.labelled("role", ("role", role.name()), u8::from(server_status.role == role));
        }
        let since = server_status.since.as_second();
        page.one("role_since_seconds", "gauge", "When it got this role, in seconds since 1970.", since);
        page.some("epoch", "gauge", "Epoch of the leader, as this server last saw it.", server_status.epoch);
        let mismatch = u8::from(server_status.mismatch);
        page.one("fingerprint_mismatch", "gauge", "1: it never leads, because its settings differ.", mismatch);
        page.one("jobs_in_progress", "gauge", "Commands that run or wait here.", self.in_progress);
        self.counts(&mut page);
        self.journal(&mut page);
        page.family("bucket_requests_total", "counter", "Requests to the bucket.");
        for (kind, count) in &self.requests {
            page.labelled("bucket_requests_total", ("kind", kind), count);
        }
        page.0
    }

    fn counts(&self, page: &mut Exposition) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let meters = self.meters;
        page.family("deliveries_total", "counter", "Deliveries, by how they were answered.");
        let ends = [
            ("recorded", &meters.accepted),
            ("inbox", &meters.stored),
            ("rejected", &meters.rejected),
            ("failed", &meters.failed),
        ];
        for (end, counter) in ends {
            page.labelled("deliveries_total", ("end", end), of(counter));
        }
        let waiting = of(&meters.waiting);
        page.one("inbox_waiting", "gauge", "Objects in the inbox at the leader's last look.", waiting);
        let help =
            "Objects in the inbox that the leader cannot use: signed with a secret it does not know, or damaged.";
        page.one("inbox_unusable", "gauge", help, of(&meters.unusable));
        page.one("leads_total", "counter", "How often this server took the lead.", of(&meters.leads));
        page.one("deposed_total", "counter", "How often it was deposed.", of(&meters.deposed));
    }

    fn journal(&self, page: &mut Exposition) {
        let Some(figures) = &self.figures else { return };
        let last = self.meters.last_commit.load(Ordering::Relaxed);
        let age = self.now.as_second().saturating_sub_unsigned(last).max(0);
        page.some("journal_seq", "gauge", "Number of the newest journal object.", self.position);
        page.one("commits_total", "counter", "Commits since this server leads.", figures.commits);
        page.one("commit_bytes_total", "counter", "Bytes of those.", figures.commit_bytes);
        let seconds = figures.last_commit.as_secs_f64();
        page.one("last_commit_duration_seconds", "gauge", "How long the last commit took.", seconds);
        let age = (last > 0).then_some(age);
        page.some("last_commit_age_seconds", "gauge", "Time since the last commit, by looks at each renewal.", age);
        let seconds = figures.lease_age.as_secs_f64();
        page.one("lease_age_seconds", "gauge", "Time since the last renewal of the lease that succeeded.", seconds);
        page.one("journal_tail_objects", "gauge", "Journal objects after the newest base.", figures.tail_objects);
        page.one("journal_tail_bytes", "gauge", "Bytes of those.", figures.tail_bytes);
        page.one("bases_total", "counter", "Bases written since this server leads.", figures.bases);
        page.one("base_bytes_total", "counter", "Bytes of those.", figures.base_bytes);
    }
}

struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP tidelock_{name} {help}\n# TYPE tidelock_{name} {kind}\n");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        let _ = writeln!(self.0, "tidelock_{name} {value}");
    }

    fn some(&mut self, name: &str, kind: &str, help: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.one(name, kind, help, value);
        }
    }

    /// A sample of the previous family. Labels are constants, so nothing needs escaping.
    fn labelled(&mut self, name: &str, (label, word): (&str, &str), value: impl Display) {
        let _ = writeln!(self.0, "tidelock_{name}{{{label}=\"{word}\"}} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insta::assert_snapshot;
    use std::time::Duration;

    #[test]
    fn a_leader_tells_all_and_a_standby_only_what_it_knows() {
        let meters = Meters::default();
        meters.stored.store(2, Ordering::Relaxed);
        meters.last_commit.store(1_000, Ordering::Relaxed);
        let since = Timestamp::from_second(900).unwrap();
        let server_status = ServerStatus { role: Role::Leading, since, epoch: Some(7), ..ServerStatus::starting() };
        let figures = Figures {
            commits: 3,
            commit_bytes: 4096,
            last_commit: Duration::from_millis(50),
            lease_age: Duration::from_millis(1500),
            ..Figures::default()
        };
        let mut facts = MetricsData {
            server_status: &server_status,
            meters: &meters,
            figures: Some(figures),
            position: Some(42),
            in_progress: 1,
            requests: vec![("put", 17)],
            now: Timestamp::from_second(1_060).unwrap(),
        };
        let samples = |text: String| text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        assert_snapshot!(samples(facts.text()), @r##"
    tidelock_role{role="standby"} 0
    tidelock_role{role="restoring"} 0
    tidelock_role{role="leading"} 1
    tidelock_role{role="draining"} 0
    tidelock_role_since_seconds 900
    tidelock_epoch 7
    tidelock_fingerprint_mismatch 0
    tidelock_jobs_in_progress 1
    tidelock_deliveries_total{end="recorded"} 0
    tidelock_deliveries_total{end="inbox"} 2
    tidelock_deliveries_total{end="rejected"} 0
    tidelock_deliveries_total{end="failed"} 0
    tidelock_inbox_waiting 0
    tidelock_inbox_unusable 0
    tidelock_leads_total 0
    tidelock_deposed_total 0
    tidelock_journal_seq 42
    tidelock_commits_total 3
    tidelock_commit_bytes_total 4096
    tidelock_last_commit_duration_seconds 0.05
    tidelock_last_commit_age_seconds 60
    tidelock_lease_age_seconds 1.5
    tidelock_journal_tail_objects 0
    tidelock_journal_tail_bytes 0
    tidelock_bases_total 0
    tidelock_base_bytes_total 0
    tidelock_bucket_requests_total{kind="put"} 17
    "##);
        facts.figures = None;
        let standby = facts.text();
        assert!(standby.contains("\ntidelock_deliveries_total{end=\"inbox\"} 2\n") && !standby.contains("commit"));
        // Each family is described once, before its samples.
        for line in standby.lines().filter(|line| !line.starts_with('#')) {
            let family = line.split(['{', ' ']).next().unwrap();
            assert_eq!(standby.matches(&format!("# TYPE {family} ")).count(), 1, "{line}");
        }
    }
}
