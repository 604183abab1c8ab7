//! Files that steps leave where the server reads, writes or removes one: links, pipes, devices, endless files, and directories swapped for
//! links. The server follows no link, waits for no pipe and reads nothing without a limit.
//!
//! Each attack runs as the server's own user and, where the test may change users, under `--run-as-user`.

use crate::place::{Binary, CODE, LIMIT, answer, marker, stub_dir};
use secrecy::ExposeSecret;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidelock_forge::{Forge, ForgeOptions, OpenOptions, Pull, Repo};

/// Size above every limit of the server for files of a tree, and small enough for a test that fails.
const HUGE: u64 = 1 << 30;
/// Limit of the server's memory, in KiB.
const MAX_RESIDENT: u64 = 512 << 10;
/// Context of the status of these tests' hook.
const HOOK: &str = "atlantis/pre_workflow_hook: hook";

/// A forge and a server in a process of its own, with files of the server's user that no step may have or change.
struct World {
    forge: Forge,
    repo: Repo,
    server: Binary,
    dir: TempDir,
}

impl World {
    async fn start(run_as: Option<&str>, repos: &str) -> World {
        let dir = TempDir::new().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let bin = stub_dir(dir.path());
        let forge = Forge::start(ForgeOptions { dir: dir.path().join("forge"), port: 0 }).await.unwrap();
        let ours = dir.path().join("ours");
        for folder in ["", "dir", "refs"] {
            std::fs::create_dir(ours.join(folder)).unwrap();
        }
        let token = forge.token().expose_secret().to_owned();
        for (name, text) in [("secret", token.as_str()), ("file", "precious"), ("dir/default.tfplan", "precious")] {
            std::fs::write(ours.join(name), text).unwrap();
            std::fs::set_permissions(ours.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        std::fs::File::create(ours.join("huge")).unwrap().set_len(HUGE).unwrap();
        let (repos, user) = (format!("--repo-config-json={repos}"), run_as.map(|user| format!("--run-as-user={user}")));
        let flags: Vec<&str> = [repos.as_str()].into_iter().chain(user.as_deref()).collect();
        let server = Binary::start(&forge, dir.path(), &flags, Some(&bin)).await;
        let repo = forge.create_repo("acme/infra", &[("README.md", "")]).await.unwrap();
        World { forge, repo, server, dir }
    }

    fn ours(&self, name: &str) -> PathBuf {
        self.dir.path().join("ours").join(name)
    }

    /// Replaces `@OURS@` in a script with the directory of the server's files.
    fn fill(&self, script: &str) -> String {
        script.replace("@OURS@", self.ours("").to_str().unwrap().trim_end_matches('/'))
    }

    /// Opens a pull request with a project in `a` and this script.
    async fn open(&self, branch: &str, script: &str, text: &str) -> Pull {
        let text = self.fill(text);
        let changes = [("a/main.tf", Some(CODE)), (script, Some(text.as_str()))];
        self.repo.open_pull(branch, "alice", branch, &changes, OpenOptions::default()).await.unwrap()
    }

    /// Checks that none of the server's files was changed or removed, and none added.
    fn nothing_was_touched(&self) {
        for file in ["file", "dir/default.tfplan"] {
            assert_eq!(std::fs::read_to_string(self.ours(file)).unwrap(), "precious", "{file}");
        }
        let names = |dir: &str| {
            let entries = std::fs::read_dir(self.ours(dir)).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(names(""), ["dir", "file", "huge", "refs", "secret"]);
        assert_eq!(names("dir"), ["default.tfplan"]);
        assert_eq!(names("refs"), Vec::<String>::new());
        assert_eq!(std::fs::metadata(self.ours("refs")).unwrap().permissions().mode() & 0o777, 0o755);
    }

    fn token(&self) -> String {
        self.forge.token().expose_secret().to_owned()
    }

    /// Returns the most memory that the server ever had, in KiB.
    fn most_resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// Returns the users of steps: the server's own, and another one if the test may change users.
pub(crate) fn users(test: &str) -> Vec<Option<&'static str>> {
    if rustix::process::geteuid().is_root() {
        return vec![None, Some("65534:65534")];
    }
    let skipped = format!("skipped: {test}, for another user: only root can run steps as one\n");
    std::io::Write::write_all(&mut std::io::stderr(), skipped.as_bytes()).unwrap();
    vec![None]
}

fn with_hook() -> String {
    r#"{"repos":[{"id":"/.*/","pre_workflow_hooks":[{"run":"sh ./hook.sh","description":"hook"}]}]}"#.to_owned()
}

/// Returns rules that plan and apply with the built-in steps and then this one.
fn with_step(plan: &str, apply: &str) -> String {
    serde_json::json!({
        "repos": [{"id": "/.*/", "workflow": "w"}],
        "workflows": {"w": {"plan": {"steps": ["init", "plan", {"run": plan}]}, "apply": {"steps": ["apply", {"run": apply}]}}},
    })
    .to_string()
}

async fn hook_status(pull: &Pull) -> String {
    pull.wait_for_status(HOOK, |status| status.state == "success", LIMIT).await.unwrap();
    pull.statuses().unwrap()[HOOK].description.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_text_is_read_of_no_link_and_no_pipe() {
    for user in users("a_status_text_is_read_of_no_link_and_no_pipe") {
        let world = World::start(user, &with_hook()).await;
        for (at, attack) in ["ln -s @OURS@/secret", "mkfifo", "ln -s /proc/self/environ", "mkdir"].iter().enumerate() {
            let script = format!("rm -rf OUTPUT_STATUS_FILE; {attack} OUTPUT_STATUS_FILE\n");
            let pull = world.open(&format!("attack-{at}"), "hook.sh", &script).await;
            let said = answer(&pull, 0).await;
            assert!(said.body.contains("1 to add"), "{attack}: {}", said.body);
            assert_eq!(hook_status(&pull).await, "succeeded", "{attack}");
            let everything = format!("{:?} {:?}", pull.statuses().unwrap(), pull.bot_comments().unwrap());
            assert!(!everything.contains(&world.token()), "{attack}: {everything}");
            // The next hook's text is read, whatever was in its place.
            world
                .repo
                .push(&format!("attack-{at}"), &[("hook.sh", Some("echo fine > OUTPUT_STATUS_FILE\n"))])
                .await
                .unwrap();
            answer(&pull, 1).await;
            assert_eq!(hook_status(&pull).await, "fine", "{attack}");
            pull.close().unwrap();
            answer(&pull, 2).await;
        }
        world.nothing_was_touched();
        world.server.terminate();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_a_status_text_is_masked_also_where_the_text_is_cut() {
    let world = World::start(None, &with_hook()).await;
    for (at, before) in [0, 120].into_iter().enumerate() {
        let script = format!(
            "printf '%{before}s' '' | tr ' ' x > OUTPUT_STATUS_FILE; cat @OURS@/secret >> OUTPUT_STATUS_FILE\n"
        );
        let pull = world.open(&format!("shown-{at}"), "hook.sh", &script).await;
        answer(&pull, 0).await;
        let text = hook_status(&pull).await;
        let token = world.token();
        assert!(before > 0 || text.contains("<redacted>"), "{text}");
        assert!(!text.contains(&token[..12]), "{text}");
        pull.close().unwrap();
        answer(&pull, 1).await;
    }
    world.server.terminate();
}

/// Puts pipes in all places that the server reads after `init`, and at the next push.
const PIPES: &str = "if [ \"$1\" = init ]; then
    mkdir -p .terraform
    mkdir -p sub/.git
    for file in .terraform/environment .terraform/tidelock-generated-lock .terraform.lock.hcl ../.git/HEAD.new ../.git/config.new \\
        ../.git/objects/info/alternates .gitattributes ../.gitattributes .gitignore sub/.git/HEAD; do rm -rf $file; mkfifo $file; done
    touch main.tf stub.sh
fi
if [ \"$1\" = apply ]; then mkfifo errored.tfstate; exit 1; fi
";

#[tokio::test(flavor = "multi_thread")]
async fn no_pipe_that_a_step_leaves_is_waited_for() {
    for user in users("no_pipe_that_a_step_leaves_is_waited_for") {
        let world = World::start(user, "{}").await;
        let pull = world.open("pipes", "a/stub.sh", PIPES).await;
        let said = answer(&pull, 0).await;
        assert!(said.body.contains("1 to add"), "{}", said.body);
        pull.push(&[("a/other.tf", Some(CODE))]).await.unwrap();
        let said = answer(&pull, 1).await;
        assert!(said.body.contains("1 to add"), "{}", said.body);
        pull.comment("alice", "atlantis apply").unwrap();
        let said = answer(&pull, 2).await;
        assert_eq!(marker(&said.body)["results"][0]["outcome"], "error", "{}", said.body);
        assert!(!said.body.contains("errored.tfstate`. It is kept"), "{}", said.body);
        pull.close().unwrap();
        answer(&pull, 3).await;
        world.server.terminate();
    }
}

/// Makes links to an endless file, and such files.
const ENDLESS: &str = "if [ \"$1\" = init ]; then
    mkdir -p .terraform
    ln -sf @OURS@/huge .terraform/environment
    ln -sf @OURS@/huge .terraform/tidelock-generated-lock
    rm -f .terraform.lock.hcl; truncate -s 1G .terraform.lock.hcl
fi
";

#[tokio::test(flavor = "multi_thread")]
async fn files_without_end_take_no_memory() {
    for user in users("files_without_end_take_no_memory") {
        let world = World::start(user, "{}").await;
        let pull = world.open("endless", "a/stub.sh", ENDLESS).await;
        for at in 0..2 {
            let said = answer(&pull, at).await;
            assert!(said.body.contains("1 to add"), "{}", said.body);
            if at == 0 {
                pull.comment("alice", "atlantis plan").unwrap();
            }
        }
        assert!(world.most_resident() < MAX_RESIDENT, "{} KiB", world.most_resident());
        world.server.terminate();
    }
}

/// Links files that the server writes in `.git` to files of its own.
const LINKS: &str = "cd .. || exit 1
for name in HEAD config objects/info/alternates info/sparse-checkout; do ln -sf @OURS@/file .git/$name.new; done
rm -rf .git/refs/remotes/origin .git/index .git/index.lock
ln -s @OURS@/refs .git/refs/remotes/origin
ln -s @OURS@/file .git/index
ln -s @OURS@/file .git/index.lock
";

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_writes_into_a_tree_goes_through_no_link() {
    for user in users("what_the_server_writes_into_a_tree_goes_through_no_link") {
        let world = World::start(user, &with_step(&world_script("links.sh"), "true")).await;
        let pull = world.open("links", "a/links.sh", LINKS).await;
        let said = answer(&pull, 0).await;
        assert!(said.body.contains("1 to add"), "{}", said.body);
        for (push, text) in
            [(1, "cd .. && rm -rf .git && ln -s @OURS@/dir .git\n"), (2, "git rev-parse HEAD origin/main\n")]
        {
            let text = world.fill(text);
            let head = pull.push(&[("a/links.sh", Some(&text))]).await.unwrap();
            let said = answer(&pull, push).await;
            assert!(said.body.contains("1 to add"), "{}", said.body);
            assert!(push < 2 || said.body.contains(&head), "the tree's own git works again: {}", said.body);
            world.nothing_was_touched();
        }
        world.server.terminate();
    }
}

fn world_script(name: &str) -> String {
    format!("sh ./{name}")
}

/// Replaces the project's directory with a link to the server's.
const SWAP: &str = "cd .. && mv a a.away && ln -s @OURS@/dir a";

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_was_swapped_for_a_link_is_neither_read_nor_emptied() {
    for user in users("a_directory_that_was_swapped_for_a_link_is_neither_read_nor_emptied") {
        let world = World::start(user, &with_step(&world_script("plan.sh"), &world_script("apply.sh"))).await;
        let (swap, fail) = (world.fill(SWAP), world.fill(&format!("{SWAP}; exit 1")));
        // In the plan, after which the server keeps the plan file.
        let pull = world.open("swap-plan", "a/plan.sh", &swap).await;
        let said = answer(&pull, 0).await;
        assert_eq!(marker(&said.body)["results"][0]["outcome"], "error", "{}", said.body);
        let kept = std::fs::read_dir(world.dir.path().join("data/plans")).unwrap().count();
        assert_eq!(kept, 0, "a file of the server's was taken for the plan");
        // In the apply, after which the server removes the plan file and looks for a state that could not be saved.
        std::fs::write(world.ours("dir/errored.tfstate"), "precious").unwrap();
        let changes = [("a/main.tf", Some(CODE)), ("a/plan.sh", Some("true")), ("a/apply.sh", Some(fail.as_str()))];
        let pull = world.repo.open_pull("swap-apply", "alice", "x", &changes, OpenOptions::default()).await.unwrap();
        answer(&pull, 0).await;
        pull.comment("alice", "atlantis apply").unwrap();
        answer(&pull, 1).await;
        assert_eq!(std::fs::read_dir(world.dir.path().join("data/errored")).unwrap().count(), 0);
        std::fs::remove_file(world.ours("dir/errored.tfstate")).unwrap();
        pull.close().unwrap();
        answer(&pull, 2).await;
        gone(&trees(&world, 2)).await;
        world.nothing_was_touched();
        world.server.terminate();
    }
}

/// Returns the directory with the trees of a pull request.
fn trees(world: &World, number: u64) -> PathBuf {
    world.dir.path().join(format!("data/repos/acme/infra/{number}"))
}

/// Waits until it is removed.
async fn gone(path: &Path) {
    let until = Instant::now() + LIMIT;
    while path.exists() {
        assert!(Instant::now() < until, "{} is not removed", path.display());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Nests directories deeper than a process may have open files, and deeper than a path may be long.
const NEST: &str = "perl -e 'for (1..3000) { mkdir \"d\" and chdir \"d\" or die }'";

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_any_depth_can_be_moved_and_removed() {
    for user in users("a_tree_of_any_depth_can_be_moved_and_removed") {
        let world = World::start(user, &with_step(&world_script("nest.sh"), "true")).await;
        let pull = world.open("nested", "a/nest.sh", NEST).await;
        let said = answer(&pull, 0).await;
        assert!(said.body.contains("1 to add"), "{}", said.body);
        pull.push(&[("a/nest.sh", Some("true"))]).await.unwrap();
        let said = answer(&pull, 1).await;
        assert!(said.body.contains("1 to add"), "{}", said.body);
        pull.close().unwrap();
        answer(&pull, 2).await;
        gone(&trees(&world, 1)).await;
        world.server.terminate();
    }
}
