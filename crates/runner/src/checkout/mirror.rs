//! The bare mirror of a repository: created without git, fetched by exact commit, with refs read as files.

use super::git::{Git, failure};
use super::{CheckoutError, Checkouts, Credentials, Fetched, named};
use anyhow::Context;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tidelock_core::domain::{CommitSha, PullRequest, RepoId};
use url::Url;

/// Size, in KiB as the host reports it, below which repositories are fetched completely: one round trip less per checkout.
const SMALL_KIB: u64 = 10 << 10;
/// Filter of a large repository's first fetch. Missing contents are fetched in one batch with a checkout.
const WITHOUT_FILES: &str = "--filter=blob:none";
/// Filter of small repositories and later fetches. Without a filter git would unpack the objects and then check the connectivity of the
/// whole mirror. With one it trusts the host to have the rest.
const NEARLY_WHOLE: &str = "--filter=blob:limit=10m";
/// Most packs of a mirror before it is repacked after a fetch. Each push adds one or two.
pub(super) const MANY_PACKS: usize = 200;
/// Age from which unfinished packs of killed fetches are removed.
const LEFT_OVER: Duration = Duration::from_secs(3600);
/// git's message for a host that serves only commits at the tip of a branch.
const NOT_BY_COMMIT: &str = "does not allow request for unadvertised object";
/// git's message for a commit that the repository does not have, or serves only with its branch.
const NOT_OURS: &str = "not our ref";
/// git's message if the host has no such branch.
const NO_SUCH_BRANCH: &str = "couldn't find remote ref refs/heads/";
/// git's message if the host has no such tag.
const NO_SUCH_TAG: &str = "couldn't find remote ref refs/tags/";
/// Longest branch name in a ref of the server's; longer ones are shortened with a digest.
const LONGEST_NAME: usize = 180;

/// A fetch into the server's own refs.
const FETCH: [&str; 5] = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"];

/// Locks that allow one fetch at a time per mirror.
#[derive(Clone, Default)]
pub(super) struct MirrorLocks(Arc<Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>>);

impl MirrorLocks {
    pub(super) async fn lock(&self, mirror: &Path) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|path, lock| path == mirror || Arc::strong_count(lock) > 1);
            locks.entry(mirror.to_owned()).or_default().clone()
        };
        lock.lock_owned().await
    }
}

/// A mirror on disk.
pub(super) struct Mirror<'a> {
    checkouts: &'a Checkouts,
    pub(super) path: PathBuf,
    pub(super) url: String,
}

impl<'a> Mirror<'a> {
    pub(super) fn of(checkouts: &'a Checkouts, pull: &PullRequest) -> Result<Mirror<'a>, CheckoutError> {
        Mirror::at(checkouts, &pull.id.repo, &pull.clone_url)
    }

    /// Returns the mirror of a repository that git fetches from this address.
    pub(super) fn at(checkouts: &'a Checkouts, repo: &RepoId, clone_url: &str) -> Result<Mirror<'a>, CheckoutError> {
        Ok(Mirror { checkouts, path: checkouts.mirror_path(repo), url: without_credentials(clone_url)? })
    }

    pub(super) fn pull_ref(&self, number: u64) -> String {
        format!("refs/tidelock/pull/{number}")
    }

    pub(super) fn base_ref(branch: &str) -> String {
        format!("refs/tidelock/base/{}", named(branch, LONGEST_NAME))
    }

    /// Returns the commit of a ref. Refs are never packed here, so each is a file.
    pub(super) fn commit(&self, reference: &str) -> Option<CommitSha> {
        let text = std::fs::read_to_string(self.path.join(reference)).ok()?;
        CommitSha::parse(text.trim()).ok()
    }

    /// Returns the commits that are available without a fetch.
    pub(super) fn present(&self, pull: &PullRequest) -> Option<Fetched> {
        let head = self.commit(&self.pull_ref(pull.id.number)).filter(|head| *head == pull.head.commit)?;
        Some(Fetched { head, base_tip: self.commit(&Mirror::base_ref(&pull.base.branch))? })
    }

    /// Creates the mirror if needed, and sets its current URL.
    pub(super) fn prepare(&self) -> anyhow::Result<()> {
        let url = quoted(&self.url);
        let config = format!(
            "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = true\n[extensions]\n\tpartialClone = origin\n\
             [remote \"origin\"]\n\turl = {url}\n\tpromisor = true\n\tpartialclonefilter = blob:none\n"
        );
        let file = self.path.join("config");
        if std::fs::read_to_string(&file).is_ok_and(|present| present == config) {
            return Ok(());
        }
        for dir in ["objects/info", "objects/pack", "refs/tidelock/pull", "refs/tidelock/base", "worktrees"] {
            std::fs::create_dir_all(self.path.join(dir))?;
        }
        std::fs::write(self.path.join("HEAD"), "ref: refs/heads/main\n")?;
        super::write_whole(&file, &config)
    }

    /// Fetches the base branch and the head commit. A broken mirror is made again.
    pub(super) async fn prepare_and_fetch(
        &self,
        pull: &PullRequest,
        credentials: Option<&Credentials>,
    ) -> Result<Fetched, CheckoutError> {
        let failed = || format!("cannot prepare the mirror {}", self.path.display());
        self.prepare().with_context(failed)?;
        let fetched = match self.fetch(pull, credentials).await {
            Err(error) if is_broken(&error) => {
                tracing::warn!(mirror = %self.path.display(), %error, "a mirror is broken; it is made again");
                let path = self.path.clone();
                super::tree::blocking(move || Ok(super::folder::remove_path(&path)?)).await?;
                self.prepare().with_context(failed)?;
                self.fetch(pull, credentials).await?
            }
            other => other?,
        };
        self.tidy(MANY_PACKS).await;
        Ok(fetched)
    }

    /// Does so with one `git fetch`.
    async fn fetch(&self, pull: &PullRequest, credentials: Option<&Credentials>) -> Result<Fetched, CheckoutError> {
        // A record may be of an earlier version, which did not check the answers of the host's API.
        CommitSha::parse(pull.head.commit.as_str()).map_err(|error| CheckoutError::Git(error.to_string()))?;
        if !is_branch(&pull.base.branch) {
            return Err(CheckoutError::Git(format!("{:?} cannot be the name of a branch", pull.base.branch)));
        }
        let (base_ref, pull_ref) = (Mirror::base_ref(&pull.base.branch), self.pull_ref(pull.id.number));
        let base = format!("+refs/heads/{}:{base_ref}", pull.base.branch);
        let head = format!("+{}:{pull_ref}", pull.head.commit);
        let small = pull.repo_size_kib.is_some_and(|size| size < SMALL_KIB);
        let filter = if small || self.commit(&base_ref).is_some() { NEARLY_WHOLE } else { WITHOUT_FILES };
        for reference in [&base_ref, &pull_ref] {
            // No other fetch runs now, so a lock file was left by a killed git.
            let lock = self.path.join(format!("{reference}.lock"));
            super::tree::remove_file(&lock).with_context(|| format!("cannot remove {}", lock.display()))?;
        }
        let args = [&FETCH[..], &[filter]].concat();
        if let Some(source) = &pull.head.clone_url {
            let git = Git::new(self.checkouts, &self.path, &[&args[..], &["--", "origin", &base]].concat());
            git.credentials(&self.url, credentials).output().await?;
            self.fetch_from(source, pull, credentials).await?;
            return self.fetched(pull);
        }
        let git = Git::new(self.checkouts, &self.path, &[&args[..], &["--", "origin", &base, &head]].concat());
        let done = git.credentials(&self.url, credentials).finish().await?;
        if !done.success() && serves_tips_only(&done.output) {
            self.fetch_by_branch(pull, &base, credentials).await?;
        } else if !done.success() {
            return Err(failure("fetch", &done));
        }
        self.fetched(pull)
    }

    /// Returns the commits that a fetch has left in the refs of the pull request.
    fn fetched(&self, pull: &PullRequest) -> Result<Fetched, CheckoutError> {
        let (base_ref, pull_ref) = (Mirror::base_ref(&pull.base.branch), self.pull_ref(pull.id.number));
        let base_tip = self.commit(&base_ref).with_context(|| format!("git fetch left no {base_ref}"))?;
        let head = self.commit(&pull_ref).with_context(|| format!("git fetch left no {pull_ref}"))?;
        Ok(Fetched { head, base_tip })
    }

    /// Fetches the head commit from the repository of the head branch, whose commits the base repository does not have. That must be on the
    /// same host, which alone gets the credentials.
    ///
    /// The fetch has no filter, since missing files are fetched from the base repository later. git completes deltas from there as well.
    async fn fetch_from(
        &self,
        source: &str,
        pull: &PullRequest,
        credentials: Option<&Credentials>,
    ) -> Result<(), CheckoutError> {
        let url = without_credentials(source)?;
        if origin_of(&url) != origin_of(&self.url) {
            return Err(CheckoutError::Git(format!("the head repository {url} is on another host than {}", self.url)));
        }
        let head = format!("+{}:{}", pull.head.commit, self.pull_ref(pull.id.number));
        let git = Git::new(self.checkouts, &self.path, &[&FETCH[..], &["--", &url, &head]].concat());
        let done = git.credentials(&self.url, credentials).finish().await?;
        let fetched = match done.success() {
            true => Ok(()),
            false if serves_tips_only(&done.output) => self.fetch_head_branch(&url, pull, &[], credentials).await,
            false => Err(failure("fetch", &done)),
        };
        // Its words have names of the fork, so they tell nothing about the mirror.
        fetched.map_err(|error| match error {
            CheckoutError::Git(words) => CheckoutError::HeadRepository { url, words },
            other => other,
        })
    }

    /// Fetches from a host that serves only tips of branches: the head branch is fetched, and the commit has to be on it.
    async fn fetch_by_branch(
        &self,
        pull: &PullRequest,
        base: &str,
        credentials: Option<&Credentials>,
    ) -> Result<(), CheckoutError> {
        if pull.fork {
            return Err(CheckoutError::MissingCommit(pull.head.commit.to_string()));
        }
        self.fetch_head_branch("origin", pull, &[NEARLY_WHOLE, base], credentials).await
    }

    /// Fetches the head branch from a remote, with the head commit on it. `more` are a filter and further refs.
    async fn fetch_head_branch(
        &self,
        remote: &str,
        pull: &PullRequest,
        more: &[&str],
        credentials: Option<&Credentials>,
    ) -> Result<(), CheckoutError> {
        let commit = pull.head.commit.to_string();
        if !is_branch(&pull.head.branch) {
            return Err(CheckoutError::MissingCommit(commit));
        }
        let source = format!("refs/tidelock/source/{}", pull.id.number);
        let lock = self.path.join(format!("{source}.lock"));
        super::tree::remove_file(&lock).with_context(|| format!("cannot remove {}", lock.display()))?;
        let head = format!("+refs/heads/{}:{source}", pull.head.branch);
        let (filter, refs) = more.split_at(more.len().min(1));
        let args = [&FETCH[..], filter, &["--", remote], refs, &[&head]].concat();
        let git = Git::new(self.checkouts, &self.path, &args);
        let done = git.credentials(&self.url, credentials).finish().await?;
        if !done.success() && done.output.contains(NO_SUCH_BRANCH) {
            return Err(CheckoutError::MissingCommit(commit));
        } else if !done.success() {
            return Err(failure("fetch", &done));
        }
        let is_on_it = Git::new(self.checkouts, &self.path, &["merge-base", "--is-ancestor", &commit, &source]);
        if !is_on_it.env("GIT_NO_LAZY_FETCH", "1").with_short_timeout().finish().await?.success() {
            return Err(CheckoutError::MissingCommit(commit));
        }
        let args = ["update-ref", &self.pull_ref(pull.id.number), &commit];
        Git::new(self.checkouts, &self.path, &args).with_short_timeout().output().await.map(drop)
    }

    /// Fetches the tip of a branch; `None` if the host has no such branch.
    pub(super) async fn fetch_branch(
        &self,
        branch: &str,
        credentials: Option<&Credentials>,
    ) -> Result<Option<CommitSha>, CheckoutError> {
        if !is_branch(branch) {
            return Ok(None);
        }
        let reference = Mirror::base_ref(branch);
        let lock = self.path.join(format!("{reference}.lock"));
        super::tree::remove_file(&lock).with_context(|| format!("cannot remove {}", lock.display()))?;
        let filter = if self.commit(&reference).is_some() { NEARLY_WHOLE } else { WITHOUT_FILES };
        let head = format!("+refs/heads/{branch}:{reference}");
        let git = Git::new(self.checkouts, &self.path, &[&FETCH[..], &[filter, "--", "origin", &head]].concat());
        let done = git.credentials(&self.url, credentials).finish().await?;
        if done.success() {
            return Ok(Some(self.commit(&reference).with_context(|| format!("git fetch left no {reference}"))?));
        }
        if done.output.contains(NO_SUCH_BRANCH) { Ok(None) } else { Err(failure("fetch", &done)) }
    }

    /// Fetches the commit of a tag; `None` if the host has no such tag, or it does not name a commit.
    pub(super) async fn fetch_tag(
        &self,
        tag: &str,
        credentials: Option<&Credentials>,
    ) -> Result<Option<CommitSha>, CheckoutError> {
        const REFERENCE: &str = "refs/tidelock/tag";
        if !is_branch(tag) {
            return Ok(None);
        }
        let lock = self.path.join(format!("{REFERENCE}.lock"));
        super::tree::remove_file(&lock).with_context(|| format!("cannot remove {}", lock.display()))?;
        let source = format!("+refs/tags/{tag}:{REFERENCE}");
        let git =
            Git::new(self.checkouts, &self.path, &[&FETCH[..], &[WITHOUT_FILES, "--", "origin", &source]].concat());
        let done = git.credentials(&self.url, credentials).finish().await?;
        if !done.success() {
            return if done.output.contains(NO_SUCH_TAG) { Ok(None) } else { Err(failure("fetch", &done)) };
        }
        // An annotated tag is an object of its own.
        let of_commit = format!("{REFERENCE}^{{commit}}");
        let done =
            Git::new(self.checkouts, &self.path, &["rev-parse", "--verify", "--quiet", &of_commit]).finish().await?;
        if !done.success() {
            return Ok(None);
        }
        // Not with the warnings and traces that git writes to stderr.
        let commit = done.read_text().context("cannot read the output of git rev-parse")?;
        Ok(CommitSha::parse(commit.trim()).ok())
    }

    /// Fetches the tip of the repository's default branch.
    pub(super) async fn fetch_default(&self, credentials: Option<&Credentials>) -> Result<CommitSha, CheckoutError> {
        const REFERENCE: &str = "refs/tidelock/default";
        let lock = self.path.join(format!("{REFERENCE}.lock"));
        super::tree::remove_file(&lock).with_context(|| format!("cannot remove {}", lock.display()))?;
        let head = format!("+HEAD:{REFERENCE}");
        let git = Git::new(self.checkouts, &self.path, &[&FETCH[..], &[WITHOUT_FILES, "--", "origin", &head]].concat());
        git.credentials(&self.url, credentials).output().await?;
        Ok(self.commit(REFERENCE).with_context(|| format!("git fetch left no {REFERENCE}"))?)
    }

    /// Repacks many packs into one and removes leftovers. No object is lost, reachable or not.
    pub(super) async fn tidy(&self, many: usize) {
        let mut packs = 0;
        for entry in std::fs::read_dir(self.path.join("objects/pack")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let age = || SystemTime::now().duration_since(entry.metadata().ok()?.modified().ok()?).ok();
            if name.starts_with("tmp_") && age().is_some_and(|age| age > LEFT_OVER) {
                // The file may be removed already.
                let _ = std::fs::remove_file(entry.path());
            }
            packs += usize::from(name.ends_with(".pack"));
        }
        if packs <= many {
            return;
        }
        let repack = Git::new(self.checkouts, &self.path, &["repack", "-a", "-d", "-k", "-q"]);
        if let Err(error) = repack.output().await {
            tracing::warn!(mirror = %self.path.display(), %error, "cannot repack a mirror; it works on, only slower");
        }
    }
}

/// Returns true if git's message may mean that a host serves only the tips of branches.
fn serves_tips_only(output: &str) -> bool {
    output.contains(NOT_BY_COMMIT) || output.contains(NOT_OURS)
}

/// Returns true if git's message means that the mirror is broken and has to be made again.
fn is_broken(error: &CheckoutError) -> bool {
    const SIGNS: [&str; 8] = [
        "not a git repository",
        "bad config",
        "corrupt",
        "bad object",
        "unable to read tree",
        "unable to parse object",
        "index-pack failed",
        "bad tree object",
    ];
    matches!(error, CheckoutError::Git(words) if SIGNS.iter().any(|sign| words.contains(sign)))
}

/// Checks git's rules for names of branches (`git check-ref-format`).
pub(super) fn is_branch(name: &str) -> bool {
    let odd = |c: char| c.is_ascii_control() || " ~^:?*[\\".contains(c);
    let bad_part = |part: &str| part.is_empty() || part.starts_with('.') || part.ends_with(".lock");
    !name.contains(odd)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
        && name != "@"
        && !name.split('/').any(bad_part)
}

/// Returns the URL without credentials, for a config file. Refuses other addresses than URLs and absolute paths.
fn without_credentials(clone_url: &str) -> Result<String, CheckoutError> {
    if clone_url.starts_with('/') {
        return Ok(clone_url.to_owned());
    }
    let refused =
        || CheckoutError::Git(format!("{clone_url:?} is not a URL that git fetches from (https, http, ssh, file)"));
    let mut url = Url::parse(clone_url).map_err(|_| refused())?;
    match url.scheme() {
        "https" | "http" => {
            url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| refused())?;
            Ok(url.into())
        }
        "ssh" | "file" => Ok(url.into()),
        _ => Err(refused()),
    }
}

/// Returns scheme, host and port of a URL; the same for all local paths.
fn origin_of(url: &str) -> Option<(String, Option<String>, Option<u16>)> {
    let url = Url::parse(url).ok()?;
    Some((url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default()))
}

/// Quotes a value in git's config syntax.
pub(super) fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_branches_are_those_that_git_takes() {
        for good in ["main", "a/b", "it's \"quoted\"".replace(' ', "_").as_str(), "-x", "ä", "a;$(b)", "a@b"] {
            assert!(is_branch(good), "{good}");
        }
        for bad in [
            "", "a b", "a..b", "/a", "a/", "a//b", ".a", "a/.b", "a.lock", "a.lock/b", "a:b", "a@{1}", "@", "a\n", "a.",
        ] {
            assert!(!is_branch(bad), "{bad}");
        }
    }

    #[test]
    fn no_credentials_get_into_the_config() {
        assert_eq!(without_credentials("https://u:pw@h:8443/o/r.git").unwrap(), "https://h:8443/o/r.git");
        assert!(without_credentials("ext::sh -c x").is_err());
        assert!(without_credentials("--upload-pack=x").is_err());
    }

    #[test]
    fn other_hosts_schemes_and_ports_are_other_origins() {
        let of = |url: &str| origin_of(&without_credentials(url).unwrap());
        assert_eq!(of("https://h/a/b.git"), of("https://u@h:443/c/d.git"));
        for other in ["http://h/a", "https://h:8443/a", "https://h.example/a", "ssh://h/a", "/a", "file:///a"] {
            assert_ne!(of(other), of("https://h/a"), "{other}");
        }
        assert_ne!(of("ssh://a/x"), of("ssh://b/x"));
    }
}
