//! What is known of the Jobs of an executor and of their pods. Reasons stay when the cluster has deleted the objects that gave them.

use super::seen::{JobPhase, PodPhase};
use super::template::JOB_LABEL;
use crate::executors::engine::EngineState;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Most jobs that are known at once.
const MAX_JOBS: usize = 20_000;
/// Time for which a job is known whose Jobs are deleted.
const KEPT: Duration = Duration::from_secs(3600);
/// Time for which a Job may have no pod before that is worth telling.
const WITHOUT_POD: Duration = Duration::from_secs(30);
/// Time that the usual steps of a pod's start may take before they are worth telling.
const STARTING: Duration = Duration::from_secs(60);
/// Time for which a watch may fail before what it said of a running pod does not count any more.
const FAILING: Duration = Duration::from_secs(30);
/// Label of pods with the name of their Job; the controller sets it.
const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";

/// Kinds of watched objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchedKind {
    Jobs,
    Pods,
}

/// What is known of all jobs of an executor.
#[derive(Debug)]
pub(super) struct KnownJobs {
    /// Name of the container that runs the job.
    container: String,
    /// By the hash of their prefix.
    jobs: HashMap<String, KnownJob>,
    watches: [WatchState; 2],
}

/// State of the watch of a kind.
#[derive(Debug, Default)]
struct WatchState {
    /// Number of the last list. An object that was seen before it and is not in it is deleted.
    list: u64,
    /// Its first list has arrived.
    has_list: bool,
    /// Time of its first failure since it worked.
    failing: Option<Instant>,
}

#[derive(Debug)]
struct KnownJob {
    /// Jobs of the cluster for it, by name: one for each start.
    attempts: BTreeMap<String, KnownAttempt>,
    changed: Instant,
}

#[derive(Debug)]
struct KnownAttempt {
    phase: JobPhase,
    presence: Presence,
    pods: BTreeMap<String, KnownPod>,
}

#[derive(Debug)]
struct KnownPod {
    phase: PodPhase,
    presence: Presence,
}

/// Whether an object is there.
#[derive(Debug)]
struct Presence {
    is_gone: bool,
    /// Number of the list before its last sight.
    list: u64,
    since: Instant,
}

impl Presence {
    fn new(list: u64) -> Presence {
        Presence { is_gone: false, list, since: Instant::now() }
    }
}

impl KnownJobs {
    pub(super) fn new(container: String) -> KnownJobs {
        KnownJobs { container, jobs: HashMap::new(), watches: Default::default() }
    }

    fn watch(&mut self, kind: WatchedKind) -> &mut WatchState {
        &mut self.watches[kind as usize]
    }

    /// Notes that a list of this kind is asked for.
    pub(super) fn begin_list(&mut self, kind: WatchedKind) {
        self.watch(kind).list += 1;
    }

    /// Notes that the objects of the list were all seen.
    pub(super) fn end_list(&mut self, kind: WatchedKind) {
        let list = self.watch(kind).list;
        self.watch(kind).has_list = true;
        for attempt in self.jobs.values_mut().flat_map(|job| job.attempts.values_mut()) {
            match kind {
                WatchedKind::Jobs if attempt.presence.list < list => attempt.presence.is_gone = true,
                WatchedKind::Jobs => {}
                WatchedKind::Pods => {
                    attempt.pods.values_mut().filter(|pod| pod.presence.list < list).for_each(KnownPod::lose)
                }
            }
        }
        self.forget_old();
    }

    /// Notes that a watch works, or does not. Returns true if that is new.
    pub(super) fn works(&mut self, kind: WatchedKind, works: bool) -> bool {
        let watch = self.watch(kind);
        let was = watch.failing.is_none();
        match works {
            true => watch.failing = None,
            false => _ = watch.failing.get_or_insert_with(Instant::now),
        }
        was != works
    }

    /// Notes that nothing is watched any more.
    pub(super) fn interrupt(&mut self) {
        for watch in &mut self.watches {
            (watch.has_list, watch.failing) = (false, None);
        }
    }

    /// Returns true if both kinds were listed.
    pub(super) fn is_complete(&self) -> bool {
        self.watches.iter().all(|watch| watch.has_list)
    }

    /// Notes a Job as it is now.
    pub(super) fn see_job(&mut self, job: &Job) {
        let list = self.watch(WatchedKind::Jobs).list;
        let Some(attempt) = self.attempt(&job.metadata, job.metadata.name.as_deref()) else { return };
        attempt.phase = JobPhase::of(job);
        (attempt.presence.is_gone, attempt.presence.list) = (false, list);
    }

    /// Notes that a Job is deleted.
    pub(super) fn lose_job(&mut self, job: &Job) {
        self.see_job(job);
        if let Some(attempt) = self.attempt(&job.metadata, job.metadata.name.as_deref()) {
            attempt.presence.is_gone = true;
        }
    }

    /// Notes a pod as it is now.
    pub(super) fn see_pod(&mut self, pod: &Pod) {
        let (list, phase) = (self.watch(WatchedKind::Pods).list, PodPhase::of(pod, &self.container));
        let Some(known) = self.pod(pod) else { return };
        known.see(phase);
        known.presence.list = list;
    }

    /// Notes that a pod is deleted.
    pub(super) fn lose_pod(&mut self, pod: &Pod) {
        self.see_pod(pod);
        if let Some(known) = self.pod(pod) {
            known.lose();
        }
    }

    fn pod(&mut self, pod: &Pod) -> Option<&mut KnownPod> {
        let (list, name) = (self.watch(WatchedKind::Pods).list, pod.metadata.name.clone()?);
        let job = pod.metadata.labels.as_ref()?.get(JOB_NAME_LABEL)?;
        let new = || KnownPod { phase: PodPhase::Waiting(None), presence: Presence::new(list) };
        Some(self.attempt(&pod.metadata, Some(job))?.pods.entry(name).or_insert_with(new))
    }

    fn attempt(&mut self, of: &ObjectMeta, name: Option<&str>) -> Option<&mut KnownAttempt> {
        let hash = of.labels.as_ref()?.get(JOB_LABEL)?;
        let list = self.watch(WatchedKind::Jobs).list;
        if self.jobs.len() >= MAX_JOBS && !self.jobs.contains_key(hash) {
            return None;
        }
        let new = || KnownJob { attempts: BTreeMap::new(), changed: Instant::now() };
        let job = self.jobs.entry(hash.clone()).or_insert_with(new);
        job.changed = Instant::now();
        let new = || KnownAttempt { phase: JobPhase::Active, presence: Presence::new(list), pods: BTreeMap::new() };
        Some(job.attempts.entry(name?.to_owned()).or_insert_with(new))
    }

    /// Forgets a job. Returns the names of its Jobs that are left and have not begun; `None` if it is not known.
    pub(super) fn forget(&mut self, hash: &str) -> Option<Vec<String>> {
        let job = self.jobs.remove(hash)?;
        let has_begun = |attempt: &KnownAttempt| {
            matches!(attempt.phase, JobPhase::Finished(_))
                || attempt.pods.values().any(|pod| !matches!(pod.phase, PodPhase::Waiting(_)))
        };
        let left = job.attempts.into_iter().filter(|(_, attempt)| !attempt.presence.is_gone && !has_begun(attempt));
        Some(left.map(|(name, _)| name).collect())
    }

    /// Forgets jobs whose Jobs have been deleted for long.
    pub(super) fn forget_old(&mut self) {
        self.jobs.retain(|_, job| {
            job.changed.elapsed() < KEPT || job.attempts.values().any(|attempt| !attempt.presence.is_gone)
        });
    }

    /// Returns the state of a job at this time, which is the present.
    pub(super) fn state(&self, hash: &str, now: Instant) -> EngineState {
        let Some(job) = self.jobs.get(hash) else { return EngineState::Unknown };
        let states = job.attempts.values().map(|attempt| attempt.state(now));
        // Any attempt can have the claim. The last of the most hopeful counts.
        let state = states.max_by_key(hope).unwrap_or(EngineState::Unknown);
        let has_failed = self.watches.iter().filter_map(|watch| watch.failing).any(|since| lasts(since, now, FAILING));
        let runs = || {
            job.attempts.values().flat_map(|attempt| attempt.pods.values()).any(|pod| pod.phase == PodPhase::Running)
        };
        match state {
            // Its signs of life tell more.
            EngineState::Alive if has_failed && runs() => EngineState::Unknown,
            // There may be a later attempt that was not seen yet.
            EngineState::Ended(_) if self.watches.iter().any(|watch| watch.failing.is_some()) => EngineState::Unknown,
            state => state,
        }
    }
}

fn lasts(since: Instant, now: Instant, time: Duration) -> bool {
    now.saturating_duration_since(since) >= time
}

/// Returns an order of states: the attempt that may end the job comes last.
fn hope(state: &EngineState) -> u8 {
    match state {
        EngineState::Unknown => 0,
        EngineState::Ended(_) => 1,
        EngineState::Held(_) => 2,
        EngineState::Doubtful(_) => 3,
        EngineState::Alive => 4,
    }
}

impl KnownPod {
    /// The reason of an end stays, and so does the first one of a wait: the cluster words it anew all the time.
    fn see(&mut self, phase: PodPhase) {
        self.phase = match (std::mem::replace(&mut self.phase, PodPhase::Running), phase) {
            (ended @ PodPhase::Ended(_), _) => ended,
            (PodPhase::Waiting(Some(old)), PodPhase::Waiting(Some(new))) if old.word == new.word => {
                PodPhase::Waiting(Some(old))
            }
            (_, phase) => phase,
        };
    }

    fn lose(&mut self) {
        self.presence.is_gone = true;
        self.phase = match std::mem::replace(&mut self.phase, PodPhase::Running) {
            PodPhase::Waiting(reason) => {
                let why = reason.filter(|reason| !reason.is_usual).map(|reason| format!(": {}", reason.text));
                PodPhase::Ended(format!("its pod was deleted before it began{}", why.unwrap_or_default()))
            }
            // Nobody has seen the end of its process: on a lost node it may run on.
            PodPhase::Running => PodPhase::Doubtful("its pod was deleted while it ran".to_owned()),
            known => known,
        };
    }

    fn state(&self, now: Instant) -> EngineState {
        match &self.phase {
            PodPhase::Running => EngineState::Alive,
            PodPhase::Doubtful(why) => EngineState::Doubtful(why.clone()),
            PodPhase::Ended(why) => EngineState::Ended(why.clone()),
            PodPhase::Waiting(Some(reason)) if !reason.is_usual || lasts(self.presence.since, now, STARTING) => {
                EngineState::Held(reason.text.clone())
            }
            PodPhase::Waiting(_) => EngineState::Alive,
        }
    }
}

impl KnownAttempt {
    fn state(&self, now: Instant) -> EngineState {
        let of_pods = self.pods.values().map(|pod| pod.state(now)).max_by_key(hope);
        let is_deleted = self.presence.is_gone && !matches!(self.phase, JobPhase::Finished(_));
        match of_pods {
            Some(EngineState::Ended(why)) => EngineState::Ended(match self.phase.own_reason() {
                Some(own) => own.to_owned(),
                None if is_deleted => format!("its Job was deleted: {why}"),
                None => why,
            }),
            Some(state) => state,
            None if is_deleted => EngineState::Doubtful("its Job was deleted".to_owned()),
            None => match &self.phase {
                JobPhase::Failing(why) | JobPhase::Finished(why) => {
                    EngineState::Doubtful(format!("its Job has ended: {why}"))
                }
                JobPhase::Suspended => EngineState::Held("its Job is suspended, as queues such as Kueue do".to_owned()),
                JobPhase::Active if lasts(self.presence.since, now, WITHOUT_POD) => {
                    EngineState::Held("its Job has no pod yet; its events say why (`kubectl describe job`)".to_owned())
                }
                JobPhase::Active => EngineState::Alive,
            },
        }
    }
}
