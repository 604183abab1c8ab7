//! The double works with the sync tools that benchmarks compare the vault to.

use super::*;
use std::path::Path;
use std::process::{Command, Output};

/// Command for a program: the one that the variable names, otherwise `name`.
fn tool(variable: &str, name: &str) -> Command {
    Command::new(std::env::var(variable).unwrap_or_else(|_| name.to_owned()))
}

async fn run(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().expect("the tool is there")).await.unwrap()
}

/// Writes 30 small files in three folders, and one that is uploaded in chunks.
fn fill(dir: &Path) {
    for folder in ["a", "b", "c"] {
        std::fs::create_dir(dir.join(folder)).unwrap();
        for number in 0..10 {
            std::fs::write(dir.join(folder).join(format!("file {number}+x.txt")), format!("{folder}{number}")).unwrap();
        }
    }
    std::fs::write(dir.join("large"), vec![b'x'; 20 << 20]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs rclone (RCLONE)"]
async fn rclone_syncs_and_finds_nothing_to_do_again() {
    let (double, _) = open(short()).await;
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let sync = async |from: &str, to: &str| {
        let mut command = tool("RCLONE", "rclone");
        command.args(["sync", from, to, "--gcs-anonymous", "--gcs-no-check-bucket", "--transfers", "8", "-v"]);
        command.env("RCLONE_CONFIG", "/dev/null");
        command.env("RCLONE_GCS_ENDPOINT", format!("{}/storage/v1/", double.endpoint()));
        let output = run(command).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let source = dir.path().to_str().unwrap().to_owned();
    sync(&source, ":gcs:acme-tidelock/sync").await;
    assert_eq!(double.names(BUCKET).len(), 31);
    println!("first: {:?}", double.counts());
    double.reset();
    sync(&source, ":gcs:acme-tidelock/sync").await;
    println!("nothing changed: {:?}", double.counts());
    assert!(!double.counts().keys().any(|operation| operation.writes()));
    std::fs::remove_file(dir.path().join("a/file 1+x.txt")).unwrap();
    sync(&source, ":gcs:acme-tidelock/sync").await;
    assert_eq!(double.counts()[&Operation::Delete], 1);
    let back = tempfile::tempdir().unwrap();
    sync(":gcs:acme-tidelock/sync", back.path().to_str().unwrap()).await;
    assert_eq!(std::fs::read(back.path().join("c/file 9+x.txt")).unwrap(), b"c9");
    assert_eq!(std::fs::metadata(back.path().join("large")).unwrap().len(), 20 << 20);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs gsutil (GSUTIL)"]
async fn gsutil_syncs_and_finds_nothing_to_do_again() {
    let double = StorageDouble::start_tls().await.unwrap();
    double.bucket(BUCKET, Settings::default());
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    fill(&source);
    let port = double.endpoint().rsplit(':').next().unwrap().to_owned();
    let boto = dir.path().join("boto.cfg");
    let text = format!(
        "[Credentials]\ngs_json_host=127.0.0.1\ngs_json_port={port}\ngs_host=127.0.0.1\ngs_port={port}\n\
         [Boto]\nhttps_validate_certificates=False\n[GSUtil]\nprefer_api=json\nsoftware_update_check_period=0\n\
         disable_analytics_prompt=True\nstate_dir={}\n",
        dir.path().display()
    );
    std::fs::write(&boto, text).unwrap();
    let sync = async || {
        let mut command = tool("GSUTIL", "gsutil");
        command.args(["-q", "-m", "rsync", "-r", "-d"]).arg(&source).arg("gs://acme-tidelock/sync");
        command.env("BOTO_CONFIG", &boto).env("HOME", dir.path());
        let output = run(command).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    sync().await;
    assert_eq!(double.names(BUCKET).len(), 31);
    println!("first: {:?}", double.counts());
    double.reset();
    sync().await;
    println!("nothing changed: {:?}", double.counts());
    assert!(!double.counts().keys().any(|operation| operation.writes()));
}
