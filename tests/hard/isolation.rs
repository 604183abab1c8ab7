//! Steps of one pull request against the server's git processes, which have the token: as root, and as an unprivileged user.

use crate::place::{Binary, CODE, answer, stub_dir};
use secrecy::ExposeSecret;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tidelock_forge::{Forge, ForgeOptions, OpenOptions, Pull, Repo};

/// The user of a server without privileges.
pub(crate) const NOBODY: u32 = 65_533;

/// A server in a process of its own, and the files of its steps.
pub(crate) struct World {
    pub(crate) forge: Forge,
    pub(crate) repo: Repo,
    pub(crate) server: Binary,
    pub(crate) dir: TempDir,
}

impl World {
    /// `user` is the server's; `flags` are further flags.
    pub(crate) async fn start(user: Option<u32>, flags: &[&str]) -> World {
        World::prepared(user, flags, |_| {}).await
    }

    /// The same after the directory of the world was prepared.
    pub(crate) async fn prepared(user: Option<u32>, flags: &[&str], prepare: impl FnOnce(&Path)) -> World {
        let dir = TempDir::new().unwrap();
        for (folder, mode) in [("", 0o755), ("data", 0o711), ("home", 0o777), ("eyes", 0o1777)] {
            let path = dir.path().join(folder);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            std::os::unix::fs::chown(&path, user, user).unwrap();
        }
        prepare(dir.path());
        let bin = stub_dir(dir.path());
        let forge = Forge::start(ForgeOptions { dir: dir.path().join("forge"), port: 0 }).await.unwrap();
        let flags: Vec<String> = flags.iter().map(|flag| flag.replace("@DIR@", dir.path().to_str().unwrap())).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let home = dir.path().join("home");
        let variables = [("HOME", home.to_str().unwrap())];
        let server = Binary::start_as(user, &variables, &forge, dir.path(), &flags, Some(&bin)).await;
        let repo = forge.create_repo("acme/infra", &[("README.md", "")]).await.unwrap();
        World { forge, repo, server, dir }
    }

    pub(crate) fn eyes(&self, name: &str) -> PathBuf {
        self.dir.path().join("eyes").join(name)
    }

    /// Returns the text with this world's names in it.
    pub(crate) fn fill(&self, text: &str) -> String {
        let (dir, pid) = (self.dir.path().to_string_lossy(), self.server.pid().to_string());
        text.replace("@DIR@", &dir).replace("@SERVER@", &pid)
    }

    /// Opens a pull request with a project in `a` and this script of its Terraform.
    pub(crate) async fn open(&self, branch: &str, script: &str) -> Pull {
        self.open_in("a", branch, script).await
    }

    /// The same in another directory.
    pub(crate) async fn open_in(&self, dir: &str, branch: &str, script: &str) -> Pull {
        let (script, [code, stub]) = (self.fill(script), ["main.tf", "stub.sh"].map(|file| format!("{dir}/{file}")));
        let changes = [(code.as_str(), Some(CODE)), (stub.as_str(), Some(script.as_str()))];
        self.repo.open_pull(branch, "alice", branch, &changes, OpenOptions::default()).await.unwrap()
    }
}

/// Writes configuration to all places where git looks for some, and programs that read open files of their parents.
const CONFIGURES_GIT: &str = r#"
if [ "$1" = plan ]; then
    thief=@DIR@/eyes/thief.sh
    printf '%s\n' '#!/bin/sh' 'for up in $PPID $(cut -d" " -f4 /proc/$PPID/stat); do timeout 1 head -c 4096 /proc/$up/fd/3; done >> @DIR@/eyes/stolen 2>&1' \
        'echo ran $0 "$@" >> @DIR@/eyes/ran' 'case "$1" in filter) cat;; esac' > $thief
    chmod 755 $thief
    printf '%s\n' '[filter "x"]' "smudge = $thief filter" "clean = $thief filter" '[core]' "fsmonitor = $thief" "sshCommand = $thief" \
        "hooksPath = @DIR@/eyes/hooks" 'attributesFile = @DIR@/eyes/attributes' '[credential]' "helper = $thief" > @DIR@/eyes/config
    echo '* filter=x' > @DIR@/eyes/attributes
    mkdir -p @DIR@/eyes/hooks
    for hook in post-checkout reference-transaction post-index-change; do cp $thief @DIR@/eyes/hooks/$hook; cp $thief ../.git/hooks/$hook; done
    for home in @DIR@/home "$HOME"; do
        mkdir -p $home/.config/git
        cp @DIR@/eyes/config $home/.gitconfig
        cp @DIR@/eyes/config $home/.config/git/config
        cp @DIR@/eyes/attributes $home/.config/git/attributes
    done
    mkdir -p ../.git/info ../.git/hooks
    cat @DIR@/eyes/config >> ../.git/config
    cp @DIR@/eyes/attributes ../.git/info/attributes
fi 2>> @DIR@/eyes/errors
"#;

#[tokio::test(flavor = "multi_thread")]
async fn git_of_the_server_runs_nothing_that_a_step_has_configured() {
    for user in [None, Some(NOBODY)] {
        let world = World::start(user, &[]).await;
        let pull = world.open("config", CONFIGURES_GIT).await;
        let said = answer(&pull, 0).await;
        assert!(said.body.contains("1 to add"), "{}", said.body);
        assert!(world.eyes("thief.sh").exists(), "the step configures nothing");
        pull.push(&[("a/other.tf", Some(CODE)), ("b.txt", Some("b"))]).await.unwrap();
        answer(&pull, 1).await;
        let other = world.open("other", "").await;
        answer(&other, 0).await;
        let ran = std::fs::read_to_string(world.eyes("ran")).unwrap_or_default();
        let stolen = std::fs::read(world.eyes("stolen")).unwrap_or_default();
        let token = world.forge.token().expose_secret().to_owned();
        assert!(!String::from_utf8_lossy(&stolen).contains(&token), "git's token was read: {ran}");
        assert_eq!(ran, "", "a program of a step ran under the server's git");
        world.server.terminate();
    }
}

/// Leaves processes behind in every way that a shell and Python know.
const SURVIVES: &str = r#"
daemon='
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
if sys.argv[1] == "hidden":
    import ctypes
    ctypes.CDLL(None).prctl(4, 0)
time.sleep(float(sys.argv[2]))'
if [ "$1" = plan ]; then pgrep -af 31557601.@SERVER@ >> @DIR@/eyes/left; echo looked >> @DIR@/eyes/looked; fi 2>> @DIR@/eyes/errors
case "$1" in
init|plan)
    sleep 31557601.@SERVER@ > /dev/null 2>&1 &
    (sleep 31557601.@SERVER@ &) > /dev/null 2>&1
    setsid sleep 31557601.@SERVER@ > /dev/null 2>&1 &
    env -i /usr/bin/setsid /bin/sleep 31557601.@SERVER@ > /dev/null 2>&1 &
    setsid sh -c 'trap "" HUP INT TERM; while :; do sleep 31557601.@SERVER@; done' > /dev/null 2>&1 &
    setsid sh -c 'sh -c "sleep 31557601.@SERVER@; :" & sh -c "sleep 31557601.@SERVER@; :"' > /dev/null 2>&1 &
    python3 -c "$daemon" plain 31557601.@SERVER@ > /dev/null 2>&1
    python3 -c "$daemon" hidden 31557601.@SERVER@ > /dev/null 2>&1
    setsid sleep 31557601.@SERVER@ &
    # They have begun when each of them is asleep.
    until [ "$(pgrep -cf 31557601.@SERVER@)" -ge 12 ]; do :; done
    ;;
esac 2>> @DIR@/eyes/errors
"#;

/// Returns processes of [`SURVIVES`], and the server's children that have ended and were not waited for.
fn left(server: u32) -> Vec<String> {
    let mut found = Vec::new();
    let argument = format!("31557601.{server}");
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let (command, stat) = (read("cmdline").replace('\0', " "), read("stat"));
        let of_stat: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let is_zombie = of_stat.first() == Some(&"Z") && of_stat.get(1) == Some(&server.to_string().as_str());
        if command.contains(&argument) || is_zombie {
            found.push(format!("{} {command}{stat}", entry.path().display()));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_step_starts_ends_before_the_job_goes_on() {
    for (user, flags) in [(None, &[][..]), (Some(NOBODY), &[]), (None, &["--run-as-user=65534:65534"])] {
        let world = World::start(user, flags).await;
        let pull = world.open("survive", SURVIVES).await;
        let said = answer(&pull, 0).await;
        assert!(said.body.contains("1 to add"), "{}", said.body);
        let errors = std::fs::read_to_string(world.eyes("errors")).unwrap_or_default();
        assert!(world.eyes("looked").exists(), "{errors}");
        assert_eq!(std::fs::read_to_string(world.eyes("left")).unwrap(), "", "{flags:?}: {errors}");
        assert_eq!(left(world.server.pid()), Vec::<String>::new(), "{user:?} {flags:?}");
        world.server.terminate();
    }
}
