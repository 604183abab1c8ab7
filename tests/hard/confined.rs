//! Steps confined by Landlock: attacks of one pull request's steps on the server and other pull requests fail, and ordinary workflows
//! succeed. As root, with another user for steps, and as an unprivileged user.

use crate::isolation::{NOBODY, World};
use crate::place::{LIMIT, answer};
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const CONFINED: &str = "--step-confinement=auto";
/// Users of the server and its steps, as its user and flags.
const USERS: [(Option<u32>, &[&str]); 4] = [
    (None, &[CONFINED]),
    (None, &[CONFINED, "--run-as-user=65534"]),
    (None, &[CONFINED, "--run-as-user=10000:10063"]),
    (Some(NOBODY), &[CONFINED]),
];

/// Tries to reach whatever is not the step's own, and names what it reached.
const ATTACKS: &str = r#"
if [ "$1" = plan ]; then python3 -c '
import os, signal
base, server = "@DIR@", int("@SERVER@")
data, mine = base + "/data", os.path.dirname(os.getcwd())
def broken(what): open(base + "/eyes/broken", "a").write(what + "\n")
def tries(what, act):
    try: act()
    except OSError: return
    broken(what)
def opens(path):
    tries("read " + path, lambda: os.close(os.open(path, os.O_RDONLY)))
    tries("write " + path, lambda: os.close(os.open(path, os.O_WRONLY)))
own = (mine, os.environ["HOME"], os.environ.get("TMPDIR", base + "/none"), data + "/plugin-cache", data + "/bin", data + "/mirrors")
named = [line.strip() for line in open(base + "/eyes/names")]
named += [data + "/tidelock.db", data + "/vault", base + "/bucket", data + "/plans", data + "/sealed", data + "/logs", data + "/repos/acme/infra/1/default/a/main.tf"]
for path in named: opens(path)
for top, folders, files in os.walk(data):
    folders[:] = [name for name in folders if not (top + "/" + name).startswith(own)]
    for name in files: opens(top + "/" + name)
other = data + "/repos/acme/infra/1/default/a"
tries("make a file in another tree", lambda: os.close(os.open(other + "/evil.tf", os.O_WRONLY | os.O_CREAT)))
tries("make a link in another tree", lambda: os.symlink("/", other + "/evil"))
tries("make a directory in the data directory", lambda: os.mkdir(data + "/evil"))
tries("rename the database", lambda: os.rename(data + "/tidelock.db", mine + "/db"))
tries("link the database", lambda: os.link(data + "/tidelock.db", mine + "/db"))
tries("configure git for the server", lambda: os.close(os.open(base + "/home/.gitconfig", os.O_WRONLY | os.O_CREAT)))
tries("replace Terraform", lambda: os.close(os.open(base + "/stub-bin/terraform", os.O_WRONLY)))
tries("signal the server", lambda: os.kill(server, 0))
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if os.getpgid(int(pid)) == os.getpgrp(): continue
    except OSError: continue
    place, who = "/proc/" + pid + "/", " of " + open("/proc/" + pid + "/comm").read().strip()
    for part in ("environ", "maps"):
        try:
            # Threads of the kernel have none.
            if open(place + part, "rb").read(1): broken(part + who)
        except OSError: pass
    for part in ("cwd", "root"): tries(part + who, lambda: os.listdir(place + part))
    tries("mem" + who, lambda: os.close(os.open(place + "mem", os.O_RDWR)))
    for fd in range(300): tries("fd" + who, lambda: os.readlink(place + "fd/" + str(fd)))
' 2>> @DIR@/eyes/errors; echo > @DIR@/eyes/attacked; fi
"#;

/// Waits in its apply until it was attacked, and publishes its paths.
const ATTACKED: &str = r#"
if [ "$1" = apply ]; then
    echo precious > "$HOME/precious"; echo precious > "$TMPDIR/precious"
    printf '%s\n' "$HOME/precious" "$TMPDIR/precious" "$HOME" "$TMPDIR" > @DIR@/eyes/names.new
    mv @DIR@/eyes/names.new @DIR@/eyes/names
    until [ -e @DIR@/eyes/attacked ]; do sleep 0.05; done
    cat "$HOME/precious" "$TMPDIR/precious" >> @DIR@/eyes/kept
fi
"#;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Starts a world in which the server's home directory is its own.
async fn closed(user: Option<u32>, flags: &[&str]) -> World {
    let close = |dir: &Path| std::fs::set_permissions(dir.join("home"), Permissions::from_mode(0o755)).unwrap();
    World::prepared(user, flags, close).await
}

async fn wait_for(path: &Path) {
    let until = Instant::now() + LIMIT;
    while !path.exists() {
        assert!(Instant::now() < until, "there is no {}", path.display());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the words of `/status` on steps, and writes them to the log of the tests.
async fn protection(world: &World) -> String {
    let status = reqwest::get(format!("{}/status", world.server.url)).await.unwrap().text().await.unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let steps = status["steps"].as_str().unwrap().to_owned();
    std::io::stderr().write_all(format!("steps are {steps}\n").as_bytes()).unwrap();
    steps
}

/// Has one pull request attack while another one is applied. Returns what it has reached.
async fn attacked(world: &World) -> String {
    let victim = world.open("victim", ATTACKED).await;
    answer(&victim, 0).await;
    victim.comment("bob", "atlantis apply").unwrap();
    wait_for(&world.eyes("names")).await;
    let said = answer(&world.open_in("b", "attacker", ATTACKS).await, 0).await;
    assert!(said.body.contains("1 to add"), "{}", said.body);
    wait_for(&world.eyes("attacked")).await;
    assert!(answer(&victim, 1).await.body.contains("1 added"));
    assert_eq!(read(&world.eyes("errors")), "");
    read(&world.eyes("broken"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confined_step_reaches_nothing_of_others() {
    for (user, flags) in USERS {
        let world = closed(user, flags).await;
        if protection(&world).await.starts_with("not confined") {
            return;
        }
        assert_eq!(attacked(&world).await, "", "{user:?} {flags:?}");
        assert_eq!(read(&world.eyes("kept")), "precious\nprecious\n");
        world.server.terminate();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_with_a_user_of_its_own_reaches_nothing_of_others() {
    let world = closed(None, &["--run-as-user=10000:10063"]).await;
    assert_eq!(attacked(&world).await, "");
    assert_eq!(read(&world.eyes("kept")), "precious\nprecious\n");
    world.server.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_confinement_the_same_step_reaches_much() {
    let world = World::start(Some(NOBODY), &[]).await;
    assert_eq!(protection(&world).await, "not confined: --step-confinement is off");
    let broken = attacked(&world).await;
    for reached in
        ["tidelock.db", "make a file in another tree", "signal the server", "environ of terraform", "/precious"]
    {
        assert!(broken.contains(reached), "{reached}: {broken}");
    }
    world.server.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_refused_a_file_names_the_setting() {
    let world = World::start(None, &[CONFINED, "--step-writable=none"]).await;
    if protection(&world).await.starts_with("not confined") {
        return;
    }
    let script = "if [ \"$1\" = plan ]; then echo > @DIR@/eyes/file || exit 1; fi\n";
    let said = answer(&world.open("refused", script).await, 0).await;
    assert!(said.body.contains("Permission denied") && said.body.contains("`--step-writable`"), "{}", said.body);
    world.server.terminate();
}

/// Ordinary work of steps; each line that it writes is one of the expected ones.
const ORDINARY: &str = r#"
if [ "$1" = init ]; then echo installed > "$TF_PLUGIN_CACHE_DIR/installed"; fi
if [ "$1" = plan ]; then {
    git config --global tidelock.test
    git log -1 --format=%an
    cat "$HOME/.aws/credentials" "$HOME/.terraform.d/plugins/linked" "$HOME/other/linked"
    echo changed > "$HOME/.aws/credentials" && cat "$HOME/.aws/credentials"
    echo cached > "$HOME/.cache-of-mine" && cat "$HOME/.cache-of-mine"
    cat "$(mktemp)" && echo temporary
    ssh-agent sh -c 'ssh-add -q "$HOME/.ssh/key" && ssh-add -l' | cut -d' ' -f3
    echo made > made && mv made ../moved && cat ../moved
    touch @DIR@/outside/file && echo outside
    touch @DIR@/other/file || echo not there
    echo fine > /dev/null && cat "$TF_PLUGIN_CACHE_DIR/installed"
    touch "$TF_PLUGIN_CACHE_DIR/poison" || echo no poison
    printf '%s' "$HOME" > @DIR@/outside/home
} > said 2> errors; cat said >> @DIR@/outside/said; cat errors >> @DIR@/outside/errors; fi
"#;

#[tokio::test(flavor = "multi_thread")]
async fn ordinary_steps_work_in_their_bounds() {
    for (user, flags) in USERS {
        let hook = r#"--repo-config-json={"repos":[{"id":"/.*/","pre_workflow_hooks":[{"run":"git config --global tidelock.test hooked"}]}]}"#;
        let mut flags = flags.to_vec();
        flags.extend([hook, "--step-writable=@DIR@/outside", "--step-home=@DIR@/seed"]);
        let world = World::prepared(user, &flags, |dir| {
            std::fs::create_dir_all(dir.join("seed/.ssh")).unwrap();
            let key = ["-q", "-t", "ed25519", "-N", "", "-C", "of-the-seed", "-f", "seed/.ssh/key"];
            assert!(Command::new("ssh-keygen").args(key).current_dir(dir).status().unwrap().success());
            std::fs::set_permissions(dir.join("seed/.ssh/key"), Permissions::from_mode(0o644)).unwrap();
            for (path, text) in [
                ("home/.aws/credentials", "server's\n"),
                ("seed/.aws/credentials", "seed's\n"),
                ("seed/.terraform.d/plugins/linked", "plugin\n"),
                ("seed/other/linked", "other\n"),
                ("outside/said", ""),
                ("other/said", ""),
            ] {
                let path = dir.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, text).unwrap();
                for path in path.ancestors().take_while(|path| *path != dir) {
                    let mode = if path.is_dir() { 0o777 } else { 0o666 };
                    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
                }
            }
        })
        .await;
        if protection(&world).await.starts_with("not confined") {
            return;
        }
        let said = answer(&world.open("ordinary", ORDINARY).await, 0).await;
        assert!(said.body.contains("1 to add"), "{}", said.body);
        let outside = world.dir.path().join("outside");
        let errors = read(&outside.join("errors"));
        let expected = "hooked\nalice\nseed's\nplugin\nother\nchanged\ncached\ntemporary\nof-the-seed\nmade\noutside\nnot there\ninstalled\nno poison\n";
        assert_eq!(read(&outside.join("said")), expected, "{user:?} {flags:?}: {errors}");
        assert_eq!(read(&world.dir.path().join("seed/.aws/credentials")), "seed's\n");
        // The home directory is deleted with the run.
        let (home, until) = (read(&outside.join("home")), Instant::now() + LIMIT);
        while Path::new(&home).exists() {
            assert!(Instant::now() < until, "{home} is still there");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        world.server.terminate();
    }
}
