//! Metrics of the server itself: role and lease, commits, the journal, the bucket, the inbox, deliveries, executors.

use super::families::{Families, MetricKind, MetricSample};
use crate::dispatch::ExecutorUse;
use crate::server_status::{ConfigurationStatus, Meters, Role, ServerStatus};
use crate::vault::leader::Figures;
use crate::web::WebState;
use crate::web::pages::VERSION;
use MetricKind::{Counter, Gauge};
use jiff::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Commit that it was built from, where the build was told.
const REVISION: Option<&str> = option_env!("SOURCE_REVISION");

/// The data of these metrics, at one moment.
pub(super) struct ServerMetrics<'a> {
    server_status: &'a ServerStatus,
    meters: &'a Meters,
    figures: Option<Figures>,
    position: Option<u64>,
    in_progress: usize,
    executors: Vec<ExecutorUse>,
    /// Hosts that are polled, with the time since the last successful look.
    last_looks: Vec<(String, Duration)>,
    requests: Vec<(&'static str, u64)>,
    configuration: Option<Arc<ConfigurationStatus>>,
    now: Timestamp,
}

impl<'a> ServerMetrics<'a> {
    pub(super) fn new(state: &'a WebState, server_status: &'a ServerStatus, now: Timestamp) -> ServerMetrics<'a> {
        let services = server_status.services.as_ref();
        let leader = services.map(|services| &services.leader);
        ServerMetrics {
            server_status,
            meters: &state.meters,
            figures: leader.map(|leader| leader.figures()),
            position: leader.map(|leader| leader.position().seq),
            in_progress: services.map_or(0, |services| services.dispatch.in_progress()),
            executors: services.map(|services| services.dispatch.executors()).unwrap_or_default(),
            last_looks: services.map(|services| services.dispatch.last_looks()).unwrap_or_default(),
            requests: state.vault.bucket.requests(),
            configuration: state.configuration.as_ref().map(|configuration| configuration.borrow().clone()),
            now,
        }
    }

    /// Returns a page with them.
    pub(super) fn families(&self) -> Families {
        let mut page = Families::new();
        let build = vec![("version", VERSION.to_owned()), ("revision", REVISION.unwrap_or("unknown").to_owned())];
        page.add("build_info", Gauge, "1, with the version of this server.", vec![MetricSample::number(build, 1.0)]);
        let server_status = self.server_status;
        let roles = Role::ALL.map(|role| (role.name(), f64::from(u8::from(server_status.role == role))));
        page.labelled("role", Gauge, "1 for the role that this server has.", "role", &roles);
        let since = server_status.since.as_second() as f64;
        page.one("role_since_seconds", Gauge, "When it got this role, in seconds since 1970.", since);
        let epoch = server_status.epoch.map(|epoch| epoch as f64);
        page.some("epoch", Gauge, "Epoch of the leader, as this server last saw it.", epoch);
        let mismatch = f64::from(u8::from(server_status.mismatch));
        page.one("fingerprint_mismatch", Gauge, "1: it never leads, because its settings differ.", mismatch);
        page.one("jobs_in_progress", Gauge, "Commands that run or wait here.", self.in_progress as f64);
        self.configuration(&mut page);
        self.at_executors(&mut page);
        let looks: Vec<_> = self.last_looks.iter().map(|(host, age)| (host.as_str(), age.as_secs_f64())).collect();
        let help = "Time since the last look of polling that succeeded.";
        page.labelled("poll_last_look_age_seconds", Gauge, help, "host", &looks);
        self.counts(&mut page);
        self.journal(&mut page);
        let requests: Vec<_> = self.requests.iter().map(|(kind, count)| (*kind, *count as f64)).collect();
        page.labelled("bucket_requests_total", Counter, "Requests to the bucket.", "kind", &requests);
        page
    }

    fn configuration(&self, page: &mut Families) {
        let Some(configuration) = &self.configuration else { return };
        let failed = f64::from(u8::from(configuration.fault.is_some()));
        let help = "1: the files of the configuration have a mistake, and the version before is in effect.";
        page.one("config_reload_failed", Gauge, help, failed);
        let read = configuration.read.as_second() as f64;
        let help = "When the configuration was last read without a mistake, in seconds since 1970.";
        page.one("config_read_seconds", Gauge, help, read);
        let names = configuration.needs_restart.len() as f64;
        page.one("config_needs_restart", Gauge, "Changed settings that take effect at the next start.", names);
    }

    fn at_executors(&self, page: &mut Families) {
        if self.executors.is_empty() {
            return;
        }
        let of_each = |figure: fn(&ExecutorUse) -> usize| -> Vec<(&str, f64)> {
            self.executors.iter().map(|executor| (executor.name.as_str(), figure(executor) as f64)).collect()
        };
        let (running, waiting) = (of_each(|executor| executor.running), of_each(|executor| executor.waiting));
        page.labelled("executor_jobs_running", Gauge, "Jobs that run at an executor.", "executor", &running);
        page.labelled(
            "executor_jobs_waiting",
            Gauge,
            "Jobs that wait for others at an executor.",
            "executor",
            &waiting,
        );
        let limits = of_each(|executor| executor.limit);
        page.labelled("executor_jobs_limit", Gauge, "Most jobs that may run there at once.", "executor", &limits);
    }

    fn counts(&self, page: &mut Families) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let meters = self.meters;
        let ends = [
            ("recorded", of(&meters.accepted)),
            ("inbox", of(&meters.stored)),
            ("rejected", of(&meters.rejected)),
            ("failed", of(&meters.failed)),
        ];
        page.labelled("deliveries_total", Counter, "Deliveries, by how they were answered.", "end", &ends);
        let waiting = of(&meters.waiting);
        page.one("inbox_waiting", Gauge, "Objects in the inbox at the leader's last look.", waiting);
        let help =
            "Objects in the inbox that the leader cannot use: signed with a secret it does not know, or damaged.";
        page.one("inbox_unusable", Gauge, help, of(&meters.unusable));
        page.one("leads_total", Counter, "How often this server took the lead.", of(&meters.leads));
        page.one("deposed_total", Counter, "How often it was deposed.", of(&meters.deposed));
    }

    fn journal(&self, page: &mut Families) {
        let Some(figures) = &self.figures else { return };
        let last = self.meters.last_commit.load(Ordering::Relaxed);
        let age = self.now.as_second().saturating_sub_unsigned(last).max(0);
        page.some("journal_seq", Gauge, "Number of the newest journal object.", self.position.map(|seq| seq as f64));
        page.one("commits_total", Counter, "Commits since this server leads.", figures.commits as f64);
        page.one("commit_bytes_total", Counter, "Bytes of those.", figures.commit_bytes as f64);
        let seconds = figures.last_commit.as_secs_f64();
        page.one("last_commit_duration_seconds", Gauge, "How long the last commit took.", seconds);
        let seconds = figures.ongoing.unwrap_or_default().as_secs_f64();
        page.one(
            "ongoing_commit_seconds",
            Gauge,
            "How long the present commit has taken so far; 0: there is none.",
            seconds,
        );
        let age = (last > 0).then_some(age as f64);
        page.some("last_commit_age_seconds", Gauge, "Time since the last commit, by looks at each renewal.", age);
        let seconds = figures.lease_age.as_secs_f64();
        page.one("lease_age_seconds", Gauge, "Time since the last renewal of the lease that succeeded.", seconds);
        page.one("journal_tail_objects", Gauge, "Journal objects after the newest base.", figures.tail_objects as f64);
        page.one("journal_tail_bytes", Gauge, "Bytes of those.", figures.tail_bytes as f64);
        page.one("bases_total", Counter, "Bases written since this server leads.", figures.bases as f64);
        page.one("base_bytes_total", Counter, "Bytes of those.", figures.base_bytes as f64);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::web::metrics::exposition::Exposition;
    use insta::assert_snapshot;

    /// Calls `look` with the data of a leader that has an executor.
    pub(in crate::web::metrics) fn leader_with_executor<T>(look: impl FnOnce(&mut ServerMetrics<'_>) -> T) -> T {
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
        let mut facts = ServerMetrics {
            server_status: &server_status,
            meters: &meters,
            figures: Some(figures),
            position: Some(42),
            in_progress: 1,
            executors: vec![ExecutorUse { name: "plans".into(), running: 2, waiting: 1, limit: 20 }],
            last_looks: vec![("github.com".to_owned(), Duration::from_secs(9))],
            requests: vec![("put", 17)],
            configuration: Some(Arc::new(ConfigurationStatus {
                read: Timestamp::from_second(950).unwrap(),
                fault: None,
                needs_restart: vec!["port".to_owned()],
            })),
            now: Timestamp::from_second(1_060).unwrap(),
        };
        look(&mut facts)
    }

    #[test]
    fn a_leader_tells_all_and_a_standby_only_what_it_knows() {
        leader_with_executor(check);
    }

    fn check(facts: &mut ServerMetrics<'_>) {
        let exposition = |families: Families, namespace| Exposition::Text.write(&families.into_vec(), namespace);
        let samples = |text: String| {
            text.lines()
                .filter(|line| !line.starts_with('#') && !line.contains("_build_info"))
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert_snapshot!(samples(exposition(facts.families(), "tidelock")), @r##"
    tidelock_role{role="standby"} 0
    tidelock_role{role="restoring"} 0
    tidelock_role{role="leading"} 1
    tidelock_role{role="draining"} 0
    tidelock_role{role="asleep"} 0
    tidelock_role_since_seconds 900
    tidelock_epoch 7
    tidelock_fingerprint_mismatch 0
    tidelock_jobs_in_progress 1
    tidelock_config_reload_failed 0
    tidelock_config_read_seconds 950
    tidelock_config_needs_restart 1
    tidelock_executor_jobs_running{executor="plans"} 2
    tidelock_executor_jobs_waiting{executor="plans"} 1
    tidelock_executor_jobs_limit{executor="plans"} 20
    tidelock_poll_last_look_age_seconds{host="github.com"} 9
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
    tidelock_ongoing_commit_seconds 0
    tidelock_last_commit_age_seconds 60
    tidelock_lease_age_seconds 1.5
    tidelock_journal_tail_objects 0
    tidelock_journal_tail_bytes 0
    tidelock_bases_total 0
    tidelock_base_bytes_total 0
    tidelock_bucket_requests_total{kind="put"} 17
    "##);
        let renamed = exposition(facts.families(), "acme.infra-1");
        assert!(renamed.contains("\nacme_infra_1_journal_seq 42\n"), "{renamed}");
        (facts.figures, facts.executors) = (None, Vec::new());
        let standby = exposition(facts.families(), "tidelock");
        assert!(standby.contains("\ntidelock_deliveries_total{end=\"inbox\"} 2\n") && !standby.contains("commit"));
        assert!(!standby.contains("executor"), "{standby}");
        // Each family is described once, before its samples.
        for line in standby.lines().filter(|line| !line.starts_with('#')) {
            let family = line.split(['{', ' ']).next().unwrap();
            assert_eq!(standby.matches(&format!("# TYPE {family} ")).count(), 1, "{line}");
        }
    }
}
