//! The DSL of these tests: a forge, a server, a repository, acts of people, and the server's comments.
//!
//! `{tmp}` in files, flags and `repos.yaml` is the test's own directory, `{forge}` the forge's address. All comments of the server have to
//! be read by the end of a test: an unexpected one fails it.

mod depose;
mod gates;
mod links;
mod said;
mod server;
mod states;

pub(crate) use depose::depose;
pub(crate) use gates::{gate, make_executable};
pub(crate) use said::Said;
pub(crate) use server::Running;
pub(crate) use states::States;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use tidelock::app::JoinedHost;
use tidelock_forge::{Comment, Forge, ForgeOptions, OpenOptions, Pull, Repo};

/// Time limit of one answer of the server, on a machine that is busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Time limit of a whole test.
const TEST_LIMIT: Duration = Duration::from_secs(150);
/// Interval of polling for conditions without an event: files and the server's own count of work.
const LOOK: Duration = Duration::from_millis(10);

/// Code of a project with its state outside of the checkout; pull requests change `input`.
pub(crate) fn terraform(state: &str, input: &str) -> String {
    format!(
        "terraform {{\n  backend \"local\" {{\n    path = \"{{tmp}}/state/{state}.tfstate\"\n  }}\n}}\n\n\
         resource \"terraform_data\" \"this\" {{\n  input = \"{input}\"\n}}\n"
    )
}

/// Private key of the App that the server is; made for these tests, and known to nobody else.
pub(crate) const APP_KEY: &str = include_str!("github_app/key.pem");

/// Initial state of a test.
pub(crate) struct Setup {
    files: Vec<(String, String)>,
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    repos_yaml: Option<String>,
    config: Option<String>,
    binary: bool,
    hosts: Vec<JoinedHost>,
    /// Name of the App that the server is, instead of an account.
    app: Option<String>,
}

impl Setup {
    /// A repository with these files on `main`.
    pub(crate) fn repo(files: &[(&str, &str)]) -> Setup {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let (flags, environment, hosts) = (Vec::new(), Vec::new(), Vec::new());
        Setup { files, flags, environment, repos_yaml: None, config: None, binary: false, hosts, app: None }
    }

    /// A repository with one project at its root.
    pub(crate) fn one_project() -> Setup {
        Setup::repo(&[("main.tf", &terraform("root", "1"))])
    }

    /// A project in each of these directories.
    pub(crate) fn projects(dirs: &[&str]) -> Setup {
        let files: Vec<_> = dirs.iter().map(|dir| (format!("{dir}/main.tf"), terraform(dir, "1"))).collect();
        Setup { files, ..Setup::repo(&[]) }
    }

    pub(crate) fn file(mut self, path: &str, text: &str) -> Setup {
        self.files.push((path.to_owned(), text.to_owned()));
        self
    }

    pub(crate) fn flags(mut self, flags: &[&str]) -> Setup {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// A variable of the server's environment; it replaces the one that every server of these tests has.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Setup {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn repos_yaml(mut self, text: &str) -> Setup {
        self.repos_yaml = Some(text.to_owned());
        self
    }

    /// The file of `--config`, which names the allowlist as well.
    pub(crate) fn config(mut self, text: &str) -> Setup {
        self.config = Some(text.to_owned());
        self
    }

    /// The steps of the plan and apply stages of every project, one `run` command or name of a step each.
    pub(crate) fn steps(self, plan: &[&str], apply: &[&str]) -> Setup {
        self.repos_yaml(&workflow("", plan, apply))
    }

    /// Makes the server this App, which `acme` has installed.
    pub(crate) fn signed_in_as_app(mut self, slug: &str) -> Setup {
        self.app = Some(slug.to_owned());
        self.flags(&["--gh-user=", "--gh-app-key-file={own}/app.pem"]).variable("TIDELOCK_GH_TOKEN", "")
    }

    /// Adds this host besides the forge.
    pub(crate) fn host(mut self, host: JoinedHost) -> Setup {
        self.hosts.push(host);
        self
    }

    /// Runs the server as a process of its own, which can be killed.
    pub(crate) fn own_process(mut self) -> Setup {
        self.binary = true;
        self
    }
}

/// Returns a `repos.yaml` where every repository has `keys` and a workflow of these steps.
pub(crate) fn workflow(keys: &str, plan: &[&str], apply: &[&str]) -> String {
    let stage = |steps: &[&str]| {
        let written = steps.iter().map(|step| match *step {
            "init" | "plan" | "apply" | "show" => format!("        - {step}\n"),
            command => format!("        - run: {}\n", serde_json::Value::from(command)),
        });
        written.collect::<String>()
    };
    let keys: String = keys.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "repos:\n  - id: /.*/\n    workflow: custom\n{keys}workflows:\n  custom:\n    plan:\n      steps:\n{}    apply:\n      steps:\n{}",
        stage(plan),
        stage(apply)
    )
}

/// Runs a test; unread comments on any pull request fail it.
pub(crate) fn run_test(setup: Setup, test: impl AsyncFnOnce(&Ctx)) {
    run_test_within(TEST_LIMIT, setup, test);
}

/// The same with another time limit.
pub(crate) fn run_test_within(limit: Duration, setup: Setup, test: impl AsyncFnOnce(&Ctx)) {
    // The stack is that of the server's own threads.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).thread_stack_size(8 << 20).enable_all().build().unwrap();
    runtime.block_on(async {
        let ctx = Ctx::start(setup).await;
        let whole = async {
            test(&ctx).await;
            ctx.end().await;
        };
        tokio::time::timeout(limit, whole).await.expect("the test takes too long");
    });
    runtime.shutdown_background();
}

/// A running test.
pub(crate) struct Ctx {
    pub(crate) forge: Forge,
    pub(crate) repo: Repo,
    /// The test's directory, `{tmp}`, in which steps can write.
    pub(crate) tmp: PathBuf,
    /// The server's directory, `{own}`, with files that are not for steps: its data, `HOME`, bucket, keys and programs.
    pub(crate) own: PathBuf,
    pub(crate) server: Running,
    /// Comments of the server read so far, by pull request.
    read: Mutex<HashMap<u64, usize>>,
    _dir: tempfile::TempDir,
}

fn fill(text: &str, tmp: &Path, own: &Path, forge: &Forge) -> String {
    let text = text.replace("{tmp}", tmp.to_str().unwrap()).replace("{own}", own.to_str().unwrap());
    text.replace("{forge}", forge.url())
}

impl Ctx {
    async fn start(setup: Setup) -> Ctx {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().canonicalize().unwrap().join("own");
        let tmp = own.with_file_name("tmp");
        for folder in [own.join("home"), tmp.join("state")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let forge = Forge::start(ForgeOptions { dir: own.join("forge"), port: 0 }).await.unwrap();
        let fill = |text: &str| fill(text, &tmp, &own, &forge);
        let files: Vec<_> = setup.files.iter().map(|(path, text)| (path.as_str(), fill(text))).collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let repo = forge.create_repo("acme/infra", &files).await.unwrap();
        let mut flags: Vec<String> = setup.flags.iter().map(|flag| fill(flag)).collect();
        if let Some(text) = &setup.repos_yaml {
            std::fs::write(own.join("repos.yaml"), fill(text)).unwrap();
            flags.push(format!("--repo-config={}", own.join("repos.yaml").display()));
        }
        if let Some(text) = &setup.config {
            std::fs::write(own.join("tidelock.yaml"), fill(text)).unwrap();
            flags.push(format!("--config={}", own.join("tidelock.yaml").display()));
        }
        if let Some(slug) = &setup.app {
            std::fs::write(own.join("app.pem"), APP_KEY).unwrap();
            flags.push(format!("--gh-app-id={}", forge.set_app(slug, APP_KEY).unwrap()));
            forge.install_app("acme").unwrap();
        }
        let environment = setup.environment.iter().map(|(name, value)| (name.clone(), fill(value))).collect();
        let server = Running::new(&forge, &own, flags, environment, setup.binary, setup.hosts);
        let ctx = Ctx { forge, repo, tmp, own, server, read: Mutex::default(), _dir: dir };
        ctx.server.start().await;
        ctx
    }

    /// Waits for the clock's next second. Hosts have whole seconds, so that later events are later for them too.
    pub(crate) async fn next_second(&self) {
        let second = jiff::Timestamp::now().as_second();
        self.until("the second is over", async || jiff::Timestamp::now().as_second() > second).await;
    }

    /// Checks the end of a test: every delivery is answered, nothing runs, all comments are posted, and all were read.
    async fn end(&self) {
        self.quiet().await;
        self.server.stop().await;
        for pull in self.repo.pulls().unwrap() {
            let comments = pull.bot_comments().unwrap();
            let mut unread: Vec<_> = comments.iter().skip(self.read_so_far(&pull)).collect();
            // Comments that `next` skips.
            unread.retain(|comment| Said::new(&comment.body).marker["message"] != "also_changed");
            assert!(unread.is_empty(), "#{} has comments that nobody read: {unread:#?}", pull.number());
        }
    }

    /// Waits until every delivery is answered and no command runs or waits.
    pub(crate) async fn quiet(&self) {
        self.forge.wait_for_deliveries(LIMIT).await.unwrap();
        self.until("no command runs", async || self.json("/status").await["in_progress_operations"] == 0).await;
    }

    /// Polls until the condition holds.
    pub(crate) async fn until(&self, what: &str, so: impl AsyncFn() -> bool) {
        let looking = async {
            while !so().await {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(LIMIT, looking).await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"));
    }

    /// Polls until this is the value.
    pub(crate) async fn until_equal<T: PartialEq + std::fmt::Debug>(&self, expected: &[T], read: impl Fn() -> Vec<T>) {
        let looking = async {
            while read() != expected {
                tokio::time::sleep(LOOK).await;
            }
        };
        if tokio::time::timeout(LIMIT, looking).await.is_err() {
            assert_eq!(read(), expected, "not within {LIMIT:?}");
        }
    }

    pub(crate) fn fill(&self, text: &str) -> String {
        fill(text, &self.tmp, &self.own, &self.forge)
    }

    /// Writes `repos.yaml` anew. The server reads it when it is started again, or some seconds later.
    pub(crate) fn rewrite_repos_yaml(&self, text: &str) {
        std::fs::write(self.own.join("repos.yaml"), self.fill(text)).unwrap();
    }

    /// Opens a pull request of alice that writes these files.
    pub(crate) async fn open(&self, branch: &str, files: &[(&str, &str)]) -> Pull {
        self.open_as("alice", branch, files, OpenOptions::default()).await
    }

    pub(crate) async fn open_as(
        &self,
        author: &str,
        branch: &str,
        files: &[(&str, &str)],
        options: OpenOptions,
    ) -> Pull {
        let texts: Vec<_> = files.iter().map(|(path, text)| (*path, self.fill(text))).collect();
        let changes: Vec<_> = texts.iter().map(|(path, text)| (*path, Some(text.as_str()))).collect();
        self.repo.open_pull(branch, author, &format!("Change by {branch}"), &changes, options).await.unwrap()
    }

    /// Opens a pull request that changes the only project to this input.
    pub(crate) async fn open_input(&self, branch: &str, input: &str) -> Pull {
        self.open(branch, &[("main.tf", &terraform("root", input))]).await
    }

    /// Opens a pull request that changes these projects, each at its directory.
    pub(crate) async fn open_dirs(&self, branch: &str, dirs: &[&str]) -> Pull {
        self.open_each(branch, dirs, |dir| (format!("{dir}/main.tf"), terraform(dir, branch))).await
    }

    /// Opens a pull request with a new file in each of these projects, so that all such pull requests can be merged.
    pub(crate) async fn open_own(&self, branch: &str, dirs: &[&str]) -> Pull {
        self.open_each(branch, dirs, |dir| (format!("{dir}/{branch}.tf"), format!("# {branch}\n"))).await
    }

    /// Opens a pull request with one file for each of these directories.
    async fn open_each(&self, branch: &str, dirs: &[&str], file: impl Fn(&str) -> (String, String)) -> Pull {
        let files: Vec<_> = dirs.iter().map(|dir| file(dir)).collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        self.open(branch, &files).await
    }

    /// As [`Ctx::open_dirs`], and waits for a successful plan.
    pub(crate) async fn planned_dirs(&self, branch: &str, dirs: &[&str]) -> Pull {
        self.planned(self.open_dirs(branch, dirs).await).await
    }

    /// As [`Ctx::open_own`], and waits for a successful plan.
    pub(crate) async fn planned_own(&self, branch: &str, dirs: &[&str]) -> Pull {
        self.planned(self.open_own(branch, dirs).await).await
    }

    async fn planned(&self, pull: Pull) -> Pull {
        self.next(&pull).await.is("plan", "success");
        pull
    }

    pub(crate) async fn push(&self, pull: &Pull, path: &str, text: &str) -> String {
        pull.push(&[(path, Some(&self.fill(text)))]).await.unwrap()
    }

    fn read_so_far(&self, pull: &Pull) -> usize {
        self.read.lock().unwrap().get(&pull.number()).copied().unwrap_or_default()
    }

    /// Returns the server's next comment on this pull request, except for those about another one with the same changes.
    pub(crate) async fn next(&self, pull: &Pull) -> Said {
        loop {
            let said = self.next_of_all(pull).await;
            if said.marker["message"] != "also_changed" {
                return said;
            }
        }
    }

    /// Returns the server's next comment on this pull request, of every kind.
    pub(crate) async fn next_of_all(&self, pull: &Pull) -> Said {
        let read = self.read_so_far(pull);
        let comment: Comment = match pull.wait_for_comment(read, LIMIT).await {
            Ok(comment) => comment,
            Err(error) => panic!("{error:#}\nstatuses: {:#?}\n{}", pull.statuses(), self.server.log()),
        };
        self.read.lock().unwrap().insert(pull.number(), read + 1);
        Said::new(&comment.body)
    }

    /// Skips a comment of the server's account that the server did not write.
    pub(crate) fn pass_over(&self, pull: &Pull) {
        *self.read.lock().unwrap().entry(pull.number()).or_default() += 1;
    }

    /// Comments as this user, and returns the server's next comment, which is the answer.
    pub(crate) async fn say_as(&self, user: &str, pull: &Pull, comment: &str) -> Said {
        pull.comment(user, comment).unwrap();
        self.next(pull).await
    }

    /// Comments as alice, and returns the server's next comment, which is the answer.
    pub(crate) async fn say(&self, pull: &Pull, comment: &str) -> Said {
        self.say_as("alice", pull, comment).await
    }

    /// Waits for this status and description (part of it) of a context on the pull request's head.
    pub(crate) async fn status(&self, pull: &Pull, context: &str, state: &str, description: &str) {
        let fits =
            |status: &tidelock_forge::CommitStatus| status.state == state && status.description.contains(description);
        if let Err(error) = pull.wait_for_status(context, fits, LIMIT).await {
            panic!("wanted {state} `{description}`: {error:#}\n{:#?}", pull.statuses());
        }
    }

    /// Waits until no status of the pull request's head is pending, except for those named.
    pub(crate) async fn nothing_pending(&self, pull: &Pull, except: &[&str]) {
        self.until("no status is pending", async || {
            let statuses = pull.statuses().unwrap();
            statuses.iter().all(|(context, status)| status.state != "pending" || except.contains(&context.as_str()))
        })
        .await;
    }

    /// Waits until this context of a commit, which need not be the head any more, has this state and description.
    pub(crate) async fn status_of(&self, commit: &str, context: &str, state: &str, description: &str) {
        self.until(&format!("{context} of {commit} is {state}: {description}"), async || {
            let statuses = self.repo.statuses_of(commit).unwrap();
            statuses.get(context).is_some_and(|s| s.state == state && s.description.contains(description))
        })
        .await;
    }

    /// Waits until no status of this commit is pending, whether it is the head or not.
    pub(crate) async fn nothing_pending_on(&self, commit: &str) {
        self.until(&format!("no status of {commit} is pending"), async || {
            self.repo.statuses_of(commit).unwrap().values().all(|status| status.state != "pending")
        })
        .await;
    }

    /// Sends a signed delivery of the test's own. Returns the status of the answer.
    pub(crate) async fn deliver(&self, event: &str, body: &str) -> u16 {
        use hmac::{Hmac, KeyInit, Mac};
        use secrecy::ExposeSecret;
        let secret = self.forge.webhook_secret();
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret.expose_secret().as_bytes()).unwrap();
        mac.update(body.as_bytes());
        let request = reqwest::Client::new()
            .post(format!("{}/events", self.server.url()))
            .header("Content-Type", "application/json")
            .header("X-GitHub-Delivery", "00000000-0000-0000-0000-000000000000")
            .header("X-GitHub-Event", event)
            .header("X-Hub-Signature-256", format!("sha256={}", hex::encode(mac.finalize().into_bytes())));
        request.body(body.to_owned()).send().await.unwrap().status().as_u16()
    }

    /// Requests a page or an API. Returns status and text of the answer.
    pub(crate) async fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let url = format!("{}{path}", self.server.url());
        let mut request = client().request(method.parse().unwrap(), url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    pub(crate) async fn json(&self, path: &str) -> serde_json::Value {
        let (status, text) = self.request("GET", path, &[]).await;
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Returns the names of the locks in the API, sorted.
    pub(crate) async fn locks(&self) -> Vec<String> {
        let all = self.json("/api/locks").await;
        let mut names: Vec<String> = all["Locks"]
            .as_array()
            .map(|locks| locks.iter().map(|lock| lock["Name"].as_str().unwrap().to_owned()).collect())
            .unwrap_or_default();
        names.sort();
        names
    }

    /// Returns the owners in the API, oldest first: `DIR #PULL STATE`.
    pub(crate) async fn owners(&self) -> Vec<String> {
        let all = self.json("/api/locks").await;
        let rows = all["Locks"].as_array().cloned().unwrap_or_default();
        let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
        rows.iter()
            .map(|row| format!("{} #{} {}", text(row, "ProjectRepoPath"), text(row, "PullID"), text(row, "State")))
            .collect()
    }
}

/// Returns the client for servers of the tests. It is shared, because making one takes longer than a request, and polling makes many. No
/// connection is kept: servers come and go.
pub(crate) fn client() -> &'static reqwest::Client {
    static CLIENT: OnceLock<reqwest::Client> = OnceLock::new();
    CLIENT.get_or_init(|| {
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        client.pool_max_idle_per_host(0).tls_danger_accept_invalid_certs(true).build().unwrap()
    })
}

/// A step that prints a plan's totals, for tests that need no Terraform.
pub(crate) const PLANNED: &str = "echo 'Plan: 1 to add, 0 to change, 0 to destroy.'";
