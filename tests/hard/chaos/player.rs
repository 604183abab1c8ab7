//! Plays a trial: people act on their pull requests one after the other, a server ends meanwhile, and the result is recorded when all is at
//! rest.

use super::Seeded;
use super::approvals::ApplyCause;
use super::engines::Surroundings;
use super::job_kills::{self, JobKills};
use super::judge::violations;
use super::server::{Ending, Running, Servers};
use super::trace::{Act, Event, JobsAt, Locking, Trace};
use jiff::Timestamp;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidelock_forge::{Forge, ForgeOptions, HostKind, OpenOptions, Pull, Repo};
use tokio::sync::watch;

/// Time limit of the answer to an accepted command.
const PATIENCE: Duration = Duration::from_secs(60);
/// Wait for the answer to a command whose delivery failed: the server finds it by reconciliation, but need not answer.
const HOPE: Duration = Duration::from_secs(10);
/// Time after which the server gives up a job whose end nobody sees, with some more to spare.
const SILENCE: Duration = Duration::from_secs(150);
/// Time for which a start without an answer may still be carried out, with some more to spare.
const IN_DOUBT: Duration = Duration::from_secs(90);
/// Time without anything new that counts as rest.
pub(super) const REST: Duration = Duration::from_millis(700);
/// Interval of polling.
pub(super) const LOOK: Duration = Duration::from_millis(20);
const DIRS: [&str; 2] = ["a", "b"];

/// The plan step makes every plan a different one, and the apply step records which one it was.
const WORKFLOW: &str = r#"{executors}repos:
  - id: /.*/
    workflow: counted
    repo_locks: {mode: {mode}}{people}{executor}{applies}
workflows:
  counted:
    plan:
      steps:
        - run: 'sleep 0.2; plan=$(cat /proc/sys/kernel/random/uuid); echo "$plan" > "$PLANFILE"; echo "plan $PULL_NUM $REPO_REL_DIR $plan" >> {seen}/ran; {longer}echo "Plan: 1 to add, 0 to change, 0 to destroy."'
    apply:
      steps:
        - run: 'plan=$(cat "$PLANFILE") && sleep 0.1 && echo "apply $PULL_NUM $REPO_REL_DIR $plan" >> {seen}/ran && {longer}sleep 0.2{fails}'
"#;

/// Azure DevOps does not say who may write, so only a rule lets bob end an owner.
const PEOPLE: &str = "\n    allowed_users: ['*', 'bob@example.com:unlock']";

/// In mode `strict` one of eight applies fails half way.
const FAILS: &str = r#" && case $plan in [01]*) exit 1 ;; esac"#;

/// Names the executor of all jobs, in the entry of the repository.
const EXECUTOR: &str = "\n    executor: [{plan: jobs, apply: jobs}]";

/// Lets jobs of an executor take up to a second longer, so that they outlive a server and are met by the next one.
const LONGER: &str = r#"sleep 0.$(od -An -N1 -tu1 /dev/urandom | tr -d " "); "#;

#[derive(Clone, Copy)]
pub(crate) struct Trial {
    pub(crate) host: HostKind,
    pub(crate) locking: Locking,
    pub(crate) jobs: JobsAt,
    pub(crate) applies: ApplyCause,
    pub(crate) ending: Ending,
    pub(crate) seed: u64,
}

/// State that the people of a trial share.
pub(super) struct Play {
    pub(super) forge: Forge,
    pub(super) repo: Repo,
    pub(super) locking: Locking,
    applies: ApplyCause,
    pub(super) dir: PathBuf,
    pub(super) surroundings: Surroundings,
    pub(super) trace: Mutex<Trace>,
    /// Time limit of an answer, and of coming to rest.
    pub(super) patience: Duration,
    /// Mark of the server that leads. Held while a job is killed and while the server ends.
    pub(super) serving: tokio::sync::Mutex<String>,
    /// Time at which a server was killed with SIGKILL.
    pub(super) killed: Mutex<Option<Timestamp>>,
    /// Held during an act and its deliveries, so that it is known whose deliveries they are.
    acting: tokio::sync::Mutex<()>,
    /// Number of acts whose deliveries were accepted.
    accepted: watch::Sender<u64>,
}

impl Trial {
    /// Plays it and returns the violations.
    pub(crate) async fn play(&self) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let trace = self.trace(&path).await;
        let found = violations(&trace);
        if self.jobs != JobsAt::Server {
            println!("seed {}: {}", self.seed, job_kills::summary(&trace, &path));
        }
        if !found.is_empty() {
            let kept = dir.keep();
            println!("{}: {found:#?}\n{trace:#?}", kept.display());
        }
        found
    }

    async fn trace(&self, dir: &std::path::Path) -> Trace {
        let forge = Forge::start_as(self.host, ForgeOptions { dir: dir.join("forge"), port: 0 }).await.unwrap();
        let is_azure_devops = self.host == HostKind::AzureDevOps;
        let files: Vec<(String, &str)> = DIRS.iter().map(|dir| (format!("{dir}/main.tf"), "# 1\n")).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let repo = forge.create_repo(&self.host.example_repository("infra"), &files).await.unwrap();
        let (mode, fails) = if self.locking == Locking::Strict { ("strict", FAILS) } else { ("on_plan", "") };
        let people = if is_azure_devops { PEOPLE } else { "" };
        let surroundings = Surroundings::start(self.jobs, dir, Seeded::new(!self.seed)).await;
        let (executors, executor, longer) = match self.jobs {
            JobsAt::Server => (String::new(), "", ""),
            JobsAt::Executor(_) => (format!("executors: {{jobs: {}}}\n", surroundings.executor), EXECUTOR, LONGER),
        };
        let rules = WORKFLOW.replace("{mode}", mode).replace("{people}", people).replace("{fails}", fails);
        let rules = rules.replace("{applies}", self.applies.keys());
        let rules =
            rules.replace("{executors}", &executors).replace("{executor}", executor).replace("{longer}", longer);
        let (seen, home) = (dir.join("seen"), dir.join("home"));
        [&seen, &home].iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        std::fs::write(dir.join("repos.yaml"), rules.replace("{seen}", seen.to_str().unwrap())).unwrap();
        let servers = Servers::new(forge.clone(), dir, surroundings.settings.clone(), surroundings.variables.clone());
        let mark = self.host.pull_mark().to_string();
        let trace = Trace { mark, locking: self.locking, jobs: self.jobs, applies: self.applies, ..Trace::default() };
        let play = Arc::new(Play {
            forge,
            repo,
            locking: self.locking,
            applies: self.applies,
            dir: dir.to_owned(),
            surroundings,
            trace: Mutex::new(trace),
            patience: PATIENCE + self.delay(),
            serving: tokio::sync::Mutex::default(),
            killed: Mutex::default(),
            acting: tokio::sync::Mutex::new(()),
            accepted: watch::channel(0).0,
        });
        match self.with_server(&play, &servers).await {
            Ok(server) => {
                play.rest(&server.url).await;
                play.turns(&server.url).await;
                play.look_at_the_end();
                let left = play.look_for_left_jobs().await;
                let data = server.data.clone();
                server.terminate(false).await;
                play.look_into_state(&data, left);
            }
            Err(broken) => play.trace.lock().unwrap().broken.push(broken),
        }
        play.kill_left_jobs();
        play.trace.lock().unwrap().clone()
    }

    /// Plays all people while the server ends; returns the server that runs then.
    async fn with_server(&self, play: &Arc<Play>, servers: &Servers) -> Result<Running, String> {
        let mut random = Seeded::new(self.seed);
        let mut server = servers.start("data-0").await?;
        server.leads().await?;
        play.listen(&server);
        server.mark.clone_into(&mut *play.serving.lock().await);
        let people: Vec<_> = (0..2 + random.below(2))
            .map(|person| {
                let (play, own) = (Arc::clone(play), Seeded::new(random.next()));
                tokio::spawn(async move { play.person(person, own).await })
            })
            .collect();
        let (after, most) = (1 + random.below(8), random.pick(&[1, 60, 900]));
        let delay = random.below(most);
        let (kills, mut own) = (self.kills(), Seeded::new(random.next()));
        let killing = tokio::spawn({
            let play = Arc::clone(play);
            let random = Seeded::new(random.next());
            async move { play.kill_jobs(kills, random).await }
        });
        let ended = async {
            let mut accepted = play.accepted.subscribe();
            // If all people have finished before, it ends at rest.
            let _ = tokio::time::timeout(PATIENCE, accepted.wait_for(|count| *count >= after)).await;
            match (self.jobs, kills, own.below(3)) {
                (JobsAt::Executor(_), JobKills::Unattended, _) => play.until_a_job_runs().await,
                (JobsAt::Executor(_), _, 0) => play.until_a_job_is_stored().await,
                (JobsAt::Executor(_), _, 1) => {
                    play.until_a_job_runs().await;
                    tokio::time::sleep(Duration::from_millis(delay)).await;
                }
                _ => tokio::time::sleep(Duration::from_millis(delay)).await,
            }
            self.end(server, play, servers, own).await
        };
        let all = async {
            for person in people {
                person.await.unwrap();
            }
            // Wakes a task that still waits for that many.
            play.accepted.send_modify(|count| *count += after);
        };
        let (server, ()) = tokio::join!(ended, all);
        killing.abort();
        let mut server = server?;
        server.leads().await?;
        play.rest(&server.url).await;
        play.probe(&mut random).await;
        Ok(server)
    }

    /// Returns the longest delay of an answer and of rest by what is done to jobs.
    fn delay(&self) -> Duration {
        match self.jobs {
            JobsAt::Executor(engine) if engine.is_outside() => IN_DOUBT,
            _ if self.kills() == JobKills::Unattended => SILENCE,
            _ => Duration::ZERO,
        }
    }

    /// Returns the jobs that are killed.
    fn kills(&self) -> JobKills {
        match self.jobs {
            JobsAt::Server => JobKills::None,
            JobsAt::Executor(engine) => JobKills::of(self.seed, self.ending, engine),
        }
    }

    /// Ends the server in the way of this trial, and starts another one.
    async fn end(&self, server: Running, play: &Play, servers: &Servers, random: Seeded) -> Result<Running, String> {
        let mut serving = play.serving.lock().await;
        play.record(Event::Ending);
        let before = server.mark.clone();
        let unattended = async || {
            if self.kills() == JobKills::Unattended {
                play.kill_unattended(&before, random.clone()).await;
            }
        };
        let next = match self.ending {
            Ending::None => return Ok(server),
            Ending::Sigkill { disk_lost } => {
                server.kill(disk_lost).await;
                *play.killed.lock().unwrap() = Some(Timestamp::now());
                unattended().await;
                servers.start("data-0").await?
            }
            Ending::Sigterm { disk_lost } => {
                server.terminate(disk_lost).await;
                unattended().await;
                servers.start("data-0").await?
            }
            Ending::SigtermOverlap => {
                let next = servers.start("data-1").await?;
                play.listen(&next);
                server.terminate(true).await;
                unattended().await;
                next
            }
        };
        play.listen(&next);
        play.record(Event::Ended);
        // The next server may start a process that this one has started, too. Only its signs of life then tell that it is dead, after two
        // minutes.
        let is_soon = matches!(self.jobs, JobsAt::Executor(engine) if engine.is_outside());
        if is_soon || self.kills() == JobKills::Unattended {
            next.mark.clone_into(&mut serving);
        } else {
            serving.clear();
        }
        Ok(next)
    }
}

impl Play {
    pub(super) fn record(&self, event: Event) -> usize {
        let mut trace = self.trace.lock().unwrap();
        self.read_runs(&mut trace);
        trace.events.push(event);
        trace.events.len() - 1
    }

    /// Records the workflow's runs since the last call.
    pub(super) fn read_runs(&self, trace: &mut Trace) {
        let text = std::fs::read_to_string(self.dir.join("seen/ran")).unwrap_or_default();
        let known = trace.events.iter().filter(|event| matches!(event, Event::Ran { .. })).count();
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        trace.events.extend(whole.filter_map(Event::of_line).skip(known));
    }

    /// Directs deliveries to this server from now on.
    fn listen(&self, server: &Running) {
        self.forge.set_webhook(&format!("{}/events", server.url));
    }

    /// Plays a person, who opens a pull request, acts on it some more, and may close it.
    async fn person(&self, person: u64, mut random: Seeded) {
        tokio::time::sleep(Duration::from_millis(person * random.below(800))).await;
        let dirs = random.pick(&[&DIRS[..1], &DIRS[..1], &DIRS[1..], &DIRS[..]]);
        let reader = self.open(&format!("person-{person}"), dirs).await;
        for number in 0..2 + random.below(3) {
            let apply = self.applies.act();
            let mut act = random.pick(&[apply, apply, apply, Act::Plan, Act::Push, Act::Unlock]);
            if self.locking == Locking::Strict && act == Act::Unlock && random.below(2) == 0 {
                act = Act::AcceptDrift;
            }
            self.act(&reader, act, number).await;
        }
        let is_strict = self.locking == Locking::Strict;
        let end = match random.below(4) {
            0 => Act::Close,
            1 => Act::Merge,
            2 if is_strict => Act::Merge,
            _ => return,
        };
        self.act(&reader, end, 0).await;
        let later: &[Act] = match end {
            Act::Merge => &[Act::ApplyMerged, Act::ApplyMerged, Act::ApplyMerged, Act::AcceptDrift, Act::Unlock],
            _ => &[Act::AcceptDrift, Act::Unlock],
        };
        for number in 0..if is_strict { random.below(4) } else { 0 } {
            self.act(&reader, random.pick(later), number).await;
        }
    }

    async fn open(&self, branch: &str, dirs: &[&str]) -> Reader {
        let files: Vec<String> = dirs.iter().map(|dir| format!("{dir}/{branch}.tf")).collect();
        let changes: Vec<(&str, Option<&str>)> = files.iter().map(|path| (path.as_str(), Some("# 1\n"))).collect();
        let acting = self.acting.lock().await;
        let before = self.last_delivery();
        let title = format!("Change by {branch}");
        let pull = self.repo.open_pull(branch, "alice", &title, &changes, OpenOptions::default()).await.unwrap();
        let number = pull.number();
        self.trace.lock().unwrap().dirs.insert(number, dirs.iter().map(|dir| (*dir).to_owned()).collect());
        let said = self.record(Event::Said { pull: number, act: Act::Open, accepted: false });
        let accepted = self.delivered(before, said).await;
        drop(acting);
        self.read_answer(&pull, Act::Open, accepted).await;
        Reader { pull, file: files[0].clone() }
    }

    async fn act(&self, reader: &Reader, act: Act, number: u64) {
        let acting = self.acting.lock().await;
        // Earlier comments are read before.
        let (before, pull) = (self.last_delivery(), &reader.pull);
        self.read(pull);
        let said = self.record(Event::Said { pull: pull.number(), act, accepted: false });
        match act {
            Act::Open => unreachable!("it is open"),
            Act::Push => {
                drop(pull.push(&[(reader.file.as_str(), Some(&format!("# {number} again\n")))]).await.unwrap());
            }
            Act::Plan => _ = pull.comment("bob", "atlantis plan").unwrap(),
            Act::Apply | Act::ApplyMerged => _ = pull.comment("bob", "atlantis apply").unwrap(),
            Act::Approve => pull.approve("bob").unwrap(),
            Act::Unlock => _ = pull.comment("bob", "atlantis unlock").unwrap(),
            Act::AcceptDrift => _ = pull.comment("bob", "atlantis unlock --accept-drift -m \"it is so\"").unwrap(),
            Act::Close => pull.close().unwrap(),
            Act::Merge => drop(pull.merge().await.unwrap()),
        }
        let accepted = self.delivered(before, said).await;
        drop(acting);
        self.read_answer(pull, act, accepted).await;
    }

    fn last_delivery(&self) -> u64 {
        self.forge.deliveries().last().map_or(0, |delivery| delivery.id)
    }

    /// Waits until the deliveries of an act are made. Returns true if a server took one.
    async fn delivered(&self, before: u64, said: usize) -> bool {
        self.forge.wait_for_deliveries(PATIENCE).await.unwrap();
        let is_persons = |body: &str| !body.contains("tidelock:{");
        let accepted = self.forge.deliveries().into_iter().any(|delivery| {
            delivery.id > before && delivery.event != "ping" && delivery.succeeded() && is_persons(&delivery.body)
        });
        if let Event::Said { accepted: known, .. } = &mut self.trace.lock().unwrap().events[said] {
            *known = accepted;
        }
        if accepted {
            self.accepted.send_modify(|count| *count += 1);
        }
        accepted
    }

    /// Records new comments of the server on a pull request. Returns the commands that they answer.
    pub(super) fn read(&self, pull: &Pull) -> Vec<String> {
        let comments = pull.bot_comments().unwrap();
        let mut trace = self.trace.lock().unwrap();
        self.read_runs(&mut trace);
        let known = |id: u64| move |event: &Event| matches!(event, Event::Answered { id: other, .. } if *other == id);
        let mut commands = Vec::new();
        for comment in comments {
            if trace.events.iter().any(known(comment.id)) {
                continue;
            }
            let Some(event) = Event::of_comment(pull.number(), comment.id, &comment.body) else { continue };
            if let Event::Answered { command, .. } = &event {
                commands.push(command.clone());
            }
            trace.events.push(event);
        }
        commands
    }

    async fn read_answer(&self, pull: &Pull, act: Act, accepted: bool) {
        // A closing may get no comment.
        let limit = if accepted && !act.may_be_unanswered() { self.patience } else { HOPE };
        let began = Instant::now();
        while began.elapsed() < limit {
            if self.read(pull).iter().any(|command| act.is_answered_by(command)) {
                return;
            }
            if act.may_be_unanswered() && accepted && began.elapsed() > REST * 3 {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Uses what should exist: applies planned pull requests, and has a new one plan each directory.
    async fn probe(&self, random: &mut Seeded) {
        for pull in self.repo.pulls().unwrap().into_iter().filter(|pull| pull.is_open().unwrap()) {
            if random.below(2) == 0 {
                self.act(&Reader { pull, file: String::new() }, self.applies.act(), 0).await;
            }
        }
        for dir in DIRS {
            let reader = self.open(&format!("probe-{dir}"), &[dir]).await;
            if self.locking == Locking::Strict {
                self.act(&reader, Act::Apply, 0).await;
            }
        }
    }
}

/// A pull request of a person.
struct Reader {
    pull: Pull,
    /// File that pushes change.
    file: String,
}
