//! Commits that the forge's own API cannot make: links, and names that are not UTF-8.

use super::Ctx;
use std::ffi::OsStr;
use std::path::Path;

impl Ctx {
    /// Pushes a commit with these symbolic links to a branch; a missing branch is made from `main`.
    pub(crate) async fn push_links(&self, branch: &str, links: &[(&str, &str)]) {
        self.push_made(branch, |dir| {
            for (path, target) in links {
                let path = dir.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::os::unix::fs::symlink(target, path).unwrap();
            }
        })
        .await;
    }

    /// Pushes a commit with this file to a branch.
    pub(crate) async fn push_raw(&self, branch: &str, path: &OsStr, text: &str) {
        self.push_made(branch, |dir| {
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, self.fill(text)).unwrap();
        })
        .await;
    }

    async fn push_made(&self, branch: &str, make: impl FnOnce(&Path)) {
        let dir = self.tmp.join(format!("clone-{branch}"));
        let git = async |args: &[&str]| {
            let mut command = tokio::process::Command::new("git");
            command.args(["-c", "user.name=alice", "-c", "user.email=alice@example.com"]).args(args);
            let output = command.current_dir(if dir.exists() { &dir } else { &self.tmp }).output().await.unwrap();
            assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        git(&["clone", "-q", &self.repo.clone_url_for("alice").unwrap(), &dir.to_string_lossy()]).await;
        git(&["checkout", "-q", "-B", branch]).await;
        make(&dir);
        git(&["add", "-A"]).await;
        git(&["commit", "-q", "-m", "Made"]).await;
        git(&["push", "-q", "origin", branch]).await;
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
