//! Templates, and what objects of a cluster say. The objects are written by hand after those that a real API server 1.33 has shown;
//! `scripts/check-kube` plays with the server itself.

use super::known::{KnownJobs, WatchedKind};
use super::template::{JobIdentity, job_hash};
use super::*;
use crate::executors::Beginning;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

const VARIABLE: &str = "TIDELOCK_JOB";

/// A template of the fewest lines.
const LEAST: &str = "\
apiVersion: batch/v1
kind: Job
spec:
  template:
    spec:
      containers:
        - name: job
          image: tidelock
";

fn parsed(text: &str) -> Result<JobTemplate, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.yaml");
    std::fs::write(&path, text).unwrap();
    let directory = format!("{}/", dir.path().display());
    JobTemplate::read(&path, VARIABLE).map_err(|error| format!("{error:#}").replace(&directory, ""))
}

fn prefix() -> JobPrefix {
    JobPrefix::new("plans", &"a".repeat(32)).unwrap()
}

fn made(template: &JobTemplate) -> Job {
    let env = [("TIDELOCK_BUCKET".to_owned(), "gs://acme/prod".to_owned())];
    let identity = JobIdentity { executor: "plans", namespace: "jobs", env: &env, job_variable: VARIABLE };
    let prefix = prefix();
    template.job(
        EngineJob { prefix: &prefix, grace: Duration::from_secs(300), beginning: Beginning::Own, is_claimed: false },
        2,
        &identity,
    )
}

#[test]
fn a_job_is_made_of_the_template_and_of_what_the_server_sets() {
    let job = made(&parsed(LEAST).unwrap());
    let hash = job_hash(&prefix());
    let labels = serde_json::json!({
        "app.kubernetes.io/managed-by": "tidelock", "tidelock/executor": "plans", "tidelock/job": hash,
    });
    let container = serde_json::json!({
        "name": "job", "image": "tidelock", "args": ["run-job"],
        "env": [
            {"name": "TIDELOCK_BUCKET", "value": "gs://acme/prod"},
            {"name": "TIDELOCK_JOB", "value": prefix().to_string()},
        ],
    });
    let pod = serde_json::json!({
        "automountServiceAccountToken": false, "restartPolicy": "Never", "terminationGracePeriodSeconds": 330,
        "containers": [container],
    });
    let expected = serde_json::json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": format!("tidelock-{hash}-2"), "namespace": "jobs", "labels": labels},
        "spec": {
            "parallelism": 1, "completions": 1, "backoffLimit": 0, "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": 86_400, "ttlSecondsAfterFinished": 600,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    });
    assert_eq!(serde_json::to_value(&job).unwrap(), expected);
    assert!(!hash.contains(prefix().key()));
}

#[test]
fn what_a_template_says_of_times_variables_and_command_stays() {
    let text = LEAST.replace(
        "          image: tidelock\n",
        "          image: tidelock\n          command: [sh, -c, 'login && exec tidelock run-job']\n          env: [{name: TIDELOCK_BUCKET, value: 'gs://other/'}]\n",
    );
    let text = text.replace(
        "spec:\n  template:\n    spec:\n",
        "metadata: {name: mine, namespace: elsewhere, labels: {kueue.x-k8s.io/queue-name: plans}}\nspec:\n  suspend: true\n  \
         activeDeadlineSeconds: 60\n  ttlSecondsAfterFinished: 0\n  template:\n    spec:\n      terminationGracePeriodSeconds: 900\n      \
         automountServiceAccountToken: true\n",
    );
    let job = made(&parsed(&text).unwrap());
    let spec = job.spec.unwrap();
    let pod = spec.template.spec.unwrap();
    assert_eq!(
        (spec.suspend, spec.active_deadline_seconds, spec.ttl_seconds_after_finished),
        (Some(true), Some(60), Some(0))
    );
    assert_eq!((pod.termination_grace_period_seconds, pod.automount_service_account_token), (Some(900), Some(true)));
    assert_eq!(pod.containers[0].args, None);
    let env: Vec<_> = pod.containers[0].env.iter().flatten().map(|one| (&*one.name, one.value.as_deref())).collect();
    assert_eq!(env[0], ("TIDELOCK_BUCKET", Some("gs://other/")));
    assert_eq!((env.len(), env[1].0), (2, VARIABLE));
    assert!(job.metadata.name.unwrap().starts_with("tidelock-"));
    assert!(job.metadata.labels.unwrap().contains_key("kueue.x-k8s.io/queue-name"));
}

#[test]
fn a_wrong_template_is_refused_with_its_file_and_field() {
    let with = |from: &str, to: &str| parsed(&LEAST.replace(from, to)).err().unwrap_or_else(|| panic!("{to} is taken"));
    let container = "        - name: job\n          image: tidelock\n";
    let spec = |line: &str| with("spec:\n  template:", &format!("spec:\n  {line}\n  template:"));
    let pod = |line: &str| with("      containers:", &format!("      {line}\n      containers:"));
    let own =
        |line: &str| with("          image: tidelock\n", &format!("          image: tidelock\n          {line}\n"));
    let told = [
        with("kind: Job", "kind: Pod"),
        with(LEAST, ""),
        with("spec:\n  template:\n    spec:", "spec:\n  template:\n    metadata: {}\n    spce:"),
        pod("serviceAcountName: plans"),
        pod("restartPolicy: OnFailure"),
        spec("parallelism: 2"),
        spec("backoffLimit: 6"),
        spec("selector: {matchLabels: {a: b}}"),
        spec("suspend: perhaps"),
        own("args: [server]"),
        own("env: [{name: TIDELOCK_JOB, value: jobs/x/y}]"),
        with("          image: tidelock\n", ""),
        with(container, &format!("{container}        - name: other\n          image: other\n")),
        with("spec:\n", "kind: Job\nspec:\n"),
        parsed(&format!("{LEAST}---\n{LEAST}")).err().unwrap(),
        parsed(&format!("# {}\n{LEAST}", "x".repeat(128 << 10))).err().unwrap(),
    ];
    insta::assert_snapshot!(told.join("\n"), @"
    job.yaml: a manifest with `apiVersion: batch/v1` and `kind: Job` is expected
    job.yaml: a manifest with `apiVersion: batch/v1` and `kind: Job` is expected
    job.yaml: spec.template.spce: a Job of Kubernetes 1.33 has no such field
    job.yaml: spec.template.spec.serviceAcountName: a Job of Kubernetes 1.33 has no such field
    job.yaml: spec.template.spec.restartPolicy: it must be Never, as Tidelock decides itself whether a job is started again
    job.yaml: spec.parallelism: it must be 1, as Tidelock decides itself whether a job is started again
    job.yaml: spec.backoffLimit: it must be 0, as Tidelock decides itself whether a job is started again
    job.yaml: spec.selector: each Job gets its own; drop it
    job.yaml:4:12: `suspend`: true or false is expected here
    job.yaml: spec.template.spec.containers[0].args: they must end with `run-job`
    job.yaml: spec.template.spec.containers[0].env: TIDELOCK_JOB is set by Tidelock for each job; drop it
    job.yaml: spec.template.spec.containers[0].image: it is missing; give it the image of the server
    job.yaml: spec.template.spec.containers: of several, the one that runs jobs must have the name `tidelock`
    job.yaml:3:1: the key `kind` is there twice
    job.yaml:10:1: a second document begins here (`---`); only one is allowed
    job.yaml: too large: at most 131072 bytes are read
    ");
    let missing = JobTemplate::read(std::path::Path::new("/nowhere/job.yaml"), VARIABLE).err().unwrap();
    assert!(format!("{missing:#}").starts_with("cannot read the template /nowhere/job.yaml: "), "{missing:#}");
}

#[test]
fn of_several_containers_the_one_named_tidelock_runs_the_job() {
    let sidecar = "        - name: proxy\n          image: proxy\n        - name: tidelock\n";
    let template = parsed(&LEAST.replace("        - name: job\n", sidecar)).unwrap();
    assert_eq!(template.container(), "tidelock");
    let containers = made(&template).spec.unwrap().template.spec.unwrap().containers;
    assert_eq!(
        (containers[0].args.is_none(), containers[1].args.as_deref()),
        (true, Some(&["run-job".to_owned()][..]))
    );
}

/// Returns what is known before anything is listed.
fn nothing_known() -> KnownJobs {
    KnownJobs::new("job".to_owned())
}

/// Returns the state of the job after so many seconds.
fn state(known: &KnownJobs, seconds: u64) -> EngineState {
    known.state("HASH", Instant::now() + Duration::from_secs(seconds))
}

fn object<T: serde::de::DeserializeOwned>(name: &str, status: serde_json::Value) -> T {
    let labels = serde_json::json!({"tidelock/job": "HASH", "batch.kubernetes.io/job-name": "tidelock-HASH-1"});
    let metadata = serde_json::json!({"name": name, "labels": labels});
    serde_json::from_value(serde_json::json!({"metadata": metadata, "spec": null, "status": status})).unwrap()
}

/// A Job without conditions, or with one of this type and reason.
fn job(condition: Option<(&str, &str)>) -> Job {
    let conditions: Vec<_> = condition
        .iter()
        .map(|(kind, reason)| serde_json::json!({"type": kind, "status": "True", "reason": reason}))
        .collect();
    object("tidelock-HASH-1", serde_json::json!({"conditions": conditions}))
}

/// A pod whose container has this state.
fn pod(state: serde_json::Value) -> Pod {
    let container = serde_json::json!({
        "name": "job", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state,
    });
    object("tidelock-HASH-1-abcde", serde_json::json!({"phase": "Running", "containerStatuses": [container]}))
}

fn waiting(reason: &str, message: &str) -> Pod {
    pod(serde_json::json!({"waiting": {"reason": reason, "message": message}}))
}

fn running() -> Pod {
    pod(serde_json::json!({"running": {}}))
}

fn ended(code: i32, reason: &str) -> Pod {
    pod(serde_json::json!({"terminated": {"exitCode": code, "reason": reason, "message": "hostile"}}))
}

fn held(why: &str) -> EngineState {
    EngineState::Held(why.to_owned())
}

fn doubtful(why: &str) -> EngineState {
    EngineState::Doubtful(why.to_owned())
}

#[test]
fn reasons_stay_when_the_cluster_words_them_anew_or_deletes_what_gave_them() {
    let mut known = nothing_known();
    assert_eq!(state(&known, 0), EngineState::Unknown);
    known.see_job(&job(None));
    assert_eq!(state(&known, 0), EngineState::Alive);
    known.see_pod(&waiting("ErrImagePull", "not found\nat all"));
    assert_eq!(state(&known, 0), held("ImagePullBackOff: not found at all"));
    known.see_pod(&waiting("ImagePullBackOff", "Back-off pulling image"));
    assert_eq!(state(&known, 0), held("ImagePullBackOff: not found at all"));
    known.see_pod(&running());
    assert_eq!(state(&known, 0), EngineState::Alive);
    known.see_pod(&ended(137, "OOMKilled"));
    let oom = "OOMKilled: the container needed more memory than its limit (exit code 137)";
    assert_eq!(state(&known, 0), EngineState::Ended(oom.to_owned()));
    known.see_job(&job(Some(("Failed", "BackoffLimitExceeded"))));
    known.lose_pod(&ended(137, "OOMKilled"));
    known.lose_job(&job(Some(("Failed", "BackoffLimitExceeded"))));
    assert_eq!(state(&known, 0), EngineState::Ended(oom.to_owned()));
    assert_eq!(known.forget("HASH").unwrap(), [""; 0]);
    assert_eq!(state(&known, 0), EngineState::Unknown);
}

#[test]
fn an_end_that_nobody_has_seen_is_doubted() {
    let mut known = nothing_known();
    known.see_job(&job(None));
    known.see_pod(&running());
    known.lose_pod(&running());
    assert_eq!(state(&known, 0), doubtful("its pod was deleted while it ran"));
    known.see_job(&job(Some(("Failed", "BackoffLimitExceeded"))));
    assert_eq!(state(&known, 0), doubtful("its pod was deleted while it ran"));
    // One that has not begun cannot run on.
    let mut known = nothing_known();
    known.see_pod(&waiting("ContainerCreating", ""));
    known.lose_pod(&waiting("ContainerCreating", ""));
    assert_eq!(state(&known, 0), EngineState::Ended("its pod was deleted before it began".to_owned()));
    let mut known = nothing_known();
    known.see_job(&job(Some(("Failed", "DeadlineExceeded"))));
    assert_eq!(state(&known, 0), doubtful("its Job has ended: DeadlineExceeded"));
}

#[test]
fn a_pod_that_is_deleted_while_it_waits_is_doubted() {
    let mut known = nothing_known();
    let mut pod = waiting("ContainerCreating", "");
    known.see_pod(&pod);
    assert_eq!(state(&known, 0), EngineState::Alive);
    pod.metadata.deletion_timestamp = Some(serde_json::from_value(serde_json::json!("2026-11-27T10:00:00Z")).unwrap());
    known.see_pod(&pod);
    assert_eq!(state(&known, 0), doubtful("its pod is being deleted"));
}

#[test]
fn while_a_watch_fails_there_may_be_a_later_attempt() {
    let mut known = nothing_known();
    known.see_pod(&ended(1, "Error"));
    assert!(matches!(state(&known, 0), EngineState::Ended(_)));
    known.works(WatchedKind::Jobs, false);
    assert_eq!(state(&known, 0), EngineState::Unknown);
    known.works(WatchedKind::Jobs, true);
    assert!(matches!(state(&known, 0), EngineState::Ended(_)));
}

#[test]
fn what_a_list_lacks_is_gone_unless_it_was_made_meanwhile() {
    let mut known = nothing_known();
    known.begin_list(WatchedKind::Jobs);
    known.see_job(&job(None));
    known.end_list(WatchedKind::Jobs);
    assert_eq!(state(&known, 0), EngineState::Alive);
    known.begin_list(WatchedKind::Pods);
    known.see_pod(&running());
    known.end_list(WatchedKind::Pods);
    assert!(known.is_complete());
    assert_eq!(state(&known, 0), EngineState::Alive);
    known.begin_list(WatchedKind::Pods);
    known.end_list(WatchedKind::Pods);
    assert_eq!(state(&known, 0), doubtful("its pod was deleted while it ran"));
}

#[test]
fn what_lasts_too_long_is_told() {
    let mut known = nothing_known();
    known.see_job(&job(None));
    assert_eq!(state(&known, 31), held("its Job has no pod yet; its events say why (`kubectl describe job`)"));
    known.see_pod(&waiting("ContainerCreating", ""));
    assert_eq!(state(&known, 31), EngineState::Alive);
    assert_eq!(state(&known, 61), held("ContainerCreating"));
    known.see_pod(&running());
    assert!(known.works(WatchedKind::Pods, false) && !known.works(WatchedKind::Pods, false));
    assert_eq!(state(&known, 0), EngineState::Alive);
    assert_eq!(state(&known, 31), EngineState::Unknown);
    assert!(known.works(WatchedKind::Pods, true));
    assert_eq!(state(&known, 31), EngineState::Alive);
}

#[test]
fn a_job_that_has_not_begun_is_deleted_when_it_is_forgotten() {
    let mut known = nothing_known();
    known.see_job(&job(None));
    known.see_pod(&waiting("ImagePullBackOff", ""));
    assert_eq!(known.forget("HASH").unwrap(), ["tidelock-HASH-1"]);
    known.see_job(&job(None));
    known.see_pod(&running());
    assert_eq!(known.forget("HASH").unwrap(), [""; 0]);
    assert_eq!(known.forget("HASH"), None, "it was another leader's");
}

#[test]
fn the_attempt_that_may_run_counts() {
    let mut known = nothing_known();
    known.see_pod(&ended(1, "Error"));
    let mut second = job(None);
    second.metadata.name = Some("tidelock-HASH-2".to_owned());
    known.see_job(&second);
    assert_eq!(state(&known, 0), EngineState::Alive);
    known.lose_job(&second);
    assert_eq!(state(&known, 0), doubtful("its Job was deleted"));
}
