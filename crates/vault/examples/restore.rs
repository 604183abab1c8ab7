//! A server commits and is killed; the next one restores its commits. The bucket is a directory.
//!
//! `cargo run -p tidelock-vault --example restore`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tidelock_vault::directory::Directory;
use tidelock_vault::lease::Identity;
use tidelock_vault::{Changes, Vault};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(dir) = std::env::args().nth(1) {
        return commit_and_die(Path::new(&dir)).await;
    }
    let dir = tempfile::tempdir()?;
    let killed = Command::new(std::env::current_exe()?).arg(dir.path()).status()?;
    println!("the first server ended: {killed}");
    restore(dir.path()).await
}

/// Returns a server's access to the bucket. `nonce` identifies this process alone.
fn vault(dir: &Path, nonce: &str) -> Result<Vault, Box<dyn Error>> {
    let identity = Identity {
        nonce: nonce.into(),
        url: "http://127.0.0.1".into(),
        machine: "example".into(),
        version: "1".into(),
        fingerprint: "the same settings".into(),
        force: false,
    };
    Ok(Vault { identity, ..Vault::reader(Arc::new(Directory::open(dir)?)) })
}

async fn commit_and_die(dir: &Path) -> Result<(), Box<dyn Error>> {
    let vault = vault(dir, "first")?;
    let lease = vault.acquire().await?;
    let (leader, _) = vault.lead(lease).await?.ok_or("another server leads")?;
    let changes = Changes { schema: 1, rows: "invoice 17 is paid".into(), blobs: Vec::new() };
    let position = leader.commit(changes).await?;
    println!("commit {} is durable", position.seq);
    // Nothing is released and no destructor runs, as with `kill -9`.
    std::process::abort()
}

async fn restore(dir: &Path) -> Result<(), Box<dyn Error>> {
    let vault = vault(dir, "second")?;
    // The lease is free at once: the bucket knows that its holder's process has ended.
    let lease = vault.acquire().await?;
    let (leader, chain) = vault.lead(lease).await?.ok_or("another server leads")?;
    for commit in chain.rows().await? {
        println!("commit {}: {}", commit.seq, String::from_utf8_lossy(&commit.rows));
    }
    leader.release().await?;
    Ok(())
}
