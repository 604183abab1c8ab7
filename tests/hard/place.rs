//! A forge and a server on loopback, with a Terraform that follows a script in the project.

use hmac::{Hmac, KeyInit, Mac};
use secrecy::ExposeSecret;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidelock::app::Server;
use tidelock::settings::{Settings, plain_environment};
use tidelock_forge::{Comment, Forge, ForgeOptions, OpenOptions, Pull, Repo};

/// Time limit of everything; a test that needs it is broken or the machine is.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Free ports that are tried besides the first one.
const PORTS: usize = 4;

/// A Terraform that plans one resource. It runs `stub.sh` in the project's directory first.
const STUB: &str = r#"#!/bin/sh
if [ "$1" = version ]; then
    case "$*" in
        *json*) echo '{"terraform_version": "1.11.4"}' ;;
        *) echo 'Terraform v1.11.4' ;;
    esac
    exit 0
fi
if [ -f ./stub.sh ]; then . ./stub.sh; fi
case "$1" in
    plan)
        while [ $# -gt 0 ]; do
            if [ "$1" = -out ]; then echo 'a plan' > "$2"; fi
            shift
        done
        echo
        echo 'Terraform will perform the following actions:'
        echo
        echo '  # terraform_data.a will be created'
        echo
        echo 'Plan: 1 to add, 0 to change, 0 to destroy.'
        ;;
    apply) echo 'Apply complete! Resources: 1 added, 0 changed, 0 destroyed.' ;;
esac
"#;

/// A pull request's usual change: Terraform in `project`.
pub(crate) const CODE: &str = "resource \"terraform_data\" \"a\" {\n}\n";

/// A forge, one repository, and a server that knows it.
pub(crate) struct Place {
    pub(crate) forge: Forge,
    pub(crate) repo: Repo,
    pub(crate) url: String,
    client: reqwest::Client,
    server: Server,
    pulls: std::sync::atomic::AtomicUsize,
    dir: TempDir,
}

/// Makes a directory with the stub, to be first on `PATH`.
pub(crate) fn stub_dir(dir: &Path) -> PathBuf {
    let bin = dir.join("stub-bin");
    std::fs::create_dir_all(&bin).unwrap();
    let path = bin.join("terraform");
    std::fs::write(&path, STUB).unwrap();
    for path in [&bin, &path] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    bin
}

/// Returns the variables of a server: those of this process with `first` in front of `PATH`.
pub(crate) fn environment(first: Option<&Path>) -> Vec<(OsString, OsString)> {
    let mut environment = plain_environment();
    for (name, value) in &mut environment {
        if let (true, Some(first)) = (name == "PATH", first) {
            let mut path = first.as_os_str().to_owned();
            path.push(":");
            path.push(&value);
            *value = path;
        }
    }
    environment.retain(|(name, _)| name != "TF_CLI_CONFIG_FILE");
    environment.push(("CHECKPOINT_DISABLE".into(), "1".into()));
    environment
}

/// Returns the flags that every server here has.
pub(crate) fn flags(forge: &Forge, data_dir: &Path, port: u16) -> Vec<String> {
    vec![
        "--bind=127.0.0.1".to_owned(),
        format!("--port={port}"),
        format!("--atlantis-url=http://127.0.0.1:{port}"),
        format!("--data-dir={}", data_dir.display()),
        format!("--gh-hostname={}", forge.hostname_setting()),
        format!("--gh-user={}", forge.bot()),
        "--repo-allowlist=*".to_owned(),
        "--tf-download=false".to_owned(),
    ]
}

/// Returns the binary of this build, or the one that `TIDELOCK_TEST_BINARY` names, such as one that is to be released.
pub(crate) fn binary() -> OsString {
    std::env::var_os("TIDELOCK_TEST_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_tidelock").into())
}

pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

impl Place {
    /// Starts a place with the stub for Terraform.
    pub(crate) async fn new(more_flags: &[&str]) -> Place {
        Place::with(more_flags, true).await
    }

    /// Starts a place with the machine's own Terraform.
    pub(crate) async fn with_terraform(more_flags: &[&str]) -> Place {
        Place::with(more_flags, false).await
    }

    async fn with(more_flags: &[&str], stub: bool) -> Place {
        let dir = TempDir::new().unwrap();
        let forge = Forge::start(ForgeOptions { dir: dir.path().join("forge"), port: 0 }).await.unwrap();
        let repo = forge.create_repo("acme/infra", &[("README.md", "Infrastructure\n")]).await.unwrap();
        let bin = stub.then(|| stub_dir(dir.path()));
        let mut environment = environment(bin.as_deref());
        let (token, secret) = (forge.token(), forge.webhook_secret());
        for (name, secret) in [("TIDELOCK_GH_TOKEN", &token), ("TIDELOCK_GH_WEBHOOK_SECRET", &secret)] {
            environment.push((name.into(), secret.expose_secret().into()));
        }
        let mut tries = 0..PORTS;
        let server = loop {
            let mut args = flags(&forge, &dir.path().join("data"), free_port());
            args.extend(more_flags.iter().map(|flag| (*flag).to_owned()));
            let settings = Settings::load(args.into_iter().map(OsString::from), environment.clone()).unwrap();
            match Server::start(settings).await {
                Ok(server) => break server,
                // Another test has taken the port first.
                Err(error) if format!("{error:#}").contains("cannot listen on") && tries.next().is_some() => {}
                Err(error) => panic!("{error:#}"),
            }
        };
        let url = format!("http://{}", server.address);
        forge.set_webhook(&format!("{url}/events"));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Place { forge, repo, url, client, server, pulls: 0.into(), dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns a directory that steps can write to. They can make nothing in its parent, which leads to the server's data.
    pub(crate) fn writable(&self) -> PathBuf {
        let dir = self.dir().join("writable");
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// Sends a signed delivery to `/events`. Returns status and text of the answer.
    pub(crate) async fn deliver(&self, event: &str, body: &[u8]) -> (u16, String) {
        let signature = sign(&self.forge, body);
        self.post(&[("x-github-event", event), ("x-hub-signature-256", &signature)], body.to_vec()).await
    }

    /// Sends any POST to `/events`, as JSON unless a header says otherwise.
    pub(crate) async fn post(&self, headers: &[(&str, &str)], body: Vec<u8>) -> (u16, String) {
        let mut request = self.client.post(format!("{}/events", self.url)).body(body);
        if headers.iter().all(|(name, _)| *name != "content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// Gets a page as a browser does: status, headers, text.
    pub(crate) async fn page(&self, path: &str) -> (u16, http::HeaderMap, String) {
        let request = self.client.get(format!("{}{path}", self.url)).header("accept", "text/html");
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.headers().clone(), response.text().await.unwrap())
    }

    /// Opens a pull request by alice with these changes.
    pub(crate) async fn open(&self, title: &str, changes: &[(&str, Option<&str>)]) -> Pull {
        let number = self.pulls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let branch = format!("change-{number}");
        self.repo.open_pull(&branch, "alice", title, changes, OpenOptions::default()).await.unwrap()
    }

    /// Checks that a correct pull request is planned.
    pub(crate) async fn still_works(&self) {
        let pull = self.open("Nothing wrong here", &[("good/main.tf", Some(CODE))]).await;
        let comment = answer(&pull, 0).await;
        assert!(comment.body.contains("1 to add"), "{}", comment.body);
        // Its locks are released, so that this can be called again.
        pull.close().unwrap();
        answer(&pull, 1).await;
    }

    pub(crate) async fn stop(self) {
        self.server.stop().await.unwrap();
    }
}

/// The server as a process of the binary; killed on drop.
pub(crate) struct Binary {
    child: Child,
    pub(crate) url: String,
    /// Its standard output and error, in files.
    pub(crate) logs: [PathBuf; 2],
}

impl Binary {
    /// Starts it with state in `dir/data` and waits until it is ready. Token and webhook secret are in its variables.
    pub(crate) async fn start(forge: &Forge, dir: &Path, more_flags: &[&str], first_on_path: Option<&Path>) -> Binary {
        Binary::start_with((&[], &[]), forge, dir, more_flags, first_on_path).await
    }

    /// The same with this user and group instead of the test's, and with these variables in addition.
    pub(crate) async fn start_as(
        user: Option<u32>,
        variables: &[(&str, &str)],
        forge: &Forge,
        dir: &Path,
        more_flags: &[&str],
        first_on_path: Option<&Path>,
    ) -> Binary {
        let ids = user.map(|user| [format!("--reuid={user}"), format!("--regid={user}")]);
        let by: Vec<&str> = match &ids {
            Some([user, group]) => vec!["setpriv", user, group, "--clear-groups", "--"],
            None => Vec::new(),
        };
        Binary::start_with((&by, variables), forge, dir, more_flags, first_on_path).await
    }

    /// The same, started by a program that replaces itself with the server.
    pub(crate) async fn start_by(
        by: &[&str],
        forge: &Forge,
        dir: &Path,
        more_flags: &[&str],
        first_on_path: Option<&Path>,
    ) -> Binary {
        Binary::start_with((by, &[]), forge, dir, more_flags, first_on_path).await
    }

    async fn start_with(
        (by, variables): (&[&str], &[(&str, &str)]),
        forge: &Forge,
        dir: &Path,
        more_flags: &[&str],
        first_on_path: Option<&Path>,
    ) -> Binary {
        for _ in 0..PORTS {
            let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
            let environment = environment(first_on_path).into_iter().chain(variables).collect();
            if let Some(binary) = Binary::try_start(by, environment, forge, dir, more_flags).await {
                return binary;
            }
        }
        let said = ["log", "err"].map(|name| std::fs::read_to_string(dir.join(name)));
        panic!("it does not start: {said:?}");
    }

    /// Starts it; absent if it ends at its start, such as when another test has taken the port first.
    async fn try_start(
        by: &[&str],
        environment: Vec<(OsString, OsString)>,
        forge: &Forge,
        dir: &Path,
        more_flags: &[&str],
    ) -> Option<Binary> {
        let port = free_port();
        let logs = [dir.join("log"), dir.join("err")];
        let [log, err] = logs.each_ref().map(|path| std::fs::File::create(path).unwrap());
        let mut words = by.iter().map(OsString::from).chain([binary()]);
        let mut command = Command::new(words.next().unwrap());
        // Each protection is tested on its own; tests of this one name it.
        let flags = flags(forge, &dir.join("data"), port).into_iter().chain(["--step-confinement=off".to_owned()]);
        command.args(words).arg("server").args(flags).args(more_flags);
        command.env_clear().envs(environment).stdout(log).stderr(err);
        command.env("ATLANTIS_GH_TOKEN", forge.token().expose_secret());
        command.env("ATLANTIS_GH_WEBHOOK_SECRET", forge.webhook_secret().expose_secret());
        let child = command.spawn().unwrap();
        let mut binary = Binary { child, url: format!("http://127.0.0.1:{port}"), logs };
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let until = Instant::now() + LIMIT;
        loop {
            let answer = client.get(format!("{}/readyz", binary.url)).send().await;
            // Checked after the answer, which comes from another server if this one has ended.
            if binary.child.try_wait().unwrap().is_some() {
                return None;
            }
            match answer {
                Ok(answer) if answer.status().is_success() => break,
                _ => assert!(Instant::now() < until, "not ready: {:?}", std::fs::read_to_string(&binary.logs[1])),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        forge.set_webhook(&format!("{}/events", binary.url));
        Some(binary)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM, and checks that it ends in order.
    pub(crate) fn terminate(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the server's comment after the first `after` ones.
pub(crate) async fn answer(pull: &Pull, after: usize) -> Comment {
    let found = pull.wait_for_comment(after, LIMIT).await;
    found.unwrap_or_else(|error| panic!("{error:#}; statuses: {:?}", pull.statuses().unwrap()))
}

/// Returns the `X-Hub-Signature-256` of a body, by the forge's secret.
pub(crate) fn sign(forge: &Forge, body: &[u8]) -> String {
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(forge.webhook_secret().expose_secret().as_bytes()).unwrap();
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

/// Parses the marker of a comment, which must be its last line and the only one.
pub(crate) fn marker(comment: &str) -> serde_json::Value {
    let last = comment.lines().last().unwrap();
    assert_eq!(comment.matches("<!-- tidelock:").count(), 1, "{comment}");
    let json = last.strip_prefix("<!-- tidelock:").and_then(|rest| rest.strip_suffix(" -->")).unwrap();
    serde_json::from_str(json).unwrap()
}
