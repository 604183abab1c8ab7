//! `tidelock sandbox`: its tours, its end, and a person's own repository and settings in it.

use crate::support::client;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tidelock_forge::HostKind;

/// Starts `tidelock sandbox` with these arguments, whose temporary files are in this directory.
fn sandbox(args: &[&str], dir: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock"));
    command.arg("sandbox").args(args).env("TMPDIR", dir);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Reads its output until it has these words.
fn until_told(child: &mut Child, words: &str) -> BufReader<std::process::ChildStdout> {
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let (mut line, mut all) = (String::new(), String::new());
    while !all.contains(words) {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "it ended before {words:?}: {all}");
        all += &line;
    }
    out
}

/// Waits for its end. Returns exit code and standard error, and checks that no process and no file of it is left.
fn ended(mut child: Child, mut out: impl Read, dir: &Path) -> (Option<i32>, String) {
    let mut error = String::new();
    out.read_to_string(&mut error).unwrap();
    error.clear();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    let code = child.wait().unwrap().code();
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(left.is_empty(), "it left {left:?}");
    let running = Command::new("ps").args(["-eo", "args"]).output().unwrap();
    let running = String::from_utf8_lossy(&running.stdout).into_owned();
    let place = dir.to_str().unwrap();
    assert!(!running.contains(place), "of {place} there run still: {running}");
    (code, error)
}

#[test]
fn the_sandbox_ends_with_a_signal_and_leaves_nothing() {
    use rustix::process::{Pid, Signal, kill_process};
    for (args, told, signal, code) in [
        (&["--port=0", "--forge-port=0"][..], "Ctrl-C ends it", Signal::INT, 0),
        (&["--port=0", "--forge-port=0"], "opened", Signal::TERM, 0),
        (&["--tour"], "alice: ", Signal::INT, 130),
        (&["--tour=safety"], "owns what she changes", Signal::TERM, 143),
    ] {
        // With a path that is too long for the folders of runs to be in the data directory.
        let dir = tempfile::Builder::new().prefix("of-the-sandbox-").tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let mut child = sandbox(args, &place);
        let out = until_told(&mut child, told);
        kill_process(Pid::from_raw(child.id().try_into().unwrap()).unwrap(), signal).unwrap();
        let (ended, error) = ended(child, out, &place);
        assert_eq!(ended, Some(code), "{args:?}: {error}");
        assert_eq!(error.contains("was interrupted by"), code != 0, "{args:?}: {error}");
    }
}

#[test]
fn all_jobs_of_the_tour_run_at_the_executor_that_is_asked_for() {
    let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let args = ["--tour", "--executor=process", "--dir", kept.path().to_str().unwrap()];
    let done = sandbox(&args, dir.path()).wait_with_output().unwrap();
    let (told, error) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && told.contains("Done: 2 pull requests"), "{told}{error}");
    let bucket = Command::new("find").arg(kept.path().join("bucket")).output().unwrap();
    let bucket = String::from_utf8_lossy(&bucket.stdout);
    // Two plans and an apply.
    let claims = bucket.lines().filter(|path| path.contains("/jobs/processes/") && path.ends_with("/claim"));
    assert_eq!(claims.count(), 3, "{bucket}");
}

#[test]
fn the_tour_of_safety_logs_no_error_on_any_host() {
    for host in HostKind::ALL.map(HostKind::name) {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let mut child = sandbox(&["--tour=safety", "--host", host], &place);
        let out = until_told(&mut child, "Done: 3 stories");
        assert_eq!(ended(child, out, &place), (Some(0), String::new()), "{host}");
    }
}

/// Makes a git repository with one project.
fn own_repository(dir: &Path) {
    std::fs::create_dir(dir.join("site")).unwrap();
    std::fs::write(dir.join("site/main.tf"), "resource \"terraform_data\" \"this\" {\n  input = 1\n}\n").unwrap();
    for args in [&["init", "-q", "-b", "trunk"][..], &["add", "."], &["commit", "-q", "-m", "Begin"]] {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=me", "-c", "user.email=me@example.com"]).args(args).current_dir(dir);
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        assert!(git.status().unwrap().success(), "git {args:?}");
    }
}

/// Returns the refs and the changes of a git repository.
fn refs_and_changes(dir: &Path) -> String {
    let read = |args: &[&str]| Command::new("git").args(args).current_dir(dir).output().unwrap().stdout;
    let all = [read(&["for-each-ref"]), read(&["status", "--porcelain"])].concat();
    String::from_utf8(all).unwrap()
}

/// A sandbox that is killed when its test fails.
struct Playing(Option<Child>);

impl Drop for Playing {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
        }
    }
}

/// Sends a form of the forge's pages.
fn send_form(address: &str, fields: &[(&str, &str)]) -> reqwest::StatusCode {
    // The first caller of the shared client may be this test.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let sending = async { client().post(address).form(fields).send().await.unwrap().status() };
    tokio::runtime::Runtime::new().unwrap().block_on(sending)
}

#[test]
fn a_person_tries_an_own_repository_with_own_files() {
    let (dir, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = dir.path().canonicalize().unwrap();
    own_repository(own.path());
    let before = refs_and_changes(own.path());
    let rules = place.join("repos.yaml");
    let words = "repos: [{id: /.*/, pre_workflow_hooks: [{run: echo hooked > hooked.txt}], workflow: own}]\n\
                 workflows: {own: {plan: {steps: [init, run: cat \"$DIR/../hooked.txt\", plan]}}}\n";
    std::fs::write(&rules, words).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock"));
    command.args(["sandbox", "--port=0", "--forge-port=0", "--set", "executable-name=tide", "--repo"]).arg(own.path());
    command.arg("--repo-config").arg(&rules).env("TMPDIR", &place).env("ATLANTIS_GH_TOKEN", "ignored");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let id = rustix::process::Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    let mut playing = Playing(Some(child));
    // Returns the lines since the last call up to the one with these words.
    let mut until = |words: &str| {
        let mut told = String::new();
        while !told.contains(words) {
            assert!(out.read_line(&mut told).unwrap() > 0, "it ended before {words:?}: {told}");
        }
        told
    };
    let told = until("Ctrl-C ends it");
    assert!(told.contains("Ignored        ATLANTIS_GH_TOKEN"), "{told}");
    let forge = told.split_once("Pull requests  ").unwrap().1.lines().next().unwrap().to_owned();
    let text = "resource \"terraform_data\" \"this\" {\n  input = 2\n}\n";
    let fields = [("as", "alice"), ("branch", "two"), ("title", "Two"), ("path", "site/main.tf"), ("content", text)];
    assert_eq!(send_form(&format!("{forge}/acme/infrastructure/new"), &fields), 303);
    until("Pre workflow hook #0 success");
    until("1 to add");
    let comment = [("as", "alice"), ("body", "tide apply")];
    assert_eq!(send_form(&format!("{forge}/acme/infrastructure/pull/1/comment"), &comment), 303);
    until("is switched off on this server");
    std::fs::remove_file(&rules).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let (code, error) = ended(playing.0.take().unwrap(), out, &place);
    assert_eq!(refs_and_changes(own.path()), before);
    assert_eq!(code, Some(0), "{error}");
}

#[test]
fn what_the_sandbox_cannot_take_is_named() {
    let bare = tempfile::tempdir().unwrap();
    let bare = bare.path().to_str().unwrap();
    for (args, words) in [
        (&["--set", "port=1"][..], "--set cannot change port"),
        (&["--set", "automerge"], "--set takes NAME=VALUE"),
        (&["--set", "no-such-setting=1"], "no-such-setting"),
        (&["--repo-config", "/nowhere.yaml"], "/nowhere.yaml, which is no file"),
        (&["--repo", "/nowhere"], "/nowhere"),
        (&["--repo", bare], "name the root of a git repository"),
        (&["--repo", ".", "--tour"], "cannot be used with"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let mut child = sandbox(&[&["--port=0", "--forge-port=0"][..], args].concat(), &place);
        let out = child.stdout.take().unwrap();
        let (code, error) = ended(child, out, &place);
        assert!(matches!(code, Some(1 | 2)) && error.contains(words), "{args:?}: {code:?} {error}");
    }
}
