//! Whole jobs on this machine, with the real Terraform and a bucket in a directory.

use super::super::spec::{MAX_TREE, PLAN, RemoteBounds, RemoteEnd, RemoteTree, TREE, ToolSources};
use super::*;
use crate::checkout::{Checkouts, Fetched, PackedGit, Strategy};
use crate::config::ProjectConfig;
use crate::config::global::GlobalConfig;
use crate::config::workflow::{ShellCommand, Step};
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::{Base, CommitSha, Distribution, Head, ProjectId, PullId, PullRequest, PullState, RepoId};
use crate::process::{Invocation, Protection, StepConfinement, run as run_program};
use crate::runner::result::{Ending, StepProblem};
use crate::runner::spec::{Answers, JobLimits, JobSpec, PlanReference, PlanUse, Steps, ToolSpec, TreeSpec};
use crate::vault::bucket::{Body, Bucket, Generation, Listed, Object, Written};
use crate::vault::clock::{Boottime, Clock};
use crate::vault::directory::Directory;
use crate::vault::jobs::JobPrefix;
use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Its plan has the absolute path of the tree.
const MAIN: &str = r#"
resource "terraform_data" "one" {
  input = abspath(path.module)
}
output "path" {
  value = terraform_data.one.output
}
"#;
const PLAN_ID: &str = "cccccccccccccccccccccccccccccccc";
const SECRET: &str = "s3cret-of-the-cloud";

fn path_variable() -> String {
    let found = crate::settings::plain_environment().into_iter().find(|(name, _)| name == "PATH");
    found.unwrap().1.into_string().unwrap()
}

fn environment(temp: &Path) -> Vec<(String, String)> {
    let mut env = vec![("PATH".to_owned(), path_variable()), ("HOME".into(), temp.to_string_lossy().into_owned())];
    for role in ["AUTHOR", "COMMITTER"] {
        env.push((format!("GIT_{role}_NAME"), "Test".into()));
        env.push((format!("GIT_{role}_EMAIL"), "test@example.invalid".into()));
    }
    env.push(("API_TOKEN".into(), SECRET.into()));
    env
}

fn sh(text: &str) -> Step {
    Step::Run { command: ShellCommand::sh(text), output: Vec::new() }
}

fn init() -> Step {
    Step::Init { extra_args: Vec::new() }
}

fn plan() -> Step {
    Step::Plan { extra_args: Vec::new() }
}

/// A leader with one pull request, whose project is at `net`, and a machine for its jobs.
struct Scene {
    temp: TempDir,
    bucket: Arc<Directory>,
    tree: RemoteTree,
    pull: PullRequest,
    commit: CommitSha,
}

impl Scene {
    async fn new() -> Scene {
        let temp = tempfile::tempdir().unwrap();
        let at = temp.path();
        let (source, env) = (at.join("source"), environment(at));
        std::fs::create_dir_all(source.join("net")).unwrap();
        std::fs::write(source.join("net/main.tf"), MAIN).unwrap();
        let git = async |args: &[&str]| {
            let invocation = Invocation::new("git", args.iter().copied(), &source).env(env.clone()).reading(1 << 20);
            let done = run_program(invocation, &Redactor::default(), &CancellationToken::new(), None).await.unwrap();
            assert!(done.success(), "git {args:?}: {}", done.output);
            done.read_text().unwrap().trim().to_owned()
        };
        git(&["init", "-q", "-b", "main"]).await;
        git(&["config", "uploadpack.allowAnySHA1InWant", "true"]).await;
        git(&["add", "."]).await;
        git(&["commit", "-q", "-m", "first"]).await;
        let commit = CommitSha::parse(&git(&["rev-parse", "HEAD"]).await).unwrap();
        let pull = pull(&commit, &source);
        let bucket = at.join("bucket");
        let bucket = Arc::new(tokio::task::spawn_blocking(move || Directory::open(&bucket)).await.unwrap().unwrap());

        let server = Checkouts::new(&at.join("server"), Strategy::Branch, Redactor::default(), env.clone()).unwrap();
        server.fetch(&pull, None).await.unwrap();
        let commits = Fetched { head: commit.clone(), base_tip: commit.clone() };
        let made = server.tree(&pull, "default", &commits, None, None).await.unwrap();
        let archive = at.join("packed");
        server.pack_tree(&made, PackedGit::Commit, archive.clone(), MAX_TREE).await.unwrap();
        let objects = objects(&(bucket.clone() as Arc<dyn Bucket>), 'e');
        let tree = RemoteTree {
            prefix: objects.prefix().to_string(),
            file: objects.put_file(TREE, &archive).await.unwrap(),
            root: at.join("jobs/tree"),
            head: commit.clone(),
            base: commit.clone(),
        };
        Scene { temp, bucket, tree, pull, commit }
    }

    fn bucket(&self) -> Arc<dyn Bucket> {
        self.bucket.clone()
    }

    /// Returns the objects of a job whose key repeats this digit.
    fn objects(&self, digit: char) -> JobObjects {
        objects(&self.bucket(), digit)
    }

    fn job_on(&self, bucket: Arc<dyn Bucket>, digit: char) -> StartedJob {
        let objects = objects(&bucket, digit);
        let env = environment(self.temp.path())
            .into_iter()
            .chain([("TIDELOCK_JOB".to_owned(), objects.prefix().to_string())])
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let address = format!("--bucket=file://{}", self.temp.path().join("bucket").display());
        let settings = JobSettings::load([OsString::from(address)], None, env).unwrap();
        StartedJob { objects, bucket, settings, own_program: PathBuf::from("/nonexistent") }
    }

    fn job(&self, digit: char) -> StartedJob {
        self.job_on(self.bucket(), digit)
    }

    /// Returns a plan with these steps.
    fn planning(&self, steps: Vec<Step>) -> RemoteSpec {
        let id = ProjectId { dir: "net".into(), workspace: "default".into(), name: None };
        let rules = GlobalConfig::without_file().rules(&self.pull.id.repo, "main");
        let job = JobSpec {
            job: "a".repeat(32).into(),
            run: "b".repeat(32).into(),
            started: Timestamp::now(),
            tree: TreeSpec {
                pull: self.pull.clone(),
                workspace: "default".into(),
                head: self.commit.clone(),
                base: self.commit.clone(),
                dirs: None,
                movable: true,
                of_base: false,
                history: false,
            },
            project: ProjectConfig::from_rules(id, &rules),
            command: Command::new(CommandName::Plan, Trigger::Comment, "alice"),
            steps: Steps::Stage { first: Vec::new(), steps },
            tool: ToolSpec { distribution: Distribution::Terraform, version: "1.11.4".into(), terragrunt: None },
            answers: Answers::default(),
            limits: JobLimits { timeout: Duration::from_secs(60), grace: Duration::from_secs(20), output: 1 << 20 },
            secrets: Vec::new(),
            plan: PlanUse::Make { id: PLAN_ID.to_owned().into(), dirs: vec!["net".into()], changes_key: None },
            policies: None,
            keeps_no_files: false,
            verify: None,
        };
        RemoteSpec {
            version: VERSION.into(),
            job,
            tree: self.tree.clone(),
            plan: None,
            left: None,
            tools: ToolSources {
                download: false,
                terraform_url: String::new(),
                opentofu_url: String::new(),
                allow_unsigned: false,
                default_distribution: Distribution::Terraform,
            },
            use_plugin_cache: false,
            modules: Vec::new(),
            bounds: RemoteBounds { confinement: StepConfinement::Off, ..RemoteBounds::default() },
        }
    }

    /// Stores the specification and runs the job to its end.
    async fn run(&self, digit: char, spec: &RemoteSpec) -> RemoteResult {
        self.objects(digit).put_spec(spec).await.unwrap();
        assert_eq!(run(&self.job(digit), no_signals()).await.unwrap(), AttemptEnd::Stored);
        self.result(digit).await
    }

    async fn result(&self, digit: char) -> RemoteResult {
        match self.objects(digit).result().await.unwrap() {
            Some(JobResult::Ended { result, .. }) => serde_json::from_value(result).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    async fn log(&self, digit: char) -> String {
        let (objects, mut text) = (self.objects(digit), String::new());
        for number in 0.. {
            let Some(piece) = objects.log(number).await.unwrap() else { break };
            text.push_str(std::str::from_utf8(&piece).unwrap());
        }
        text
    }

    async fn until_log_has(&self, digit: char, wanted: &str) {
        while !self.log(digit).await.contains(wanted) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the names at the place of the jobs.
    fn left(&self) -> Vec<OsString> {
        let entries = self.temp.path().join("jobs").read_dir();
        entries.into_iter().flatten().map(|entry| entry.unwrap().file_name()).collect()
    }
}

fn objects(bucket: &Arc<dyn Bucket>, digit: char) -> JobObjects {
    let prefix = JobPrefix::new("plans", &digit.to_string().repeat(32)).unwrap();
    JobObjects::new(Arc::clone(bucket), Arc::new(Boottime), prefix)
}

fn pull(commit: &CommitSha, source: &Path) -> PullRequest {
    let repo = RepoId { host: "example.com".into(), owner: "acme".into(), name: "infra".into() };
    PullRequest {
        id: PullId { repo, number: 7 },
        title: "A change".into(),
        url: String::new(),
        author: "alice".into(),
        head: Head {
            branch: "main".into(),
            commit: commit.clone(),
            repo_owner: "acme".into(),
            repo_name: "infra".into(),
            clone_url: None,
        },
        base: Base { branch: "main".into(), commit: commit.clone() },
        draft: false,
        state: PullState::Open,
        fork: false,
        labels: Vec::new(),
        repo_size_kib: None,
        clone_url: format!("file://{}", source.display()),
    }
}

fn no_signals() -> mpsc::Receiver<SignalName> {
    let (sender, signals) = mpsc::channel(1);
    // Open for as long as the test runs.
    std::mem::forget(sender);
    signals
}

fn ended(result: RemoteResult) -> RemoteEnd {
    match result {
        RemoteResult::Ran(end) => *end,
        other => panic!("{other:?}"),
    }
}

fn refused(result: RemoteResult) -> String {
    match result {
        RemoteResult::Refused(why) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_plan_is_applied_by_another_job_at_the_same_root() {
    let scene = Scene::new().await;
    let says = sh("echo \"token=$API_TOKEN\"; env | grep TIDELOCK_JOB || echo no key; echo mine > left.txt");
    let spec = scene.planning(vec![init(), says, plan()]);
    let planned = ended(scene.run('1', &spec).await);
    assert_eq!(planned.ran.ending, Ending::Done, "{:?}", planned.ran);
    assert!(planned.ran.output.contains("Plan: 1 to add"), "{}", planned.ran.output);
    assert!(planned.ran.output.contains("token=<redacted>\nno key"), "{}", planned.ran.output);
    let log = scene.log('1').await;
    assert!(log.contains("token=<redacted>\nno key\n") && !log.contains(SECRET), "{log}");
    assert_eq!(log.lines().count() as u64, planned.ran.log_lines);
    let made = planned.ran.plan.unwrap();
    let file = made.file.unwrap();
    assert!(planned.plan.is_some() && planned.left.is_some() && planned.errored.is_none());
    assert!(scene.left().is_empty(), "{:?}", scene.left());

    // The leader hands the files on.
    let mut apply = scene.planning(vec![Step::Apply { extra_args: Vec::new() }]);
    let (one, two) = (scene.objects('1'), scene.objects('2'));
    for (name, file) in [(PLAN, planned.plan.unwrap()), ("left", planned.left.unwrap())] {
        let at = scene.temp.path().join(name);
        one.get_file(name, file, &at).await.unwrap();
        assert_eq!(two.put_file(name, &at).await.unwrap(), file);
    }
    (apply.plan, apply.left) = (planned.plan, planned.left);
    apply.job.command = Command::new(CommandName::Apply, Trigger::Comment, "alice");
    let read = sh("cat left.txt; test -s \"$PLANFILE\" && echo there");
    apply.job.steps = Steps::Stage { first: vec![init()], steps: vec![read, Step::Apply { extra_args: Vec::new() }] };
    apply.job.plan = PlanUse::Apply(PlanReference {
        id: PLAN_ID.to_owned().into(),
        path: Some(file.path),
        sha256: Some(file.sha256),
        left: made.left,
        approved: None,
        guards: Vec::new(),
        arguments: Vec::new(),
    });
    let applied = ended(scene.run('2', &apply).await);
    assert_eq!(applied.ran.ending, Ending::Done, "{:?}", applied.ran);
    assert!(applied.ran.output.contains("mine\nthere\n"), "{}", applied.ran.output);
    let path = scene.tree.root.join("net");
    assert!(applied.ran.output.contains(&format!("path = \"{}\"", path.display())), "{}", applied.ran.output);

    // Another plan file than the one that was made.
    let other = scene.temp.path().join("other");
    std::fs::write(&other, "another plan").unwrap();
    apply.plan = Some(scene.objects('3').put_file(PLAN, &other).await.unwrap());
    apply.left = None;
    let PlanUse::Apply(reference) = &mut apply.job.plan else { panic!() };
    reference.left.archive = None;
    let why = refused(scene.run('3', &apply).await);
    assert!(why.contains("is missing or was changed"), "{why}");
}

#[tokio::test]
async fn a_job_is_run_by_one_of_two_attempts() {
    let scene = Scene::new().await;
    let spec = scene.planning(vec![sh(&format!("echo run >> {}/runs", scene.temp.path().display()))]);
    scene.objects('1').put_spec(&spec).await.unwrap();
    let (first, second) = (scene.job('1'), scene.job('1'));
    let (first, second) = tokio::join!(run(&first, no_signals()), run(&second, no_signals()));
    let mut ends = [first.unwrap(), second.unwrap()];
    ends.sort_by_key(|end| *end == AttemptEnd::Stored);
    assert_eq!(ends, [AttemptEnd::Claimed, AttemptEnd::Stored]);
    assert_eq!(run(&scene.job('1'), no_signals()).await.unwrap(), AttemptEnd::Claimed);
    assert_eq!(std::fs::read_to_string(scene.temp.path().join("runs")).unwrap(), "run\n");
}

#[tokio::test]
async fn without_a_claim_nothing_is_touched() {
    let scene = Scene::new().await;
    assert_eq!(run(&scene.job('1'), no_signals()).await.unwrap(), AttemptEnd::NoSpec);
    assert_eq!(scene.objects('1').claimant().await.unwrap(), None);
    scene.objects('2').put_spec(&scene.planning(vec![plan()])).await.unwrap();
    scene.objects('2').withdraw("leader").await.unwrap();
    assert_eq!(run(&scene.job('2'), no_signals()).await.unwrap(), AttemptEnd::Withdrawn);
    assert_eq!(scene.objects('2').result().await.unwrap(), None);
    assert!(!scene.temp.path().join("jobs").exists());
}

#[tokio::test]
async fn a_cancelled_job_is_interrupted_and_says_so() {
    let scene = Scene::new().await;
    scene.objects('1').put_spec(&scene.planning(vec![sh("echo begun; exec sleep 600")])).await.unwrap();
    let (job, leader) = (scene.job('1'), scene.objects('1'));
    let cancel = async {
        scene.until_log_has('1', "begun").await;
        leader.cancel("cancelled by alice").await.unwrap();
    };
    let (end, ()) = tokio::join!(run(&job, no_signals()), cancel);
    assert_eq!(end.unwrap(), AttemptEnd::Stored);
    assert_eq!(ended(scene.result('1').await).ran.ending, Ending::Stopped);
    assert!(scene.log('1').await.contains("cancelled by alice\n"));
    assert!(scene.left().is_empty(), "{:?}", scene.left());
}

#[tokio::test]
async fn a_job_that_was_given_up_meanwhile_ends_late() {
    let scene = Scene::new().await;
    scene.objects('1').put_spec(&scene.planning(vec![sh("echo begun; exec sleep 600")])).await.unwrap();
    let (job, leader) = (scene.job('1'), scene.objects('1'));
    let give_up = async {
        scene.until_log_has('1', "begun").await;
        leader.give_up("leader", "no sign of life").await.unwrap();
        leader.cancel("given up").await.unwrap();
    };
    let (end, ()) = tokio::join!(run(&job, no_signals()), give_up);
    assert_eq!(end.unwrap(), AttemptEnd::Late);
    let Some(JobResult::Ended { result, .. }) = leader.late().await.unwrap() else { panic!() };
    assert_eq!(ended(serde_json::from_value(result).unwrap()).ran.ending, Ending::Stopped);
    assert!(matches!(leader.result().await.unwrap(), Some(JobResult::GivenUp { .. })));
}

#[tokio::test]
async fn a_second_signal_ends_a_step_that_does_not_obey_the_first() {
    let scene = Scene::new().await;
    let mut spec = scene.planning(vec![sh("trap 'echo obeyed' INT; echo begun; while :; do sleep 1; done")]);
    spec.job.command = Command::new(CommandName::Apply, Trigger::Comment, "alice");
    spec.job.plan = PlanUse::None;
    scene.objects('1').put_spec(&spec).await.unwrap();
    let (job, (sender, signals)) = (scene.job('1'), mpsc::channel(1));
    let interrupt = async {
        scene.until_log_has('1', "begun").await;
        sender.send("SIGTERM").await.unwrap();
        scene.until_log_has('1', "obeyed").await;
        sender.send("SIGINT").await.unwrap();
    };
    let (end, ()) = tokio::join!(run(&job, signals), interrupt);
    assert_eq!(end.unwrap(), AttemptEnd::Stored);
    let ran = ended(scene.result('1').await).ran;
    assert!(matches!(ran.ending, Ending::Broken(StepProblem::Killed { .. })), "{ran:?}");
    assert!(ran.state_lock.killed && scene.log('1').await.contains("SIGTERM"));
}

#[tokio::test]
async fn impossible_jobs_end_with_a_reason() {
    let scene = Scene::new().await;
    let good = scene.planning(vec![plan()]);
    let mut bad = Vec::new();
    let other = RemoteSpec { version: "0.0.1".into(), ..good.clone() };
    bad.push((serde_json::to_value(&other).unwrap(), "the server is Tidelock 0.0.1"));
    let other = serde_json::json!({"version": "0.0.2", "unknown": true});
    bad.push((other, "the server is Tidelock 0.0.2"));
    bad.push((serde_json::json!({"version": VERSION}), "cannot be read"));
    let mut damaged = good.clone();
    damaged.tree.file.sha256.0[0] ^= 1;
    bad.push((serde_json::to_value(&damaged).unwrap(), "its content does not have its hash"));
    let mut nowhere = good.clone();
    nowhere.tree.root = "/proc/nowhere/tree".into();
    bad.push((serde_json::to_value(&nowhere).unwrap(), "no tree can be made at /proc/nowhere/tree"));
    let mut tool = good.clone();
    tool.job.tool.version = "0.1.2".into();
    bad.push((serde_json::to_value(&tool).unwrap(), "0.1.2"));
    let mut missing = good;
    missing.job.project.id.dir = "gone".into();
    bad.push((serde_json::to_value(&missing).unwrap(), "the tree has no directory `gone`"));
    for ((spec, why), digit) in bad.into_iter().zip('1'..) {
        scene.objects(digit).put_spec(&spec).await.unwrap();
        assert_eq!(run(&scene.job(digit), no_signals()).await.unwrap(), AttemptEnd::Stored, "{why}");
        let said = refused(scene.result(digit).await);
        assert!(said.contains(why), "{said}");
        for digit in [digit, 'e'] {
            assert!(!said.contains(&digit.to_string().repeat(32)), "a key is told: {said}");
        }
    }
}

#[tokio::test]
async fn steps_reach_no_files_of_others() {
    let scene = Scene::new().await;
    if matches!(Protection::of_steps(StepConfinement::Auto).unwrap(), Protection::None(_)) {
        return;
    }
    let at = scene.temp.path().display();
    std::fs::create_dir(scene.temp.path().join("server-files")).unwrap();
    let tries =
        format!("for dir in {at}/bucket {at}/jobs {at}/server-files; do ls $dir && echo reached; done; echo tried");
    let mut spec = scene.planning(vec![sh(&tries), init(), plan()]);
    spec.bounds.confinement = StepConfinement::Required;
    spec.bounds.hidden = vec![scene.temp.path().join("server-files"), "/nonexistent".into()];
    let ran = ended(scene.run('1', &spec).await).ran;
    assert_eq!(ran.ending, Ending::Done, "{ran:?}");
    assert!(ran.output.contains("tried") && !ran.output.contains("reached"), "{}", ran.output);
}

#[tokio::test]
async fn a_log_that_cannot_be_stored_stops_neither_steps_nor_cancel() {
    let scene = Scene::new().await;
    let slow = Arc::new(TroubledBucket::new(&scene.bucket));
    let files = scene.temp.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let step = format!(
        "cd {}; trap 'touch interrupted; exit 1' INT; seq 100000; touch begun; while :; do sleep 0.1; done",
        files.display()
    );
    scene.objects('1').put_spec(&scene.planning(vec![sh(&step)])).await.unwrap();
    let (job, leader) = (scene.job_on(slow.clone(), '1'), scene.objects('1'));
    let cancel = async {
        until_there(&files.join("begun")).await;
        leader.cancel("cancelled by alice").await.unwrap();
        until_there(&files.join("interrupted")).await;
        assert_eq!(leader.result().await.unwrap(), None);
        slow.gate.cancel();
    };
    let (end, ()) = tokio::join!(run(&job, no_signals()), cancel);
    assert_eq!(end.unwrap(), AttemptEnd::Stored);
    assert!(scene.log('1').await.contains("\n100000\n"));
}

#[tokio::test]
async fn a_result_waits_for_a_bucket_that_does_not_answer() {
    let scene = Scene::new().await;
    scene.objects('1').put_spec(&scene.planning(vec![sh("echo done")])).await.unwrap();
    let troubled = Arc::new(TroubledBucket::new(&scene.bucket));
    troubled.gate.cancel();
    troubled.unanswered.store(1, Ordering::Relaxed);
    let mut job = scene.job('1');
    let prefix = job.objects.prefix().clone();
    job.objects = JobObjects::new(troubled.clone(), Arc::new(ImpatientClock), prefix);
    assert_eq!(run(&job, no_signals()).await.unwrap(), AttemptEnd::Stored);
    assert_eq!(troubled.unanswered.load(Ordering::Relaxed), 0);
    assert_eq!(scene.log('1').await, "done\n");
    assert_eq!(ended(scene.result('1').await).ran.ending, Ending::Done);
}

/// Returns the bucket of a scene as an account sees it that may not list.
fn hiding(scene: &Scene) -> Arc<TroubledBucket> {
    let mut bucket = TroubledBucket::new(&scene.bucket);
    bucket.gate.cancel();
    bucket.hides_absence = true;
    Arc::new(bucket)
}

#[tokio::test]
async fn an_account_that_is_not_told_of_absence_runs_a_job_and_sees_its_cancellation() {
    let scene = Scene::new().await;
    scene.objects('1').put_spec(&scene.planning(vec![sh("echo begun; exec sleep 600")])).await.unwrap();
    let (job, leader) = (scene.job_on(hiding(&scene), '1'), scene.objects('1'));
    let cancel = async {
        scene.until_log_has('1', "begun").await;
        leader.cancel("cancelled by alice").await.unwrap();
    };
    let (end, ()) = tokio::join!(run(&job, no_signals()), cancel);
    assert_eq!(end.unwrap(), AttemptEnd::Stored);
    assert_eq!(ended(scene.result('1').await).ran.ending, Ending::Stopped);
}

#[tokio::test]
async fn a_specification_that_is_hidden_is_not_taken_for_a_job_that_has_ended() {
    let scene = Scene::new().await;
    let job = scene.job_on(hiding(&scene), '1');
    let error = format!("{:#}", run(&job, no_signals()).await.unwrap_err());
    assert!(error.starts_with("the job cannot be read: ") && error.contains("/spec: it does not exist, or"), "{error}");
    assert_eq!(scene.objects('1').claimant().await.unwrap(), None);
    // The claim stays when the objects of an ended job are deleted, and shows that the account may read.
    scene.objects('1').claim("another").await.unwrap();
    assert_eq!(run(&job, no_signals()).await.unwrap(), AttemptEnd::NoSpec);
}

async fn until_there(path: &Path) {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A clock by which the vault's patience ends with the first try.
struct ImpatientClock;

#[async_trait]
impl Clock for ImpatientClock {
    fn now(&self) -> Duration {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        Duration::from_secs(3600) * CALLS.fetch_add(1, Ordering::Relaxed)
    }

    async fn sleep(&self, _time: Duration) {}
}

/// A bucket that does not store pieces of logs until its gate opens, does not answer so many requests to store a result, and may hide which
/// objects do not exist.
struct TroubledBucket {
    bucket: Arc<Directory>,
    gate: CancellationToken,
    unanswered: AtomicU32,
    hides_absence: bool,
}

impl TroubledBucket {
    fn new(bucket: &Arc<Directory>) -> TroubledBucket {
        let (gate, unanswered) = (CancellationToken::new(), AtomicU32::new(0));
        TroubledBucket { bucket: bucket.clone(), gate, unanswered, hides_absence: false }
    }
}

#[async_trait]
impl Bucket for TroubledBucket {
    fn location(&self) -> &str {
        self.bucket.location()
    }

    async fn check(&self) -> Result<Vec<String>, BucketError> {
        self.bucket.check().await
    }

    async fn get(&self, name: &str) -> Result<Option<Object>, BucketError> {
        self.bucket.get(name).await
    }

    async fn get_within(&self, name: &str, most: usize) -> Result<Option<Object>, BucketError> {
        let found = self.bucket.get_within(name, most).await?;
        if found.is_none() && self.hides_absence {
            let (location, doing) = (self.location().to_owned(), format!("reading {name}"));
            return Err(BucketError::Hidden { location, doing, reason: "a test".into() });
        }
        Ok(found)
    }

    async fn get_range(
        &self,
        name: &str,
        generation: Generation,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, BucketError> {
        self.bucket.get_range(name, generation, range).await
    }

    async fn put(&self, name: &str, expected: Generation, body: Body, label: &str) -> Result<Written, BucketError> {
        if label == "log" {
            self.gate.cancelled().await;
        }
        let left = |left: u32| left.checked_sub(1);
        if label == "result" && self.unanswered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok() {
            let location = self.location().to_owned();
            return Err(BucketError::Unavailable { location, doing: "writing".into(), reason: "a test".into() });
        }
        self.bucket.put(name, expected, body, label).await
    }

    async fn delete(&self, name: &str, generation: Generation) -> Result<bool, BucketError> {
        self.bucket.delete(name, generation).await
    }

    async fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>, BucketError> {
        self.bucket.list(prefix, after).await
    }

    fn requests(&self) -> Vec<(&'static str, u64)> {
        self.bucket.requests()
    }
}
