//! The sessions of the manual, each with what its page takes for granted.

use crate::console::{Shell, sessions};
use crate::page::{blocks, root};
use regex::Regex;
use secrecy::ExposeSecret;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::{TempDir, tempdir};
use tidelock_forge::{Forge, ForgeOptions, OpenOptions, Pull};
use tokio::runtime::Runtime;

/// Secret of the API of these servers.
const API_SECRET: &str = "0123456789abcdef0123456789abcdef";
/// Time limit of an answer of the server.
const LIMIT: Duration = Duration::from_secs(60);

fn directory() -> TempDir {
    tempdir().unwrap()
}

/// Copies a directory of files.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Makes a checkout of this repository with the files of a fixture.
fn checkout(fixture: &str, origin: &str, to: &Path) {
    copy(&root().join("tests/fixtures/manual").join(fixture), to);
    for args in [&["init", "--quiet", "--initial-branch=main"][..], &["remote", "add", "origin", origin]] {
        assert!(Command::new("git").args(args).current_dir(to).status().unwrap().success());
    }
}

/// Returns a port on which nothing listens.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Plays the sessions of a page in a checkout with two projects and rules.
fn play_in_checkout(page: &str) {
    let dir = directory();
    let infra = dir.path().join("infra");
    checkout("check", "git@github.com:acme/infra.git", &infra);
    let mut shell = Shell::start(&infra, &[]);
    for (text, by) in [("/home/ada/infra", ""), ("/etc/atlantis/repos.yaml", "/repos.yaml"), ("CHECKOUT", "")] {
        shell.replace(text, &format!("{}{by}", infra.display()));
    }
    for session in sessions(page) {
        shell.play(&session);
    }
}

#[test]
fn check() {
    play_in_checkout("check.md");
}

#[test]
fn from_atlantis() {
    play_in_checkout("from-atlantis.md");
}

#[test]
fn repo_config() {
    play_in_checkout("repo-config.md");
}

#[test]
fn server_config() {
    play_in_checkout("server-config.md");
}

/// A server as `get-started.md` sets it up, for a forge that is GitHub.
struct FirstServer {
    shell: Shell,
    forge: Forge,
    runtime: Runtime,
    url: String,
    _dir: TempDir,
}

impl FirstServer {
    fn new() -> FirstServer {
        let dir = directory();
        checkout("first", "https://github.com/my-org/my-repo.git", &dir.path().join("my-repo"));
        let page = blocks(&root().join("docs/get-started.md"));
        let rules = page.iter().find(|block| block.is("yaml")).unwrap();
        fs::write(dir.path().join("repos.yaml"), &rules.text).unwrap();
        let runtime = Runtime::new().unwrap();
        let forge = runtime.block_on(Forge::start(ForgeOptions { dir: dir.path().join("forge"), port: 0 })).unwrap();
        let main = fs::read_to_string(dir.path().join("my-repo/main.tf")).unwrap();
        runtime.block_on(forge.create_repo("my-org/my-repo", &[("main.tf", &main)])).unwrap();
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}");
        let environment = [
            ("TIDELOCK_GH_HOSTNAME", forge.hostname_setting()),
            ("TIDELOCK_PORT", port.to_string()),
            ("ATLANTIS_API_SECRET", API_SECRET.to_owned()),
        ];
        let mut shell = Shell::start(dir.path(), &environment);
        for (text, by) in [
            ("TIDELOCK_GH_TOKEN=…", format!("TIDELOCK_GH_TOKEN={}", forge.token().expose_secret())),
            ("$(openssl rand -hex 20)", forge.webhook_secret().expose_secret().to_owned()),
            ("my-bot", forge.bot().to_owned()),
            ("--repo-allowlist github.com/", "--repo-allowlist 127.0.0.1/".to_owned()),
            ("on github.com", "on 127.0.0.1".to_owned()),
            ("https://tidelock.example.com", url.clone()),
            ("0.0.0.0:4141", format!("0.0.0.0:{port}")),
            ("tidelock sandbox", "tidelock sandbox --port=0 --forge-port=0".to_owned()),
            ("http://127.0.0.1:4141", "http://127.0.0.1:…".to_owned()),
            ("http://127.0.0.1:4142", "http://127.0.0.1:…".to_owned()),
        ] {
            shell.replace(text, &by);
        }
        FirstServer { shell, forge, runtime, url, _dir: dir }
    }

    /// Waits for the first comment of the server, and returns its text.
    fn comment(&self, pull: &Pull) -> String {
        let begun = Instant::now();
        loop {
            if let Some(comment) = pull.bot_comments().unwrap().into_iter().next() {
                return comment.body;
            }
            assert!(begun.elapsed() < LIMIT, "no plan was posted");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Plays the page, with the webhook set as soon as the server runs.
    fn start(&mut self) {
        for session in sessions("get-started.md") {
            self.shell.play(&session);
            if session.text.contains("tidelock server") {
                self.forge.set_webhook(&format!("{}/events", self.url));
                self.runtime.block_on(self.forge.wait_for_deliveries(LIMIT)).unwrap();
            }
        }
    }
}

#[test]
fn get_started() {
    let mut first = FirstServer::new();
    first.start();
}

#[test]
fn api() {
    let mut first = FirstServer::new();
    first.start();
    let (repo, change) =
        (first.forge.repo("my-org/my-repo"), "resource \"terraform_data\" \"this\" {\n  input = \"2\"\n}\n");
    let pull = first
        .runtime
        .block_on(repo.open_pull("my-branch", "alice", "Change", &[("main.tf", Some(change))], OpenOptions::default()))
        .unwrap();
    let plan = first.comment(&pull);
    let run = Regex::new(r#""run":"([0-9a-f]{32})""#).unwrap().captures(&plan).unwrap()[1].to_owned();
    let (token, _) = first.shell.run("tidelock token --owner ci@acme --scope read,plan --days 90 2>/dev/null");
    for (text, by) in [
        ("ATLANTIS_API_SECRET=…", format!("ATLANTIS_API_SECRET={API_SECRET}")),
        ("TIDELOCK_TOKEN=…", format!("TIDELOCK_TOKEN={}", token.trim())),
        ("acme/infra", "my-org/my-repo".to_owned()),
        ("\"PR\": 12", format!("\"PR\": {}", pull.number())),
        ("live/network", ".".to_owned()),
        ("RUN", run),
    ] {
        first.shell.replace(text, &by);
    }
    for session in sessions("api.md") {
        first.shell.play(&session);
    }
}

#[test]
fn install() {
    let dir = directory();
    let mut shell = Shell::start(dir.path(), &[]);
    for session in sessions("install.md") {
        shell.play(&session);
    }
    let (found, code) = shell
        .run("grep -c . ~/.local/share/bash-completion/completions/tidelock ~/.local/share/man/man1/tidelock-server.1");
    assert_eq!(code, 0, "{found}");
}
