//! git commands, run with their own environment, without hooks or maintenance, and with credentials on descriptor 3 only.

use super::{CheckoutError, Checkouts, Credentials};
use crate::platform::CREDENTIAL_HELPER;
use crate::process::{self, Finished, Invocation};
use anyhow::Context as _;
use secrecy::{ExposeSecret, SecretString};
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use url::Url;

/// Timeout of git. The first fetch of a large repository is the slowest.
const TIMEOUT: Duration = Duration::from_secs(20 * 60);
/// Timeout of git commands that only read the disk. Steps may have left a file on which git blocks.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// Most bytes of git's output. A list of changed files is the longest.
const READ_LIMIT: usize = 64 << 20;
/// Most bytes of git's output for errors.
const OUTPUT_LIMIT: usize = 1 << 20;
/// Lines of git's output that an error shows.
const ERROR_LINES: usize = 20;
/// Configuration of every git process. It overrides the configuration files.
const CONFIG: [(&str, &str); 17] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.quotePath", "false"),
    ("core.logAllRefUpdates", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("safe.directory", "*"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("fetch.writeCommitGraph", "false"),
    ("checkout.workers", "0"),
    // The git process of a lazy fetch would ask a credential helper of the machine first.
    ("credential.helper", ""),
    ("credential.useHttpPath", "false"),
    // A redirect would lead to a repository that is not allowlisted.
    ("http.followRedirects", "false"),
    // If `git lfs install` has changed the machine's configuration, git-lfs would follow a pull request's `.lfsconfig`.
    ("filter.lfs.process", ""),
    ("filter.lfs.smudge", ""),
    ("filter.lfs.required", "false"),
];

/// Environment of every git process. Steps can write to most home directories, so git reads nothing there: neither configuration nor
/// attributes, `.netrc` or keys. `/etc/gitconfig` is the operator's.
const ENVIRONMENT: [(&str, &str); 5] = [
    ("LC_ALL", "C"),
    ("HOME", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
];

/// A git command.
pub(super) struct Git<'a> {
    checkouts: &'a Checkouts,
    args: Vec<String>,
    env: Vec<(String, String)>,
    config: Vec<(String, String)>,
    secret: Option<SecretString>,
    stdin: Option<Vec<u8>>,
    dir: Option<std::path::PathBuf>,
    timeout: Duration,
    /// Token that cancels a background command, for which nobody waits and which runs at low priority.
    background: Option<CancellationToken>,
}

impl<'a> Git<'a> {
    /// Returns a command; `args` follow `git`. Untrusted arguments must not be readable as options.
    pub(super) fn new(checkouts: &'a Checkouts, git_dir: &Path, args: &[&str]) -> Git<'a> {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let (env, config) = (Vec::new(), Vec::new());
        let (secret, stdin, dir, background) = (None, None, None, None);
        let mut git = Git { checkouts, args, env, config, secret, stdin, dir, timeout: TIMEOUT, background };
        git.set("GIT_DIR", git_dir.to_string_lossy());
        git
    }

    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.env.push((name.to_owned(), value.into()));
    }

    pub(super) fn env(mut self, name: &str, value: impl Into<String>) -> Git<'a> {
        self.set(name, value);
        self
    }

    /// Sets a shorter timeout, for a command that only reads the disk.
    pub(super) fn with_short_timeout(mut self) -> Git<'a> {
        self.timeout = LOOK_TIMEOUT;
        self
    }

    /// Runs it in the background: at low priority, without fetching missing objects from a host, and until `end` is cancelled.
    pub(super) fn in_background(mut self, end: &CancellationToken) -> Git<'a> {
        self.background = Some(end.clone());
        self.env("GIT_NO_LAZY_FETCH", "1").config("checkout.workers", "1")
    }

    /// Sets its standard input.
    pub(super) fn input(mut self, bytes: Vec<u8>) -> Git<'a> {
        self.stdin = Some(bytes);
        self
    }

    /// Has it fail where it would fetch missing objects from a host. git before 2.44 does not know the variable.
    pub(super) fn offline(self) -> Git<'a> {
        self.env("GIT_NO_LAZY_FETCH", "1").config("protocol.allow", "never")
    }

    /// Sets the working directory.
    pub(super) fn within(mut self, dir: &Path) -> Git<'a> {
        self.dir = Some(dir.to_owned());
        self
    }

    pub(super) fn config(mut self, key: &str, value: &str) -> Git<'a> {
        self.config.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Provides credentials for this URL's host only.
    pub(super) fn credentials(mut self, clone_url: &str, credentials: Option<&Credentials>) -> Git<'a> {
        let url = Url::parse(clone_url).ok().filter(|url| matches!(url.scheme(), "https" | "http"));
        if let (Some(credentials), Some(url)) = (credentials, url) {
            let origin = url.origin().ascii_serialization();
            self = self.config(&format!("credential.{origin}.helper"), CREDENTIAL_HELPER);
            // Newer versions of git then avoid the first request, which ends in 401.
            self = self.config("http.proactiveAuth", "basic");
            let Credentials { username, password } = credentials;
            self.secret =
                Some(SecretString::from(format!("username={username}\npassword={}\n", password.expose_secret())));
        }
        self
    }

    fn invocation(self) -> Invocation {
        let given = self.checkouts.env.iter().filter(|(name, _)| {
            !name.starts_with("GIT_")
                || ["GIT_SSL", "GIT_HTTP", "GIT_TRACE", "GIT_CURL"].iter().any(|p| name.starts_with(p))
        });
        let replaced = ["LC_ALL", "HOME", "XDG_CONFIG_HOME"];
        let mut env: Vec<(String, String)> =
            given.filter(|(name, _)| !replaced.contains(&name.as_str())).cloned().collect();
        trust_certificates(&mut env);
        env.extend(ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned())));
        env.extend(self.env);
        let fixed = CONFIG.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let config: Vec<(String, String)> = fixed.chain(self.config).collect();
        env.push(("GIT_CONFIG_COUNT".into(), config.len().to_string()));
        for (i, (key, value)) in config.into_iter().enumerate() {
            env.push((format!("GIT_CONFIG_KEY_{i}"), key));
            env.push((format!("GIT_CONFIG_VALUE_{i}"), value));
        }
        let dir = self.dir.unwrap_or_else(|| self.checkouts.data_dir.clone());
        let invocation = Invocation::new("git", self.args, dir)
            .env(env)
            .timeout(self.timeout)
            .output_limit(OUTPUT_LIMIT)
            .reading(READ_LIMIT)
            .secret_file(self.secret)
            .low_priority(self.background.is_some());
        match self.stdin {
            Some(bytes) => invocation.stdin(bytes),
            None => invocation,
        }
    }

    /// Runs it and returns any exit status.
    pub(super) async fn finish(self) -> Result<Finished, CheckoutError> {
        let redactor = match &self.secret {
            // A new token is not among the secrets known at the start of the server.
            Some(secret) => {
                let values = secret.expose_secret().lines().filter_map(|line| line.strip_prefix("password="));
                &self.checkouts.redactor.with(values.map(SecretString::from).collect())
            }
            None => &self.checkouts.redactor,
        };
        let redactor = redactor.clone();
        let (started, verb) = (std::time::Instant::now(), self.args.first().cloned().unwrap_or_default());
        let end = self.background.clone().unwrap_or_default();
        let done = process::run(self.invocation(), &redactor, &end, None).await?;
        tracing::debug!(verb, millis = started.elapsed().as_millis(), ending = done.ending(), "git");
        Ok(done)
    }

    /// Runs it and returns its standard output, which must not be shown. A failure is an error with git's last lines.
    pub(super) async fn output(self) -> Result<String, CheckoutError> {
        let verb = self.args.first().cloned().unwrap_or_default();
        let done = self.finish().await?;
        if !done.success() {
            return Err(failure(&verb, &done));
        }
        Ok(done.read_text().with_context(|| format!("cannot read the output of git {verb}"))?)
    }
}

/// Sets git's own variable to the certificates of `SSL_CERT_FILE`, unless it is set already. git's library, unlike other programs, does not
/// read `SSL_CERT_FILE`.
pub fn trust_certificates(env: &mut Vec<(String, String)>) {
    const OWN: &str = "GIT_SSL_CAINFO";
    let given = |name: &str| env.iter().find(|(known, value)| known == name && !value.is_empty());
    if let (None, Some((_, file))) = (given(OWN), given("SSL_CERT_FILE")) {
        let file = file.clone();
        env.push((OWN.to_owned(), file));
    }
}

/// Returns the error for users: the operation, the exit status, the last lines, and a remedy if one is known.
pub(super) fn failure(verb: &str, done: &Finished) -> CheckoutError {
    let lines: Vec<&str> = done.output.lines().filter(|line| !line.trim().is_empty()).collect();
    let words = lines[lines.len().saturating_sub(ERROR_LINES)..].join("\n");
    if let Some(commit) = words.split("not our ref ").nth(1).and_then(|rest| rest.split_whitespace().next()) {
        return CheckoutError::MissingCommit(commit.to_owned());
    }
    let refused = ["Authentication failed", "could not read Username", "could not read Password", "error: 403"];
    let redirects = ["redirect", "error: 301", "error: 302", "error: 307", "error: 308"];
    let hint = if redirects.iter().any(|sign| words.contains(sign)) {
        "\nThe host leads to another address: was the repository renamed or transferred? It is fetched under its present name only."
    } else if refused.iter().any(|sign| words.contains(sign)) {
        "\nThe host did not accept the server's token: it must be valid and allowed to read the repository's contents."
    } else {
        ""
    };
    CheckoutError::Git(format!("git {verb} failed ({}):\n{words}{hint}", done.ending()))
}
