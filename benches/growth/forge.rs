//! The forge, the stand-in for Terraform, and the server of a measure.

use crate::server::Server;
use anyhow::{Result, ensure};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidelock_forge::{Forge, ForgeOptions, OpenOptions, Repo};

const LIMIT: Duration = Duration::from_secs(60);

/// Prints what Terraform prints and writes the plan file, in about 3 ms.
const TERRAFORM: &str = r#"#!/bin/sh
case "$1" in
version) printf 'Terraform v1.11.4\non linux_amd64\n' ;;
init) printf 'Terraform has been successfully initialized!\n' ;;
plan)
  previous=
  for argument in "$@"; do
    case "$argument" in -out=*) out=${argument#-out=} ;; esac
    [ "$previous" = -out ] && out=$argument
    previous=$argument
  done
  head -c 4096 /dev/urandom > "$out"
  printf '  # terraform_data.this will be created\n  + resource "terraform_data" "this" {\n      + id = (known after apply)\n    }\n\nPlan: 1 to add, 0 to change, 0 to destroy.\n' ;;
*) printf 'Apply complete! Resources: 1 added, 0 changed, 0 destroyed.\n' ;;
esac
"#;

/// A forge and the folders of a server, removed at the end.
pub(crate) struct Ground {
    pub(crate) forge: Forge,
    dir: TempDir,
}

impl Ground {
    pub(crate) async fn new() -> Result<Ground> {
        let dir = tempfile::tempdir()?;
        let tools = dir.path().join("tools");
        std::fs::create_dir(&tools)?;
        let terraform = tools.join("terraform");
        std::fs::write(&terraform, TERRAFORM)?;
        std::fs::set_permissions(&terraform, std::fs::Permissions::from_mode(0o755))?;
        let forge = Forge::start(ForgeOptions { dir: dir.path().join("forge"), port: 0 }).await?;
        Ok(Ground { forge, dir })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the folder of the bucket.
    pub(crate) fn bucket(&self) -> PathBuf {
        self.dir.path().join("bucket")
    }

    /// Starts a server that leads and gets the forge's webhooks; its disk is what was left of the last one with the same `disk`.
    pub(crate) async fn server(&self, disk: &str, extra: &[&str]) -> Result<Server> {
        let mut flags = vec![format!("--bucket=file://{}", self.bucket().display())];
        flags.extend(extra.iter().map(|flag| (*flag).to_owned()));
        let tools = self.dir.path().join("tools");
        let server = Server::start_with_tools(&self.forge, &self.dir.path().join(disk), &flags, Some(&tools)).await?;
        self.forge.set_webhook(&format!("http://{}/events", server.address));
        Ok(server)
    }
}

/// Opens a pull request with this text of `main.tf`, and returns the time until its plan's comment. Closes it again.
pub(crate) async fn planned(repo: &Repo, branch: &str, text: &str) -> Result<Duration> {
    let began = Instant::now();
    let pull = repo.open_pull(branch, "alice", "A change", &[("main.tf", Some(text))], OpenOptions::default()).await?;
    let comment = pull.wait_for_comment(0, LIMIT).await?;
    let took = began.elapsed();
    ensure!(comment.body.contains("1 to add"), "not planned: {}", comment.body);
    pull.close()?;
    pull.wait_for_comment(1, LIMIT).await?;
    Ok(took)
}
