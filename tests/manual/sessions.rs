//! The sessions of the manual, each with what its page takes for granted.

use crate::console::{Shell, sessions};
use crate::page::{Block, blocks, root};
use regex::Regex;
use secrecy::ExposeSecret;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::{TempDir, tempdir};
use tidelock_forge::{Forge, ForgeOptions, HostKind, OpenOptions, Pull};
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

/// A forge, and a shell in which a server for it is started.
struct Place {
    shell: Shell,
    forge: Forge,
    runtime: Runtime,
    url: String,
    dir: TempDir,
}

impl Place {
    fn new(kind: HostKind) -> Place {
        let dir = directory();
        let runtime = Runtime::new().unwrap();
        let options = ForgeOptions { dir: dir.path().join("forge"), port: 0 };
        let forge = runtime.block_on(Forge::start_as(kind, options)).unwrap();
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}");
        let mut environment = vec![
            ("TIDELOCK_PORT".to_owned(), port.to_string()),
            ("TIDELOCK_ENABLE_DRIFT_DETECTION".to_owned(), "true".to_owned()),
            ("ATLANTIS_API_SECRET".to_owned(), API_SECRET.to_owned()),
        ];
        // What a flag of the manual names is replaced in the flag.
        let named = |(flag, value)| (format!("TIDELOCK_{}", str::to_uppercase(flag).replace('-', "_")), value);
        environment.extend(forge.server_settings().into_iter().map(named));
        let mut shell = Shell::start(dir.path(), &environment);
        for (name, secret) in forge.server_secrets() {
            shell.replace(&format!("{name}=…"), &format!("{name}={}", secret.expose_secret()));
        }
        shell.replace("https://tidelock.example.com", &url);
        shell.replace("0.0.0.0:4141", &format!("0.0.0.0:{port}"));
        Place { shell, forge, runtime, url, dir }
    }

    /// A place for `docs/get-started.md`.
    fn on_github() -> Place {
        let mut place = Place::new(HostKind::Github);
        let work = place.dir.path().join("work");
        checkout("first", "https://github.com/my-org/my-repo.git", &work.join("my-repo"));
        checkout("check", "https://github.com/acme/infra.git", &place.dir.path().join("infra"));
        // The sandbox copies the commit that is checked out.
        let commit =
            "git add --all && git -c user.name=ada -c user.email=ada@example.com commit --quiet --message infra";
        assert_eq!(place.shell.run(&format!("cd infra && {commit} && cd ../work")).1, 0);
        let page = blocks(&root().join("docs/get-started.md"));
        let rules = page.iter().find(|block| block.is("yaml")).unwrap();
        fs::write(work.join("repos.yaml"), &rules.text).unwrap();
        let main = fs::read_to_string(work.join("my-repo/main.tf")).unwrap();
        place.runtime.block_on(place.forge.create_repo("my-org/my-repo", &[("main.tf", &main)])).unwrap();
        for (text, by) in [
            ("$(openssl rand -hex 20)", place.forge.webhook_secret().expose_secret()),
            ("my-bot", place.forge.bot()),
            ("--repo-allowlist github.com/", "--repo-allowlist 127.0.0.1/"),
            ("on github.com", "on 127.0.0.1"),
            ("tidelock sandbox", "tidelock sandbox --port=0 --forge-port=0"),
            ("http://127.0.0.1:4141", "http://127.0.0.1:…"),
            ("http://127.0.0.1:4142", "http://127.0.0.1:…"),
        ] {
            place.shell.replace(text, by);
        }
        place
    }

    /// Plays `docs/get-started.md`, with the webhook set as soon as the server runs.
    fn start(&mut self) {
        for session in sessions("get-started.md") {
            self.shell.play(&session);
            if session.text.contains("tidelock server") {
                self.forge.set_webhook(&format!("{}/events", self.url));
                self.runtime.block_on(self.forge.wait_for_deliveries(LIMIT)).unwrap();
            }
        }
    }

    /// Opens a pull request on GitHub, and returns it with the run of its plan.
    fn planned(&self) -> (Pull, String) {
        let repo = self.forge.repo("my-org/my-repo");
        let change = [("main.tf", Some("resource \"terraform_data\" \"this\" {\n  input = \"2\"\n}\n"))];
        let opened = repo.open_pull("my-branch", "alice", "Change", &change, OpenOptions::default());
        let pull = self.runtime.block_on(opened).unwrap();
        let run = Regex::new(r#""run":"([0-9a-f]{32})""#).unwrap();
        let begun = Instant::now();
        loop {
            if let Some(comment) = pull.bot_comments().unwrap().first() {
                let run = run.captures(&comment.body).unwrap()[1].to_owned();
                return (pull, run);
            }
            assert!(begun.elapsed() < LIMIT, "no plan was posted");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn get_started() {
    Place::on_github().start();
}

#[test]
fn vault() {
    let mut place = Place::on_github();
    place.start();
    place.planned();
    let (states, _) = place.shell.run("tidelock vault ls --data-dir ./data");
    let newest = Regex::new(r"States +1 to ([0-9]+)").unwrap().captures(&states).unwrap()[1].to_owned();
    let file = |path: &str| format!("file://{}/{path}", place.dir.path().display());
    for (text, by) in [
        ("gs://NAME/PREFIX", file("work/data/vault")),
        ("gs://NAME/NEW-PREFIX", file("new")),
        ("/tmp/state", place.dir.path().join("state").display().to_string()),
        ("4711", newest),
    ] {
        place.shell.replace(text, &by);
    }
    place.shell.play(&only("vault.md"));
}

#[test]
fn gitlab() {
    let mut place = Place::new(HostKind::Gitlab);
    place.shell.replace("gitlab.com/my-group/*", "127.0.0.2/*");
    place.shell.play(&only("gitlab.md"));
}

#[test]
fn gitea() {
    let mut place = Place::new(HostKind::Gitea);
    place.shell.replace("https://git.example.com", &place.forge.hostname_setting());
    place.shell.replace("git.example.com/acme/*", "127.0.0.3/*");
    place.shell.play(&only("gitea.md"));
}

#[test]
fn azure_devops() {
    let mut place = Place::new(HostKind::AzureDevOps);
    place.shell.replace("dev.azure.com/my-organization/*", "localhost/*");
    place.shell.play(&only("azure-devops.md"));
}

#[test]
fn bitbucket_cloud() {
    let mut place = Place::new(HostKind::BitbucketCloud);
    place.shell.replace("bitbucket.org/acme/*", "127.0.0.4/*");
    place.shell.play(&only("bitbucket-cloud.md"));
}

#[test]
fn bitbucket_data_center() {
    let mut place = Place::new(HostKind::BitbucketDataCenter);
    place.shell.replace("git.example.com/INFRA/*", "127.0.0.5/*");
    place.shell.replace("https://git.example.com", &place.forge.hostname_setting());
    // The forge names the settings for a server of both Bitbuckets, and the page those of Atlantis.
    let names = "TIDELOCK_BITBUCKET_DATA_CENTER_BASE_URL TIDELOCK_BITBUCKET_DATA_CENTER_USER";
    assert_eq!(place.shell.run(&format!("unset {names}")).1, 0);
    for (name, secret) in place.forge.server_secrets() {
        let name = name.replace("_DATA_CENTER", "");
        place.shell.replace(&format!("{name}=…"), &format!("{name}={}", secret.expose_secret()));
    }
    place.shell.play(&only("bitbucket-data-center.md"));
}

/// Returns the one session of a page.
fn only(page: &str) -> Block {
    let mut all = sessions(page);
    assert_eq!(all.len(), 1, "{page}");
    all.remove(0)
}

#[test]
fn api_and_drift() {
    let mut place = Place::on_github();
    place.start();
    let (pull, run) = place.planned();
    let (token, _) = place.shell.run("tidelock token --owner ci@acme --scope read,plan --days 90 2>/dev/null");
    for (text, by) in [
        ("ATLANTIS_API_SECRET=…", format!("ATLANTIS_API_SECRET={API_SECRET}")),
        ("TIDELOCK_TOKEN=…", format!("TIDELOCK_TOKEN={}", token.trim())),
        ("acme/infra", "my-org/my-repo".to_owned()),
        ("\"PR\": 12", format!("\"PR\": {}", pull.number())),
        ("live/network", ".".to_owned()),
        ("RUN", run),
    ] {
        place.shell.replace(text, &by);
    }
    for session in sessions("api.md").iter().chain(&sessions("drift.md")) {
        place.shell.play(session);
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
