//! Commands of the manual that need more than this machine: a cloud, a cluster, a registry, a system user. They are blocks of the language
//! `sh`, which have to be a shell's syntax, and to start this project's programs with flags that these have. All others are sessions.

use crate::page::{Block, blocks, pages};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

/// First words of commands. A block that begins with one is not indented only: its language is `sh` or `console`.
const PROGRAMS: [&str; 16] = [
    "apt", "az", "brew", "cargo", "cat", "curl", "docker", "env", "export", "gcloud", "git", "helm", "kubectl",
    "openssl", "scripts/", "tidelock",
];

/// Programs that no test runs: the blocks with one are no sessions.
const ELSEWHERE: [&str; 13] = [
    "apt",
    "az",
    "brew",
    "cargo",
    "cosign",
    "docker",
    "gcloud",
    "helm",
    "kubectl",
    "scripts/deploy",
    "scripts/destroy",
    "scripts/package-files",
    "--run-as-user",
];

/// Beginnings of blocks that other tests play: a line of a workflow, and the server of an example.
const PLAYED: [&str; 2] = ["terraform=", "tidelock server --repo-config repos.yaml --tf-download=false"];

/// Returns true if a block of the language `sh` could be a session: it needs nothing from elsewhere, and no value is left out in it.
fn could_be_played(block: &Block) -> bool {
    let mut words = block.text.split(|char: char| !(char.is_ascii_alphanumeric() || "-/".contains(char)));
    let is_played = PLAYED.iter().any(|text| block.begins_with(text));
    !is_played && !block.text.contains('…') && !words.any(|word| ELSEWHERE.contains(&word))
}

/// Returns the command lines of a text: without comments, and with the lines joined that a backslash continues.
fn lines(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(|line| line.split(" # ").next().unwrap_or_default().trim().to_owned());
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// Returns the flags of a command, such as `check` or `vault ls`, by its help.
pub(crate) fn flags_of(command: &str) -> BTreeSet<String> {
    let mut tidelock = Command::new(env!("CARGO_BIN_EXE_tidelock"));
    let help = tidelock.args(command.split(' ')).arg("--help").env_clear().output().unwrap();
    assert!(help.status.success(), "there is no `tidelock {command}`");
    let text = String::from_utf8(help.stdout).unwrap();
    let words = text.split(|char: char| !(char.is_ascii_alphanumeric() || char == '-'));
    words.filter(|word| word.starts_with("--")).map(str::to_owned).collect()
}

/// Returns what is wrong with the calls of `tidelock` in a command line.
fn wrong_calls(line: &str, known: &mut BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let line = line.replace("cargo run -- ", "tidelock ");
    let words: Vec<&str> = line.split_whitespace().collect();
    let begins = |call: usize| {
        let before = call.checked_sub(1).map(|before| words[before]);
        before.is_none_or(|word| word.contains('=') || ["&&", "||", "|", "env"].contains(&word))
    };
    let Some(call) = (0..words.len()).find(|call| words[*call] == "tidelock" && begins(*call)) else {
        return Vec::new();
    };
    let is_command = |word: &&&str| word.starts_with(|char: char| char.is_ascii_lowercase());
    let Some(subcommand) = words.get(call + 1).filter(is_command) else { return Vec::new() };
    let command = match words.get(call + 2) {
        Some(second) if *subcommand == "vault" => format!("vault {second}"),
        _ => (*subcommand).to_owned(),
    };
    let flags = known.entry(command.clone()).or_insert_with(|| flags_of(&command));
    let used = words[call + 1..].iter().filter(|word| word.starts_with("--"));
    let used = used.map(|word| word.split('=').next().unwrap_or_default());
    used.filter(|flag| !flags.contains(*flag)).map(|flag| format!("`tidelock {command}` has no {flag}")).collect()
}

/// Returns the error of `bash -n`.
fn wrong_syntax(block: &Block) -> Option<String> {
    let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    bash.stdin.take().unwrap().write_all(block.text.as_bytes()).unwrap();
    let done = bash.wait_with_output().unwrap();
    (!done.status.success()).then(|| String::from_utf8_lossy(&done.stderr).into_owned())
}

#[test]
fn commands_that_are_not_run_are_a_shells_and_have_known_flags() {
    let (mut wrong, mut known, mut count) = (Vec::new(), BTreeMap::new(), 0);
    for block in pages().iter().flat_map(|page| blocks(page)) {
        if block.info.is_none() && PROGRAMS.iter().any(|program| block.begins_with(program)) {
            wrong.push(format!("{}: the block of commands has no language", block.place));
        }
        if !block.is("sh") && !block.is("console") {
            continue;
        }
        count += 1;
        if block.is("sh") && could_be_played(&block) {
            wrong.push(format!("{}: it could be a session, of the language console", block.place));
        }
        let text = block.text.replace("\n> ", "\n");
        let calls = lines(&text).iter().flat_map(|line| wrong_calls(line, &mut known)).collect::<Vec<_>>();
        let errors = calls.into_iter().chain(block.is("sh").then(|| wrong_syntax(&block)).flatten());
        wrong.extend(errors.map(|error| format!("{}: {error}", block.place)));
    }
    assert!(count > 40, "only {count} blocks were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_flag_is_found() {
    let mut known = BTreeMap::new();
    assert_eq!(
        wrong_calls("A=b tidelock check --no-such-flag=1 x", &mut known),
        ["`tidelock check` has no --no-such-flag"]
    );
    assert!(wrong_calls("tidelock check --repos-config x", &mut known).is_empty());
}
