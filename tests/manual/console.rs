//! Sessions of a shell in the manual: blocks of the language `console`, with the commands after `$ ` and what they print.
//!
//! `…` stands for any text of a line, and on a line of its own for any lines. A block `console keeps-running` ends with a command that goes on:
//! it has printed what is shown before the next block begins. The commands of `console fails` end with an error.

use crate::page::{Block, blocks, root};
use snapbox::{Data, IntoData};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time limit of a command that keeps running, until it has printed what is shown.
const LIMIT: Duration = Duration::from_secs(60);
/// Line that ends the output of a command, before its exit code.
const END: &str = "==end-of-command==";

/// A command of a session and what it prints.
struct Step {
    command: String,
    expected: String,
}

/// Returns the sessions of a page of `docs`, in order.
pub(crate) fn sessions(page: &str) -> Vec<Block> {
    let found: Vec<Block> =
        blocks(&root().join("docs").join(page)).into_iter().filter(|block| block.is("console")).collect();
    assert!(!found.is_empty(), "{page} has no session");
    found
}

/// Splits a block into its commands. A command goes on in lines that begin with `> `.
fn steps(block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.text.lines() {
        match (line.strip_prefix("$ "), line.strip_prefix("> "), steps.last_mut()) {
            (Some(command), _, _) => steps.push(Step { command: command.to_owned(), expected: String::new() }),
            (None, Some(more), Some(step)) if step.expected.is_empty() => step.command += &format!("\n{more}"),
            (None, _, Some(step)) => step.expected += &format!("{line}\n"),
            (None, _, None) => panic!("{}: the session begins without a command: {line}", block.place),
        }
    }
    steps
}

/// Compares what a command has printed with the manual. Returns the difference.
fn difference(expected: &str, printed: &str) -> Result<(), String> {
    let line = |line: &str| if line.trim() == "…" { "...".to_owned() } else { line.replace('…', "[..]") };
    let mut expected: Vec<String> = expected.trim_end().lines().map(line).collect();
    expected.dedup_by(|one, before| *one == "..." && one == before);
    let printed = Data::text(printed.trim_end().to_owned());
    let compared = snapbox::Assert::new().try_eq(None, printed, expected.join("\n").into_data());
    compared.map_err(|error| error.to_string())
}

/// A shell that plays sessions in a directory.
pub(crate) struct Shell {
    bash: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Files of the shell itself.
    own: TempDir,
    /// Number of commands that keep running.
    running: usize,
    /// Texts of the manual, each with what stands for it on this machine.
    replaced: Vec<(String, String)>,
}

impl Shell {
    /// Starts a shell in this directory, whose environment has only these variables and a `PATH` with `tidelock`.
    pub(crate) fn start(dir: &Path, environment: &[(String, String)]) -> Shell {
        let own = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidelock"), own.path().join("tidelock")).unwrap();
        let path = format!("{}:{}", own.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc"]).current_dir(dir).env_clear().env("PATH", path).env("HOME", own.path());
        command.envs(environment.iter().cloned()).process_group(0);
        let mut bash = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, output) = (bash.stdin.take().unwrap(), BufReader::new(bash.stdout.take().unwrap()));
        input.write_all(b"exec 2>&1\n").unwrap();
        Shell { bash, input, output, own, running: 0, replaced: Vec::new() }
    }

    /// Plays sessions with `text` of the manual replaced, in commands and in what they print.
    pub(crate) fn replace(&mut self, text: &str, by: &str) {
        self.replaced.push((text.to_owned(), by.to_owned()));
    }

    fn filled(&self, text: &str) -> String {
        self.replaced.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// Runs a command. Returns its output and exit code.
    pub(crate) fn run(&mut self, command: &str) -> (String, i32) {
        let file = self.own.path().join("command");
        std::fs::write(&file, format!("{command}\n")).unwrap();
        // In the shell itself, for `export` and `cd`; without its input, for programs that read theirs.
        writeln!(self.input, "source '{}' </dev/null; printf '\\n%s %d\\n' {END} $?", file.display()).unwrap();
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the shell ended: {command}\n{printed}");
            if let Some(code) = line.strip_prefix(END) {
                return (printed, code.trim().parse().unwrap());
            }
            printed += &line;
        }
    }

    /// Plays a block and compares what its commands print.
    pub(crate) fn play(&mut self, block: &Block) {
        let info = block.info.as_deref().unwrap_or_default();
        let mut steps = steps(block);
        let last = info.contains("keeps-running").then(|| steps.pop().unwrap());
        for step in &steps {
            let (printed, code) = self.run(&self.filled(&step.command));
            assert_eq!(code != 0, info.contains("fails"), "{}: exit code {code}:\n{printed}", block.place);
            let compared = difference(&self.filled(&step.expected), &printed);
            compared.unwrap_or_else(|difference| panic!("{}: {}\n{difference}", block.place, step.command));
        }
        if let Some(step) = last {
            self.keep_running(block, &step);
        }
    }

    /// Starts a command in a terminal, and waits until it has printed what is shown.
    fn keep_running(&mut self, block: &Block, step: &Step) {
        let (file, script) = {
            self.running += 1;
            let own = |name: &str| self.own.path().join(format!("{name}-{}", self.running));
            (own("output"), own("script"))
        };
        std::fs::write(&script, format!("exec {}\n", self.filled(&step.command))).unwrap();
        let (_, code) = self.run(&format!(
            "script --quiet --flush --command 'bash {}' {} >/dev/null 2>&1 &",
            script.display(),
            file.display()
        ));
        assert_eq!(code, 0, "{}: script of util-linux cannot be run", block.place);
        let begun = Instant::now();
        loop {
            let printed = std::fs::read(&file).unwrap_or_default();
            let printed = plain(&String::from_utf8_lossy(&printed));
            match difference(&self.filled(&format!("…\n{}…\n", step.expected)), &printed) {
                Ok(()) => return,
                Err(difference) if begun.elapsed() > LIMIT => panic!("{}: {difference}", block.place),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

/// What a terminal shows of a text, without colours and the lines of `script` itself.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain += before;
        rest = after.trim_start_matches(|char: char| char.is_ascii_digit() || char == ';').get(1..).unwrap_or_default();
    }
    plain += rest;
    plain
        .replace('\r', "")
        .lines()
        .filter(|line| !line.starts_with("Script "))
        .map(|line| format!("{line}\n"))
        .collect()
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Every process of the session has the shell's process group, or its terminal is gone with `script`.
        if let Some(group) = rustix::process::Pid::from_raw(self.bash.id().try_into().unwrap_or_default()) {
            _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        }
        _ = self.bash.kill();
        _ = self.bash.wait();
    }
}

#[test]
fn a_difference_is_found() {
    assert!(difference("a …\n…\nz", "a b\nc\nd\nz\n").is_ok());
    assert!(difference("a …\nz", "a b\nc\nz\n").is_err());
    assert!(difference("a\n", "b\n").is_err());
    assert!(difference("", "something").is_err());
    assert_eq!(plain("\u{1b}[2m09:44\u{1b}[0m \u{1b}[32m INFO\u{1b}[0m x\r\n"), "09:44  INFO x\n");
}
