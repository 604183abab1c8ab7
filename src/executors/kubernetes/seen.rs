//! What a pod and a Job say of themselves: pure functions of their objects.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodCondition, PodStatus};

/// Longest text of an engine that is shown, in characters.
const MAX_TEXT: usize = 300;
/// Reasons that a container waits for in the usual course of a start.
const USUAL: [&str; 2] = ["ContainerCreating", "PodInitializing"];
/// Reasons of a terminated container whose message is from the runtime, and not from the container itself.
const OF_RUNTIME: [&str; 3] = ["ContainerCannotRun", "StartError", "RunContainerError"];

/// A pod, as far as its job is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PodPhase {
    /// The container has not begun.
    Waiting(Option<WaitingReason>),
    /// The container runs.
    Running,
    /// The container ran when this was last heard of, and may be dead, for the reason in the text.
    Doubtful(String),
    /// The container has ended, or never began and never will, for the reason in the text.
    Ended(String),
}

/// Why a pod has not begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitingReason {
    /// Word for it, such as `Unschedulable`.
    pub(super) word: String,
    /// All of it, for people.
    pub(super) text: String,
    /// It is part of every start, unless it lasts.
    pub(super) is_usual: bool,
}

/// A Job, as far as it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JobPhase {
    /// It has pods, or will.
    Active,
    /// It waits for whoever has suspended it.
    Suspended,
    /// Its controller ends its pods, or they have ended, for the reason in the text.
    Failing(String),
    /// It has finished, for the reason in the text.
    Finished(String),
}

/// Returns one bounded line of a text that strangers can have written.
pub(super) fn one_line(text: &str) -> String {
    let mut line: String = text.trim().chars().take(MAX_TEXT).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.trim().chars().nth(MAX_TEXT).is_some() {
        line.push('…');
    }
    line
}

/// Returns `reason: message`, as far as they are there.
fn reason_of(reason: Option<&String>, message: Option<&String>) -> Option<String> {
    let mut parts = [reason, message].into_iter().flatten().filter(|part| !part.trim().is_empty());
    let first = parts.next()?;
    Some(one_line(&parts.next().map_or_else(|| first.clone(), |second| format!("{first}: {second}"))))
}

impl JobPhase {
    pub(super) fn of(job: &Job) -> JobPhase {
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let holds = |kind: &str| conditions.iter().find(|one| one.type_ == kind && one.status == "True");
        let why = |kind: &str| {
            holds(kind).map(|one| reason_of(one.reason.as_ref(), one.message.as_ref()).unwrap_or_default())
        };
        if let Some(why) = why("Failed").or_else(|| why("Complete")) {
            return JobPhase::Finished(why);
        }
        if let Some(why) = why("FailureTarget") {
            return JobPhase::Failing(why);
        }
        match job.spec.as_ref().and_then(|spec| spec.suspend) {
            Some(true) => JobPhase::Suspended,
            _ => JobPhase::Active,
        }
    }

    /// Returns the reason of the end, if the Job's own one says more than those of its pods.
    pub(super) fn own_reason(&self) -> Option<&str> {
        match self {
            JobPhase::Failing(why) | JobPhase::Finished(why) => Some(why.as_str()),
            JobPhase::Active | JobPhase::Suspended => None,
        }
        .filter(|why| why.starts_with("DeadlineExceeded"))
    }
}

impl PodPhase {
    /// Returns the phase of a pod whose container of this name runs the job.
    pub(super) fn of(pod: &Pod, container: &str) -> PodPhase {
        let nothing = PodStatus::default();
        let status = pod.status.as_ref().unwrap_or(&nothing);
        let own = status.container_statuses.iter().flatten().find(|status| status.name == container);
        let state = own.and_then(|own| own.state.as_ref());
        let has_ended = matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"));
        match state {
            Some(ContainerState { terminated: Some(_), .. }) => PodPhase::Ended(why_ended(status, state)),
            // The cluster has given its node up, and nobody has seen the end of the process.
            Some(ContainerState { running: Some(_), .. }) if has_ended => {
                PodPhase::Doubtful(why_disrupted(status).unwrap_or_else(|| "its pod was given up".to_owned()))
            }
            _ if has_ended => PodPhase::Ended(why_ended(status, state)),
            Some(ContainerState { running: Some(_), .. }) => match why_doubtful(status, own) {
                Some(why) => PodPhase::Doubtful(why),
                None => PodPhase::Running,
            },
            _ => {
                let is_deleted = pod.metadata.deletion_timestamp.is_some();
                let deleted = is_deleted.then(|| "its pod is being deleted".to_owned());
                // On a lost node it stays like this.
                match why_disrupted(status).or(deleted) {
                    Some(why) => PodPhase::Doubtful(why),
                    None => PodPhase::Waiting(why_waiting(status)),
                }
            }
        }
    }
}

fn condition<'a>(status: &'a PodStatus, kind: &str, value: &str) -> Option<&'a PodCondition> {
    status.conditions.iter().flatten().find(|one| one.type_ == kind && one.status == value)
}

/// Returns why a pod was, or is being, taken away.
fn why_disrupted(status: &PodStatus) -> Option<String> {
    let own = reason_of(status.reason.as_ref(), status.message.as_ref());
    own.or_else(|| {
        let one = condition(status, "DisruptionTarget", "True")?;
        reason_of(one.reason.as_ref(), one.message.as_ref())
    })
}

fn why_ended(status: &PodStatus, state: Option<&ContainerState>) -> String {
    if let Some(why) = why_disrupted(status) {
        return why;
    }
    let failed = |state: &&ContainerState| state.terminated.as_ref().is_some_and(|ended| ended.exit_code != 0);
    let of_init = || {
        let mut all = status.init_container_statuses.iter().flatten();
        all.find_map(|one| Some((one, one.state.as_ref().filter(failed)?)))
    };
    let (at, state) = match (state, of_init()) {
        (Some(state), _) if state.terminated.is_some() => (String::new(), Some(state)),
        (_, Some((one, state))) => (format!("init container {}: ", one.name), Some(state)),
        (state, None) => (String::new(), state),
    };
    let Some(ended) = state.and_then(|state| state.terminated.as_ref()) else {
        return "its pod ended before it began".to_owned();
    };
    let code = ended.exit_code;
    let why = match ended.reason.as_deref() {
        Some("OOMKilled") => format!("OOMKilled: the container needed more memory than its limit (exit code {code})"),
        Some(reason) if OF_RUNTIME.contains(&reason) => {
            reason_of(ended.reason.as_ref(), ended.message.as_ref()).unwrap_or_default()
        }
        _ if code == 0 => "it exited with code 0 without a result".to_owned(),
        _ => format!("it exited with code {code}"),
    };
    one_line(&format!("{at}{why}"))
}

/// Returns why a pod whose container runs may be dead.
fn why_doubtful(status: &PodStatus, own: Option<&ContainerStatus>) -> Option<String> {
    if let Some(why) = why_disrupted(status) {
        return Some(why);
    }
    // The container's own state says that it is ready: then it is the node controller that says otherwise.
    let is_ready = own.is_some_and(|own| own.ready);
    let not_ready = condition(status, "Ready", "False").or_else(|| condition(status, "Ready", "Unknown"));
    not_ready.filter(|one| is_ready && one.reason.as_deref() != Some("ContainersNotReady")).map(|one| {
        let why = reason_of(one.reason.as_ref(), one.message.as_ref());
        why.unwrap_or_else(|| "NodeNotReady: the node of its pod does not answer".to_owned())
    })
}

fn why_waiting(status: &PodStatus) -> Option<WaitingReason> {
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let mut waiting = containers.filter_map(|one| one.state.as_ref()?.waiting.as_ref());
    let unusual = |reason: &Option<String>| reason.as_deref().is_some_and(|reason| !USUAL.contains(&reason));
    let of_container = waiting.clone().find(|one| unusual(&one.reason)).or_else(|| waiting.next());
    let (reason, message) = match of_container {
        Some(one) => (one.reason.as_ref(), one.message.as_ref()),
        None => {
            let one = condition(status, "PodScheduled", "False")?;
            (one.reason.as_ref(), one.message.as_ref())
        }
    };
    let word = one_line(reason?);
    // Both take turns.
    let word = if word == "ErrImagePull" { "ImagePullBackOff".to_owned() } else { word };
    let text = reason_of(Some(&word), message)?;
    let is_usual = USUAL.contains(&word.as_str());
    Some(WaitingReason { word, text, is_usual })
}
