//! Jobs that are passed as JSON and return JSON: nothing else passes between the requester of a job and its runner.

use super::*;
use crate::checkout::Strategy;
use crate::process::{Invocation, run};
use crate::runner::result::{Artifact, StepProblem};
use crate::runner::spec::{Answers, JobLimits, PlanReference, ToolSpec};
use crate::terraform::install::InstallSettings;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::time::Duration;
use tidelock_core::config::ProjectConfig;
use tidelock_core::config::global::GlobalConfig;
use tidelock_core::config::workflow::{ShellCommand, Step};
use tidelock_core::domain::command::{Command, Trigger};
use tidelock_core::domain::job_times::StepKind;
use tidelock_core::domain::{Base, CommitSha, Distribution, Head, PullId, PullRequest, RepoId};

/// Writes a plan file. Its apply shows the files that the plan's steps left, and cannot save the state.
const TERRAFORM: &str = r#"#!/bin/sh
case "$1" in
plan)
  while [ $# -gt 0 ]; do [ "$1" = -out ] && echo the plan > "$2"; shift; done
  echo 'Plan: 1 to add, 0 to change, 0 to destroy.' ;;
show)
  echo '{"format_version": "1.2", "configuration": {}, "resource_changes": [{"change": {"actions": ["create"], "after": "hidden"}}]}' ;;
apply)
  cat left.txt "$5"; ls
  echo state > errored.tfstate
  printf 'Error: Error acquiring the state lock\nLock Info:\n  ID:        somebody\n'
  exit 1 ;;
esac
"#;

fn environment() -> Vec<(String, String)> {
    let mut env = vec![("PATH".to_owned(), std::env::var("PATH").unwrap()), ("HOME".into(), "/nonexistent".into())];
    for role in ["AUTHOR", "COMMITTER"] {
        env.push((format!("GIT_{role}_NAME"), "Test".into()));
        env.push((format!("GIT_{role}_EMAIL"), "test@example.invalid".into()));
    }
    env.push(("HIDDEN".into(), "hidden".into()));
    env
}

async fn git(dir: &Path, args: &[&str]) -> String {
    let invocation = Invocation::new("git", args.iter().copied(), dir).env(environment()).reading(1 << 20);
    let done = run(invocation, &Redactor::default(), &CancellationToken::new(), None).await.unwrap();
    assert!(done.success(), "git {args:?}: {}", done.output);
    done.read_text().unwrap().trim().to_owned()
}

/// Returns a machine with an empty data directory.
fn machine(data_dir: &Path) -> Local {
    std::fs::create_dir(data_dir).unwrap();
    let redactor = Redactor::default();
    let install = InstallSettings {
        data_dir: data_dir.to_owned(),
        download: false,
        terraform_url: String::new(),
        opentofu_url: String::new(),
        allow_unsigned: false,
        default_version: None,
        default_distribution: Distribution::Terraform,
        path: String::new(),
        redactor: redactor.clone(),
        keys: None,
    };
    Local {
        checkouts: Checkouts::new(data_dir, Strategy::Branch, redactor.clone(), environment()).unwrap(),
        installer: Arc::new(Installer::new(install)),
        directories: DirectoryLocks::default(),
        redactor,
        data_dir: data_dir.to_owned(),
        env: environment(),
        separation: Separation::default(),
        use_plugin_cache: false,
        own_program: PathBuf::from("/nonexistent"),
        module_origins: Arc::new(|| Box::pin(async { Vec::new() })),
        secret_reader: Arc::new(SecretReader::new(Default::default())),
        tfe_token: None,
    }
}

/// Returns a value as another process would receive it.
fn carried<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) -> T {
    let carried = serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap();
    assert_eq!(value, &carried);
    carried
}

/// Runs a job as `tidelock run-job` does on a machine that has only the spec.
async fn run_job(local: &Local, json: &str, terraform: &Path) -> (String, Vec<String>) {
    let spec: JobSpec = serde_json::from_str(json).unwrap();
    local.checkouts.fetch_missing(&spec.tree.pull, None).await.unwrap();
    let tree = local.tree(&spec.tree, None).await.unwrap();
    let dir = project_dir(&tree.root, &spec.project.id.dir).unwrap();
    let tool = Tool {
        path: terraform.to_owned(),
        version: spec.tool.version.parse().unwrap(),
        distribution: spec.tool.distribution,
        terragrunt: None,
    };
    let place = Place::new(tree, dir, &spec.project.id, tool);
    if let PlanUse::Apply(plan) = &spec.plan {
        local.put_back(plan, &place).await.unwrap();
        local.check_plan_file(plan).await.unwrap();
    }
    let lines = Mutex::new(Vec::new());
    let log = |line: &str| lines.lock().unwrap().push(line.to_owned());
    let never = CancellationToken::new();
    let io = Io { log: &log, stop: &never, kill: &never };
    let ran = local.run(&spec, &place, &io, ()).await;
    let lines = lines.into_inner().unwrap();
    (serde_json::to_string(&ran).unwrap(), lines)
}

/// Returns a plan job for the head of a new repository with one project at `net`.
async fn plan_of(source: &Path) -> JobSpec {
    std::fs::create_dir_all(source.join("net")).unwrap();
    std::fs::write(source.join("net/main.tf"), "# nothing\n").unwrap();
    git(source, &["init", "-q", "-b", "main"]).await;
    git(source, &["config", "uploadpack.allowAnySHA1InWant", "true"]).await;
    git(source, &["add", "."]).await;
    git(source, &["commit", "-q", "-m", "first"]).await;
    let commit = CommitSha::parse(&git(source, &["rev-parse", "HEAD"]).await).unwrap();
    let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
    let project = ProjectId { dir: "net".into(), workspace: "default".into(), name: None };
    let rules = GlobalConfig::without_file().rules(&repo, "main");
    let run = |text: &str| Step::Run { command: ShellCommand::sh(text), output: Vec::new() };
    let says = "echo \"$BASE_REPO_NAME $ATLANTIS_PR_APPROVED [$HIDDEN] $COMMENT_ARGS\"";
    JobSpec {
        job: "a".repeat(32).into(),
        run: "b".repeat(32).into(),
        started: Timestamp::now(),
        tree: TreeSpec {
            pull: PullRequest {
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
                state: tidelock_core::domain::PullState::Open,
                fork: false,
                labels: Vec::new(),
                repo_size_kib: None,
                clone_url: format!("file://{}", source.display()),
            },
            workspace: "default".into(),
            head: commit.clone(),
            base: commit,
            dirs: None,
            movable: true,
            of_base: false,
            history: false,
        },
        project: ProjectConfig::from_rules(project, &rules),
        command: Command {
            extra_args: vec!["-x".into()],
            ..Command::new(CommandName::Plan, Trigger::Comment, "alice")
        },
        steps: Steps::Stage {
            first: Vec::new(),
            steps: vec![run(says), run("echo mine > left.txt"), Step::Plan { extra_args: Vec::new() }],
        },
        tool: ToolSpec { distribution: Distribution::Terraform, version: "1.11.4".into(), terragrunt: None },
        answers: Answers { approved: Some(true), mergeable: None },
        limits: JobLimits { timeout: Duration::from_secs(60), grace: Duration::from_secs(1), output: 1 << 20 },
        secrets: vec!["HIDDEN".into()],
        plan: PlanUse::Make { id: "b".repeat(32).into(), dirs: vec!["net".into()], changes_key: Some("key".into()) },
        policies: None,
        keeps_no_files: false,
        verify: None,
    }
}

#[tokio::test]
async fn a_plan_and_its_apply_run_on_two_machines_from_json_and_come_back_as_json() {
    let temp = tempfile::tempdir().unwrap();
    let at = temp.path();
    let terraform = at.join("terraform");
    std::fs::write(&terraform, TERRAFORM).unwrap();
    std::fs::set_permissions(&terraform, std::fs::Permissions::from_mode(0o755)).unwrap();
    let spec = carried(&plan_of(&at.join("source")).await);
    let one = machine(&at.join("one"));
    let (json, lines) = run_job(&one, &serde_json::to_string(&spec).unwrap(), &terraform).await;
    let planned: Ran = serde_json::from_str(&json).unwrap();
    assert_eq!(planned.ending, Ending::Done, "{planned:?}");
    assert!(planned.output.starts_with("infra true [] \\-\\x"), "{}", planned.output);
    assert!(planned.output.contains("Plan: 1 to add"), "{}", planned.output);
    assert_eq!((planned.log_lines, planned.job.as_str()), (lines.len() as u64, spec.job.as_str()));
    let kinds: Vec<_> = planned.steps.iter().map(|step| step.kind).collect();
    assert_eq!(kinds, [StepKind::Run, StepKind::Run, StepKind::Plan]);
    for two in planned.steps.windows(2) {
        assert_eq!(two[0].line + two[0].lines, two[1].line, "{two:?}");
        assert!(two[0].began + two[0].millis <= two[1].began, "{two:?}");
    }
    let plan = planned.steps.last().unwrap();
    let printed = &lines[plan.line as usize - 1..][..plan.lines as usize];
    assert!(printed.iter().any(|line| line.contains("Plan: 1 to add")), "{printed:?}");
    let made = carried(&planned).plan.unwrap();
    // The digest of its changes is recorded, and the JSON is deleted.
    assert!(
        made.changes
            .unwrap()
            .0
            .split('.')
            .all(|part| part.len() == 32 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
    );
    assert!(!json.contains("hidden") && !lines.iter().any(|line| line.contains("hidden")), "{json} {lines:?}");
    let Artifact { path, sha256 } = made.file.unwrap();

    let two = machine(&at.join("two"));
    let plan = PlanReference {
        id: "b".repeat(32).into(),
        path: Some(path.clone()),
        sha256: Some(sha256),
        left: made.left,
        approved: None,
        guards: Vec::new(),
        arguments: Vec::new(),
    };
    for file in [path, archive_path(&plan.id)] {
        std::fs::create_dir_all(two.data_dir.join(&file).parent().unwrap()).unwrap();
        std::fs::copy(one.data_dir.join(&file), two.data_dir.join(&file)).unwrap();
    }
    let mut apply = spec;
    apply.tree.movable = false;
    apply.command = Command::new(CommandName::Apply, Trigger::Comment, "alice");
    apply.command.extra_args = vec!["-no-color".into()];
    apply.steps = Steps::Stage { first: Vec::new(), steps: vec![Step::Apply { extra_args: Vec::new() }] };
    apply.plan = PlanUse::Apply(plan);
    let (json, _) = run_job(&two, &serde_json::to_string(&carried(&apply)).unwrap(), &terraform).await;
    let applied: Ran = carried(&serde_json::from_str(&json).unwrap());
    let exit = StepProblem::Exit { program: "terraform apply".into(), ending: "exit status 1".into(), init: false };
    assert_eq!(applied.ending, Ending::Broken(exit));
    assert!(!applied.output.contains("changes.json"), "{}", applied.output);
    assert!(applied.output.starts_with("mine\nthe plan\n"), "{}", applied.output);
    assert_eq!(applied.state_lock.met.unwrap().id, "somebody");
    let state = applied.errored_state.unwrap();
    assert_eq!(std::fs::read_to_string(two.data_dir.join(state.path)).unwrap(), "state\n");
}
