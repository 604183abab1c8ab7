//! Token and webhook secret must be found nowhere: not in what is left after a run, and not by a step.
//!
//! The real binary gets both in variables. While it works, the test reads every child's arguments and environment. A `run` step searches
//! all places that a process can read, and writes the result to files without redaction. As another user (`--run-as-user`) the step must
//! find neither. As the server's own user it can read whatever that user can, so only its own environment and all output of the server are
//! checked.

use crate::place::{Binary, LIMIT, answer};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use secrecy::ExposeSecret;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tidelock_forge::{Fault, Forge, ForgeOptions, OpenOptions};

/// Places that the step searches as any user; `@SEEN@`, `@HOST@` and `@SERVER@` are filled in.
const OWN: &str = r#"
exec > "@SEEN@/own-$$" 2>&1
id
env
tr '\0' '\n' < /proc/self/environ
for fd in 3 4 5 6 7 8 9; do timeout 1 head -c 4096 "/proc/self/fd/$fd"; done
printf 'protocol=http\nhost=@HOST@\n\n' | GIT_TERMINAL_PROMPT=0 git credential fill
git config --list --show-origin
cat .git/config .git ../.git "$HOME/.git-credentials" "$HOME/.netrc" "$HOME/.config/git/credentials"
"#;

/// Further places that a step of another user searches.
const OTHERS: &str = r#"
exec > "@SEEN@/others-$$" 2>&1
for process in /proc/[0-9]*; do
    tr '\0' '\n' < "$process/environ"
    tr '\0' ' ' < "$process/cmdline"
done
ls -l "/proc/@SERVER@/fd"
for fd in "/proc/@SERVER@/fd/"*; do timeout 1 head -c 65536 "$fd"; done
cat "/proc/@SERVER@/maps" "/proc/@SERVER@/environ"
dd if="/proc/@SERVER@/mem" bs=4096 count=16 skip=16
find "@DATA@" -type f -size -4096k -exec cat {} +
cat "@DATA@/tidelock.db" "@DATA@/tidelock.db-wal"
ls "@DATA@/plans" "@DATA@/logs" && echo "folders open $((20 + 2))"
git config --global user.name nobody && touch "$HOME/.terraformrc" "$TF_PLUGIN_CACHE_DIR/x" && echo "home and cache used $((20 + 2))"
"#;

const CODE: &str = "resource \"terraform_data\" \"a\" {\n  input = 1\n}\n";

/// Output and files of the server, with their places.
type Seen = Vec<(String, Vec<u8>)>;

/// Returns each secret as it is, and the parts that its base64 contains at any offset in a text.
fn needles(secrets: &[&str]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for secret in secrets {
        all.push(secret.as_bytes().to_vec());
        for before in 0..3 {
            let padded = [vec![b'x'; before], secret.as_bytes().to_vec()].concat();
            let encoded = BASE64_STANDARD.encode(padded);
            all.push(encoded.as_bytes()[4..encoded.len() - 4].to_vec());
        }
    }
    all
}

/// Returns the places at which a secret was seen.
fn leaks(seen: &Seen, needles: &[Vec<u8>]) -> Vec<String> {
    let holds = |bytes: &[u8]| needles.iter().any(|needle| bytes.windows(needle.len()).any(|window| window == needle));
    seen.iter().filter(|(_, bytes)| holds(bytes)).map(|(place, _)| place.clone()).collect()
}

fn files(dir: &Path, into: &mut Seen) {
    // A directory may disappear too: the server removes trees after an answer.
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        // A file that disappears meanwhile is one that the server is writing; its final version is read.
        let Ok(meta) = path.symlink_metadata() else { continue };
        if meta.is_dir() {
            files(&path, into);
        } else if meta.is_file()
            && let Ok(content) = std::fs::read(&path)
        {
            into.push((path.display().to_string(), content));
        }
    }
}

/// Collects arguments and environments of all processes that the server starts, until `stop`.
fn watch_children(server: u32, stop: &AtomicBool) -> Seen {
    let mut seen: std::collections::BTreeMap<Vec<u8>, String> = std::collections::BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        for pid in descendants(server) {
            let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let (arguments, variables) = (read("cmdline"), read("environ"));
            // Between fork and exec it is still a copy of the server, with the server's own arguments and environment.
            if !arguments.windows(16).any(|window| window == b"--repo-allowlist") {
                let name = format!("process {}", String::from_utf8_lossy(&arguments).replace('\0', " "));
                seen.insert([arguments, variables].concat(), name);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    seen.into_iter().map(|(bytes, name)| (name, bytes)).collect()
}

fn descendants(root: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<u32>().ok());
        parents.extend(parent.map(|parent| (pid, parent)));
    }
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&of) = found.get(at) {
        found.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

struct Story {
    seen: Seen,
    children: Seen,
    by_step: Seen,
    secrets: Vec<String>,
}

/// Opens a pull request, and plans and applies it with a step that searches for secrets.
async fn play(run_as: Option<&str>) -> Story {
    let dir = TempDir::new().unwrap();
    // The other user needs access to its checkout.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (data, eyes) = (dir.path().join("data"), dir.path().join("eyes"));
    std::fs::create_dir(&eyes).unwrap();
    std::fs::set_permissions(&eyes, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let forge = Forge::start(ForgeOptions { dir: dir.path().join("forge"), port: 0 }).await.unwrap();
    let spy = "{\"run\": \"sh ./own.sh; [ ! -e others.sh ] || sh ./others.sh; true\"}";
    let config = format!(
        r#"{{"repos": [{{"id": "/.*/", "workflow": "spy"}}], "workflows": {{"spy": {{
            "plan": {{"steps": [{spy}, "init", "plan"]}}, "apply": {{"steps": ["apply", {spy}]}}}}}}}}"#
    );
    let (config, user) = (format!("--repo-config-json={config}"), run_as.map(|user| format!("--run-as-user={user}")));
    let flags: Vec<&str> = ["--log-level=debug", &config].into_iter().chain(user.as_deref()).collect();
    let server = Binary::start(&forge, dir.path(), &flags, None).await;
    let (token, secret) = (forge.token().expose_secret().to_owned(), forge.webhook_secret().expose_secret().to_owned());

    let filled = |script: &str| {
        let host = forge.url().trim_start_matches("http://");
        let script = script.replace("@SEEN@", &eyes.to_string_lossy()).replace("@HOST@", host);
        script.replace("@SERVER@", &server.pid().to_string()).replace("@DATA@", &data.to_string_lossy())
    };
    let repo = forge.create_repo("acme/infra", &[("README.md", "")]).await.unwrap();
    // So that git runs long enough to be observed.
    forge.fail_next("*", "/acme/infra.git/*", Fault::Stall(Duration::from_millis(300)), 4).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (watched, flag) = (server.pid(), Arc::clone(&stop));
    let watcher = std::thread::spawn(move || watch_children(watched, &flag));
    let (own, others) = (filled(OWN), filled(OTHERS));
    let mut changes = vec![("a/main.tf", Some(CODE)), ("a/own.sh", Some(own.as_str()))];
    if run_as.is_some() {
        changes.push(("a/others.sh", Some(others.as_str())));
    }
    let pull = repo.open_pull("change", "alice", "A change", &changes, OpenOptions::default()).await.unwrap();
    let planned = answer(&pull, 0).await;
    assert!(planned.body.contains("1 to add"), "{}", planned.body);
    pull.comment("alice", "atlantis apply").unwrap();
    let applied = answer(&pull, 1).await;
    assert!(applied.body.contains("1 added") || applied.body.contains("Applied"), "{}", applied.body);
    let project = "atlantis/apply: a/default";
    pull.wait_for_status(project, |status| status.state == "success", LIMIT).await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let children = watcher.join().unwrap();

    let mut seen: Seen =
        pull.comments().unwrap().into_iter().map(|c| (format!("comment {}", c.id), c.body.into())).collect();
    seen.push(("statuses".to_owned(), format!("{:?}", pull.statuses().unwrap()).into_bytes()));
    files(&data, &mut seen);
    let logs = server.logs.clone();
    server.terminate();
    files(&data, &mut seen);
    seen.extend(logs.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())));
    let mut by_step = Seen::new();
    files(&eyes, &mut by_step);
    Story { seen, children, by_step, secrets: vec![token, secret] }
}

impl Story {
    /// Checks conditions that hold for every user of the step.
    fn judge(&self) {
        let secrets: Vec<&str> = self.secrets.iter().map(String::as_str).collect();
        let needles = needles(&secrets);
        // The search itself finds planted secrets, plain and as git's header has them.
        let header = BASE64_STANDARD.encode(format!("bot:{}", self.secrets[0]));
        let planted = vec![("a".to_owned(), secrets[0].as_bytes().to_vec()), ("b".to_owned(), header.into_bytes())];
        assert_eq!(leaks(&planted, &needles), ["a", "b"]);

        assert!(
            self.children.iter().any(|(name, _)| name.contains("git") && name.contains("fetch")),
            "no git was seen"
        );
        assert!(self.children.iter().any(|(name, _)| name.contains("terraform")), "no Terraform was seen");
        assert!(self.seen.iter().any(|(name, _)| name.ends_with("tidelock.db")));
        assert!(self.seen.iter().any(|(name, bytes)| name.ends_with("/log") && !bytes.is_empty()), "no log was seen");
        let log =
            self.seen.iter().find(|(name, _)| name.ends_with("/log")).map(|(_, bytes)| String::from_utf8_lossy(bytes));
        let plan = regex::Regex::new(r#""plan":"[0-9a-f]{64}""#).unwrap();
        for result in [r#""result":"begun""#, r#""result":"applied""#] {
            let audited = log.iter().flat_map(|log| log.lines()).any(|line| {
                let parts = [
                    r#""audit":true"#,
                    r#""who":"alice""#,
                    r#""act":"apply""#,
                    r#""project":"#,
                    r#""commit":"#,
                    result,
                ];
                parts.iter().all(|part| line.contains(part)) && plan.is_match(line)
            });
            assert!(audited, "no line of the audit log says {result}");
        }
        assert_eq!(leaks(&self.seen, &needles), Vec::<String>::new());
        assert_eq!(leaks(&self.children, &needles), Vec::<String>::new());
        let own = self.by_step.iter().filter(|(name, _)| name.contains("/own-"));
        let own: Seen = own.cloned().collect();
        assert_eq!(own.len(), 2, "the step looks once in plan and once in apply");
        for (_, bytes) in &own {
            let text = String::from_utf8_lossy(bytes);
            assert!(text.contains("HEAD_COMMIT=") && text.contains("PLANFILE="), "{text}");
        }
        assert_eq!(leaks(&own, &needles), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_the_server_writes_or_starts_holds_a_secret() {
    play(None).await.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_another_user_finds_no_secret_wherever_it_looks() {
    if !rustix::process::geteuid().is_root() {
        // Written past the test runner, which hides the output of a passing test.
        std::io::Write::write_all(&mut std::io::stderr(), b"skipped: a_step_of_another_user_finds_no_secret_wherever_it_looks: only root can run steps as somebody else\n").unwrap();
        return;
    }
    let story = play(Some("65534:65534")).await;
    story.judge();
    let secrets: Vec<&str> = story.secrets.iter().map(String::as_str).collect();
    assert_eq!(leaks(&story.by_step, &needles(&secrets)), Vec::<String>::new());
    assert!(story.by_step.iter().any(|(name, _)| name.contains("/others-")));
    for (name, bytes) in &story.by_step {
        let text = String::from_utf8_lossy(bytes);
        assert!(!name.contains("/own-") || text.contains("uid=65534"), "the step ran as somebody else: {text:.200}");
        assert!(!text.contains("SQLite format 3"), "{name}: the step can read the server's state");
        assert!(!text.contains("folders open 22"), "{name}: the step can look at plans and logs of others");
        let end: Vec<&str> = text.lines().rev().take(5).collect();
        assert!(!name.contains("/others-") || text.contains("home and cache used 22"), "{name}: {end:#?}");
    }
}
