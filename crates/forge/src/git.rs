//! Real git under the forge: a bare repository for each repository, used through plumbing commands. Only this file and `git_http` start
//! git. No content of a pull request is executed.

use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// Time limit of one plumbing command.
const GIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of the copy of a person's repository, which may be large.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(600);

/// Most bytes of output that are read of one command; more is an error.
const MAX_GIT_OUTPUT: u64 = 32 << 20;

/// Oldest supported version, the first with `merge-tree --write-tree`.
const OLDEST_GIT: (u32, u32) = (2, 38);

const CONFIG: &str = "[http]\n\treceivepack = true\n[uploadpack]\n\tallowFilter = true\n\tallowAnySHA1InWant = true\n\
     [receive]\n\thideRefs = refs/pull\n\thideRefs = refs/pull-requests\n\thideRefs = refs/merge-requests\n\tautogc = false\n[gc]\n\tauto = 0\n";

/// Variables that a surrounding git command sets (hooks, rebases) and that must not reach the forge's own git.
const GIT_VARIABLES: [&str; 7] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
];

/// A bare repository.
#[derive(Clone)]
pub(super) struct GitRepo {
    path: PathBuf,
}

/// One commit of a pull request.
#[derive(serde::Serialize)]
pub(super) struct CommitLine {
    pub sha: String,
    pub author: String,
    pub subject: String,
}

/// What git records with a commit.
pub(super) struct CommitDetails {
    /// Time in seconds.
    pub time: i64,
    pub author: String,
    pub parents: Vec<String>,
    pub message: String,
}

/// One changed file of a pull request.
pub(super) struct ChangedFile {
    pub path: String,
    /// Path before a rename.
    pub former_path: Option<String>,
    /// `added`, `deleted`, `renamed` or `changed`.
    pub status: &'static str,
    pub additions: u64,
    pub deletions: u64,
}

/// Returns a git command with pipes that ignores the user's configuration.
pub(super) fn git_command() -> Command {
    let mut command = Command::new("git");
    for name in GIT_VARIABLES {
        command.env_remove(name);
    }
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs a command with `input` on its standard input. Fails when it cannot be started, takes too long or prints too much.
async fn output(command: Command, input: Vec<u8>) -> anyhow::Result<Output> {
    output_within(GIT_TIMEOUT, command, input).await
}

async fn output_within(limit: Duration, mut command: Command, input: Vec<u8>) -> anyhow::Result<Output> {
    let mut child = command.spawn().context("cannot start git; is it installed?")?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        bail!("git has no pipes");
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (mut limited_out, mut limited_err) = (stdout.take(MAX_GIT_OUTPUT + 1), stderr.take(MAX_GIT_OUTPUT));
    let talk = async {
        let feed = async move {
            // A child that needs no more input closes its end; its exit code decides.
            let _ = stdin.write_all(&input).await;
        };
        let (_, read_out, read_err) =
            tokio::join!(feed, limited_out.read_to_end(&mut out), limited_err.read_to_end(&mut err));
        read_out.and(read_err)?;
        if limited_out.limit() == 0 {
            bail!("git printed more than {MAX_GIT_OUTPUT} bytes");
        }
        Ok(child.wait().await?)
    };
    let status = tokio::time::timeout(limit, talk).await.context("git took too long")??;
    Ok(Output { status, stdout: out, stderr: err })
}

/// Checks that git is installed, new enough, and has its HTTP server.
pub(super) async fn check_version() -> anyhow::Result<()> {
    let mut command = git_command();
    command.args(["version"]);
    let version = String::from_utf8_lossy(&output(command, Vec::new()).await?.stdout).trim().to_owned();
    let mut numbers =
        version.split(' ').nth(2).unwrap_or_default().split('.').map(|part| part.parse().unwrap_or_default());
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < OLDEST_GIT {
        bail!("{version} is too old for the sandbox: git {}.{} or newer is needed", OLDEST_GIT.0, OLDEST_GIT.1);
    }
    let mut command = git_command();
    command.args(["--exec-path"]);
    let exec_path = String::from_utf8_lossy(&output(command, Vec::new()).await?.stdout).trim().to_owned();
    if !Path::new(&exec_path).join("git-http-backend").is_file() {
        bail!("git's HTTP server is not installed ({exec_path}/git-http-backend): on Alpine `apk add git-daemon`");
    }
    Ok(())
}

impl GitRepo {
    /// Creates an empty repository with the branch `main`.
    pub(super) async fn init(path: &Path) -> anyhow::Result<GitRepo> {
        if path.exists() {
            bail!("{} is there already; the sandbox starts with an empty directory", path.display());
        }
        let mut command = git_command();
        command.args(["init", "-q", "--bare", "-b", "main"]).arg(path);
        succeed(output(command, Vec::new()).await?, "git init")?;
        let config = path.join("config");
        let text = std::fs::read_to_string(&config)?;
        std::fs::write(&config, text + CONFIG)?;
        Ok(GitRepo { path: path.to_owned() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = git_command();
        command.args(["-c", "core.quotePath=false", "--git-dir"]).arg(&self.path).args(args);
        command
    }

    async fn run(&self, args: &[&str], input: Vec<u8>) -> anyhow::Result<String> {
        succeed(output(self.command(args), input).await?, &format!("git {}", args.join(" ")))
    }

    /// Creates a commit on a branch and returns its id. `None` deletes the file.
    pub(super) async fn commit(
        &self,
        branch: &str,
        parent: Option<&str>,
        author: &str,
        message: &str,
        changes: &[(&str, Option<&str>)],
    ) -> anyhow::Result<String> {
        let reference = format!("refs/heads/{branch}");
        self.run(&["check-ref-format", &reference], Vec::new())
            .await
            .with_context(|| format!("not a branch name: {branch:?}"))?;
        let now = jiff::Timestamp::now().as_second();
        let who = format!("{author} <{author}@sandbox.invalid> {now} +0000");
        let mut stream = format!(
            "commit {reference}\nauthor {who}\ncommitter {who}\ndata {}\n{message}\n{}",
            message.len(),
            parent.map(|sha| format!("from {sha}\n")).unwrap_or_default()
        );
        for (path, content) in changes {
            check_path(path)?;
            let quoted = path.replace('\\', "\\\\").replace('"', "\\\"");
            match content {
                None => stream += &format!("D \"{quoted}\"\n"),
                Some(text) => stream += &format!("M 100644 inline \"{quoted}\"\ndata {}\n{text}\n", text.len()),
            }
        }
        self.run(&["fast-import", "--quiet", "--force"], stream.into_bytes()).await?;
        self.run(&["rev-parse", &reference], Vec::new()).await
    }

    /// Returns branches and their tips.
    pub(super) async fn heads(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let text = self.run(&["for-each-ref", "--format=%(objectname) %(refname)", "refs/heads"], Vec::new()).await?;
        let rows = text.lines().filter_map(|line| line.split_once(" refs/heads/"));
        Ok(rows.map(|(sha, branch)| (branch.to_owned(), sha.to_owned())).collect())
    }

    /// Points a ref at a commit; with `old`, only if it still points there.
    pub(super) async fn update_ref(&self, reference: &str, sha: &str, old: Option<&str>) -> anyhow::Result<()> {
        let args = ["update-ref", reference, sha].into_iter().chain(old).collect::<Vec<_>>();
        self.run(&args, Vec::new()).await.map(drop)
    }

    /// Fetches a commit from another repository on this disk.
    pub(super) async fn fetch(&self, from: &GitRepo, sha: &str) -> anyhow::Result<()> {
        let path = from.path.to_string_lossy().into_owned();
        self.run(&["fetch", "-q", "--no-tags", &path, sha], Vec::new()).await.map(drop)
    }

    /// Copies the checked-out commit of a person's repository, with its history, to `main`. The path is absolute.
    pub(super) async fn import(&self, from: &Path) -> anyhow::Result<()> {
        let mut command = self.command(&["fetch", "-q", "--no-tags", "--update-shallow"]);
        command.arg(from).arg("HEAD:refs/heads/main");
        // The person's configuration says which repositories of others are safe to read.
        command.env_remove("GIT_CONFIG_GLOBAL").env_remove("GIT_CONFIG_NOSYSTEM");
        succeed(output_within(IMPORT_TIMEOUT, command, Vec::new()).await?, "git fetch").map(drop)
    }

    /// Copies all branches of another repository.
    pub(super) async fn fetch_branches(&self, from: &GitRepo) -> anyhow::Result<()> {
        let path = from.path.to_string_lossy().into_owned();
        self.run(&["fetch", "-q", "--no-tags", &path, "+refs/heads/*:refs/heads/*"], Vec::new()).await.map(drop)
    }

    /// Returns the tree of a merge of both; `None` when they conflict.
    pub(super) async fn merge_tree(&self, ours: &str, theirs: &str) -> anyhow::Result<Option<String>> {
        let args = ["merge-tree", "--write-tree", "--no-messages", ours, theirs];
        let ended = output(self.command(&args), Vec::new()).await?;
        if ended.status.code() == Some(1) {
            return Ok(None);
        }
        succeed(ended, "git merge-tree").map(Some)
    }

    /// Creates a commit of that tree, and returns its id.
    pub(super) async fn commit_tree(
        &self,
        tree: &str,
        parents: &[&str],
        author: &str,
        message: &str,
    ) -> anyhow::Result<String> {
        let args: Vec<_> = ["commit-tree", tree].into_iter().chain(parents.iter().flat_map(|p| ["-p", *p])).collect();
        let mut command = self.command(&args);
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), author);
            command.env(format!("GIT_{role}_EMAIL"), format!("{author}@sandbox.invalid"));
        }
        succeed(output(command, message.as_bytes().to_vec()).await?, "git commit-tree")
    }

    /// Repeats each commit of a head on top of a base, and returns the id of the last one.
    pub(super) async fn rebase(&self, base: &str, head: &str) -> anyhow::Result<String> {
        let mut tip = base.to_owned();
        for line in self.log(base, head).await? {
            // A merge of the base with this commit, and so with those before it, has the files of the commit on top of the base.
            let tree = self.merge_tree(base, &line.sha).await?.context("Pull Request is not mergeable")?;
            tip = self.commit_tree(&tree, &[&tip], &line.author, &line.subject).await?;
        }
        Ok(tip)
    }

    /// Returns the paths of the files that conflict in a merge of both.
    pub(super) async fn conflicts(&self, ours: &str, theirs: &str) -> anyhow::Result<Vec<String>> {
        let args = ["merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs];
        let ended = output(self.command(&args), Vec::new()).await?;
        if ended.status.success() {
            return Ok(Vec::new());
        }
        // The first field is the tree, which has the marks of conflicts.
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        Ok(text.split('\0').skip(1).filter(|path| !path.is_empty()).map(str::to_owned).collect())
    }

    /// Returns the full id of the commit that a branch, a full id or the beginning of one names; `None` if none or several have it.
    pub(super) async fn resolve(&self, name: &str) -> Option<String> {
        let is_id = (4..=40).contains(&name.len()) && name.chars().all(|c| c.is_ascii_hexdigit());
        let name = if is_id { name.to_owned() } else { format!("refs/heads/{name}") };
        let args = ["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{name}^{{commit}}")];
        self.run(&args, Vec::new()).await.ok()
    }

    /// Returns the commits from one on that no excluded commit has, newest first: at most the latest 250.
    pub(super) async fn reachable(&self, commit: &str, excluded: &[String]) -> anyhow::Result<Vec<String>> {
        let mut args = vec!["rev-list", "-n250", commit, "--not"];
        args.extend(excluded.iter().map(String::as_str));
        let text = self.run(&args, Vec::new()).await?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Returns what git records with a commit.
    pub(super) async fn details(&self, commit: &str) -> anyhow::Result<CommitDetails> {
        let format = "--format=%ct%x00%an%x00%P%x00%B";
        let text = self.run(&["show", "-s", format, "--end-of-options", commit], Vec::new()).await?;
        let mut parts = text.splitn(4, '\0');
        let mut part = || parts.next().context("git tells less of a commit than it was asked for");
        Ok(CommitDetails {
            time: part()?.parse()?,
            author: part()?.to_owned(),
            parents: part()?.split_whitespace().map(str::to_owned).collect(),
            message: part()?.trim_end().to_owned(),
        })
    }

    /// Returns the changes of a pull request, as a unified diff.
    pub(super) async fn diff(&self, base: &str, head: &str) -> anyhow::Result<String> {
        self.run(&["diff", "-M", &format!("{base}...{head}")], Vec::new()).await
    }

    /// Returns the changed files of a pull request.
    pub(super) async fn changed_files(&self, base: &str, head: &str) -> anyhow::Result<Vec<ChangedFile>> {
        let range = format!("{base}...{head}");
        let counts = self.run(&["diff", "-M", "-z", "--numstat", &range], Vec::new()).await?;
        let words = self.run(&["diff", "-M", "-z", "--name-status", &range], Vec::new()).await?;
        let (mut counts, mut words, mut files) = (counts.split('\0'), words.split('\0'), Vec::new());
        while let (Some(count), Some(word)) = (counts.next(), words.next()) {
            let mut parts = count.splitn(3, '\t');
            let mut number = || parts.next().and_then(|text| text.parse().ok()).unwrap_or_default();
            let (additions, deletions) = (number(), number());
            let Some(first) = words.next() else { break };
            let (status, former_path, path) = match word.get(..1) {
                Some("A") => ("added", None, first),
                Some("D") => ("deleted", None, first),
                // Both lists have the former and the present path of a renamed file.
                Some("R") => {
                    counts.by_ref().take(2).for_each(drop);
                    ("renamed", Some(first.to_owned()), words.next().unwrap_or_default())
                }
                _ => ("changed", None, first),
            };
            files.push(ChangedFile { path: path.to_owned(), former_path, status, additions, deletions });
        }
        Ok(files)
    }

    /// Returns the changes of one commit, as a diff; also of the first one of a repository.
    pub(super) async fn show(&self, commit: &str) -> anyhow::Result<String> {
        self.run(&["show", "-M", "--format=", commit], Vec::new()).await
    }

    /// Returns commits of a pull request, oldest first: at most the latest 250.
    pub(super) async fn log(&self, base: &str, head: &str) -> anyhow::Result<Vec<CommitLine>> {
        let range = format!("{base}..{head}");
        let args = ["log", "--reverse", "-n250", "--format=%H%x00%an%x00%s", &range, "--"];
        let text = self.run(&args, Vec::new()).await?;
        let parse = |line: &str| {
            let mut parts = line.splitn(3, '\0').map(str::to_owned);
            Some(CommitLine { sha: parts.next()?, author: parts.next()?, subject: parts.next()? })
        };
        Ok(text.lines().filter_map(parse).collect())
    }

    /// Returns the number of commits that only `head` has, and of those that only `base` has. Both are branches or commits.
    pub(super) async fn distance(&self, base: &str, head: &str) -> anyhow::Result<(u64, u64)> {
        let range = format!("{base}...{head}");
        let counts = self.run(&["rev-list", "--left-right", "--count", "--end-of-options", &range], Vec::new()).await?;
        let (behind, ahead) = counts.split_once('\t').context("git counts oddly")?;
        Ok((ahead.parse()?, behind.parse()?))
    }

    /// Returns the best common ancestor of two commits; `None` when there is none, or when one of them is not in the repository.
    pub(super) async fn merge_base(&self, one: &str, other: &str) -> Option<String> {
        self.run(&["merge-base", "--end-of-options", one, other], Vec::new()).await.ok()
    }

    pub(super) async fn delete_branch(&self, branch: &str) -> anyhow::Result<()> {
        self.run(&["update-ref", "-d", &format!("refs/heads/{branch}")], Vec::new()).await.map(drop)
    }

    /// Returns the branches that contain a commit.
    pub(super) async fn branches_with(&self, sha: &str) -> anyhow::Result<Vec<String>> {
        let args = ["for-each-ref", "--format=%(refname:lstrip=2)", "--contains", sha, "refs/heads"];
        let text = self.run(&args, Vec::new()).await?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Returns true if this full id is a commit of the repository.
    pub(super) async fn has_commit(&self, sha: &str) -> bool {
        let full = sha.len() == 40 && sha.chars().all(|c| c.is_ascii_hexdigit());
        full && self.run(&["cat-file", "-e", &format!("{sha}^{{commit}}")], Vec::new()).await.is_ok()
    }

    /// Returns the paths of all files of a commit.
    pub(super) async fn files(&self, commit: &str) -> anyhow::Result<Vec<String>> {
        let text = self.run(&["ls-tree", "-r", "-z", "--name-only", commit], Vec::new()).await?;
        Ok(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
    }

    /// Returns the text of a file of a commit; `None` when the file does not exist.
    pub(super) async fn file(&self, commit: &str, path: &str) -> anyhow::Result<Option<String>> {
        check_path(path)?;
        let ended = output(self.command(&["cat-file", "blob", &format!("{commit}:{path}")]), Vec::new()).await?;
        Ok(ended.status.success().then(|| String::from_utf8_lossy(&ended.stdout).into_owned()))
    }
}

/// Checks that a path in a tree is relative and has plain parts.
fn check_path(path: &str) -> anyhow::Result<()> {
    let plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.eq_ignore_ascii_case(".git");
    if path.contains(char::is_control) || !path.split('/').all(plain) {
        bail!("not a path of a repository: {path:?}");
    }
    Ok(())
}

fn succeed(ended: Output, what: &str) -> anyhow::Result<String> {
    if !ended.status.success() {
        bail!("{what}: {}", String::from_utf8_lossy(&ended.stderr).trim());
    }
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    Ok(text.strip_suffix('\n').map(str::to_owned).unwrap_or(text))
}
