//! Formats of the server's log: lines for people on a terminal, JSON for machines elsewhere.

use crate::support::*;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// Returns true for a line such as `12:34:56  INFO listening address=…`, without colours.
fn is_readable(line: &str) -> bool {
    let (time, rest) = line.split_at_checked(8).unwrap_or_default();
    let digits = time.split(':').all(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit()));
    let word = rest.split_whitespace().next().unwrap_or_default();
    digits && time.matches(':').count() == 2 && ["ERROR", "WARN", "INFO"].contains(&word)
}

/// Removes the sequences that set colours.
fn plain(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or(part, |(_, rest)| rest))
}

#[test]
fn log_lines_are_readable_on_a_terminal_and_json_elsewhere() {
    run_test(Setup::one_project().own_process(), async |ctx| {
        ctx.server.stop().await;
        let log = ctx.server.log();
        let messages: Vec<String> = log
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
            .map(|event| event["message"].as_str().unwrap().to_owned())
            .collect();
        for wanted in ["listening", "ready"] {
            assert!(messages.iter().any(|message| message == wanted), "{wanted} is missing: {messages:?}");
        }

        let shown = ctx.server.on_a_terminal("listening").await;
        assert!(shown.contains("\u{1b}["), "a terminal has colours: {shown}");
        let shown = plain(&shown);
        // The terminal echoes the interrupt.
        let lines: Vec<&str> = shown.lines().map(|line| line.trim_start_matches("^C").trim_end()).collect();
        assert!(lines.iter().all(|line| line.is_empty() || is_readable(line)), "{shown}");
        let has = |words: &[&str]| lines.iter().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(has(&["INFO listening", "address=127.0.0.1:", "version="]), "{shown}");
        assert!(has(&["INFO stopping", "SIGINT"]) && has(&["INFO stopped"]), "{shown}");
        ctx.server.start().await;
    });
}

/// Starts `tidelock sandbox` with these arguments, whose temporary files are in this directory.
fn sandbox(args: &[&str], dir: &std::path::Path) -> Child {
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
fn ended(mut child: Child, mut out: impl Read, dir: &std::path::Path) -> (Option<i32>, String) {
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
    for host in ["github", "gitlab", "gitea", "azure-devops"] {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let mut child = sandbox(&["--tour=safety", "--host", host], &place);
        let out = until_told(&mut child, "Done: 3 stories");
        assert_eq!(ended(child, out, &place), (Some(0), String::new()), "{host}");
    }
}
