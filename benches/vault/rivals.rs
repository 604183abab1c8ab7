//! Tools that copy a directory into a bucket, pointed at the double.

use crate::place::BUCKET;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tidelock_storage_double::StorageDouble;

/// Returns the program that a variable names, or that is on the path.
pub(crate) fn tool(variable: &str, name: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name));
    named.into_iter().chain(found).find(|path| path.is_file())
}

/// Links the same files under other names, without a copy.
pub(crate) fn link(from: &Path, to: &Path, folders: &[&str]) -> Result<()> {
    for folder in folders {
        std::fs::create_dir_all(to.join(folder))?;
        for entry in std::fs::read_dir(from.join(folder))? {
            let entry = entry?;
            std::fs::hard_link(entry.path(), to.join(folder).join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Runs `rclone sync`. Returns the time.
pub(crate) async fn rclone(rclone: &Path, source: &Path, double: &StorageDouble, transfers: u32) -> Result<Duration> {
    let mut command = Command::new(rclone);
    command.arg("sync").arg(source).arg(format!(":gcs:{BUCKET}/rival"));
    command.args(["--gcs-anonymous", "--gcs-no-check-bucket", &format!("--transfers={transfers}")]);
    command.env("RCLONE_CONFIG", "/dev/null");
    command.env("RCLONE_GCS_ENDPOINT", format!("{}/storage/v1/", double.endpoint()));
    time(command).await
}

/// Runs `gsutil -m rsync`, which speaks TLS only. Returns the time.
pub(crate) async fn gsutil(gsutil: &Path, source: &Path, double: &StorageDouble) -> Result<Duration> {
    let home = tempfile::tempdir()?;
    let endpoint = double.endpoint();
    let port = endpoint.rsplit(':').next().unwrap_or_default();
    let boto = home.path().join("boto.cfg");
    let text = format!(
        "[Credentials]\ngs_json_host=127.0.0.1\ngs_json_port={port}\ngs_host=127.0.0.1\ngs_port={port}\n\
         [Boto]\nhttps_validate_certificates=False\n[GSUtil]\nprefer_api=json\nsoftware_update_check_period=0\n\
         disable_analytics_prompt=True\nstate_dir={}\n",
        home.path().display()
    );
    std::fs::write(&boto, text)?;
    let mut command = Command::new(gsutil);
    command.args(["-q", "-m", "rsync", "-r", "-d"]).arg(source).arg(format!("gs://{BUCKET}/rival"));
    command.env("BOTO_CONFIG", &boto).env("HOME", home.path());
    time(command).await
}

async fn time(mut command: Command) -> Result<Duration> {
    command.stdin(Stdio::null());
    let work = move || -> Result<Duration> {
        let began = Instant::now();
        let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
        let took = began.elapsed();
        ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(took)
    };
    tokio::task::spawn_blocking(work).await?
}
