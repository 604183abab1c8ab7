//! `tidelock vault verify`: reads all kept objects, checks every hash, and restores into a temporary directory.

use super::{OutputFormat, Report, progress};
use crate::domain::size;
use crate::store::Store;
use crate::vault::chain::Chain;
use crate::vault::{Vault, VaultError};
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt::Write;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Interval between two progress lines, in bytes.
const PROGRESS: u64 = 256 << 20;

/// Findings of `verify`.
#[derive(Serialize)]
struct VerifyReport {
    location: String,
    well: bool,
    stretches: Vec<Stretch>,
    /// First and last state of each range, according to the object names.
    restorable: Vec<(u64, u64)>,
    /// The newest state, or the requested one.
    restored: Option<Restored>,
    problems: Vec<String>,
}

/// A base and the journal after it, or the journal from its beginning, in which every hash is right.
#[derive(Serialize)]
struct Stretch {
    /// Its base; 0 if it has none.
    base: u64,
    /// Its last state.
    to: u64,
    /// Size of the contents.
    bytes: u64,
}

/// A state that was restored.
#[derive(Serialize)]
struct Restored {
    seq: u64,
    /// Hash of its last journal object.
    hash: String,
    /// Digest of the restored database, which has the hashes of all kept files in it.
    digest: String,
}

/// Verifies everything, or one state.
pub(super) async fn run(vault: &Vault, at: Option<u64>, format: OutputFormat) -> Result<Report> {
    let mut findings = VerifyReport {
        location: vault.bucket.location().to_owned(),
        well: true,
        stretches: Vec::new(),
        restorable: Vec::new(),
        restored: None,
        problems: Vec::new(),
    };
    let inventory = vault.inventory().await?;
    findings.restorable.clone_from(&inventory.restorable);
    if inventory.is_empty() {
        let location = &findings.location;
        findings.problems.push(format!("{location} holds no state: no server has led here yet, or --bucket is wrong"));
    } else {
        // The newest state first: it matters most.
        if let Some(chain) = stretch(vault, at, &mut findings).await? {
            match restore(&chain).await {
                Ok(restored) => findings.restored = Some(restored),
                Err(error) => findings.problems.push(format!("state {}: {error:#}", chain.position.seq)),
            }
        }
        let older = if at.is_none() { inventory.older_stretches() } else { Vec::new() };
        for end in older.into_iter().rev() {
            stretch(vault, Some(end), &mut findings).await?;
        }
    }
    findings.well = findings.problems.is_empty();
    let text = match format {
        OutputFormat::Json => serde_json::to_string_pretty(&findings)? + "\n",
        OutputFormat::Text => render(&findings)?,
    };
    Ok(Report { text, well: findings.well })
}

/// Verifies a state and all objects that it needs.
async fn stretch(vault: &Vault, at: Option<u64>, findings: &mut VerifyReport) -> Result<Option<Chain>> {
    let said = AtomicU64::new(0);
    let bytes = AtomicU64::new(0);
    let tell = |now: u64| {
        bytes.store(now, Ordering::Relaxed);
        if now >= said.load(Ordering::Relaxed) + PROGRESS {
            said.store(now, Ordering::Relaxed);
            progress(&format!("{} read", size(now)));
        }
    };
    let read = async {
        let chain = vault.read(at).await?;
        chain.verify(&tell).await?;
        Ok(chain)
    };
    let error: VaultError = match read.await {
        Ok(chain) => {
            let bytes = bytes.load(Ordering::Relaxed);
            findings.stretches.push(Stretch { base: chain.base, to: chain.position.seq, bytes });
            return Ok(Some(chain));
        }
        Err(error) => error,
    };
    // A leader may have deleted it meanwhile because it was old.
    let kept = vault.inventory().await?.restorable;
    let is_kept = at.is_none_or(|at| kept.iter().any(|(from, to)| (*from..=*to).contains(&at)));
    if is_kept || findings.stretches.is_empty() {
        findings.problems.push(error.to_string());
    }
    Ok(None)
}

/// A temporary directory that is removed at the end.
struct TemporaryDirectory(PathBuf);

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a temporary directory could not be removed");
        }
    }
}

async fn restore(chain: &Chain) -> Result<Restored> {
    let path = std::env::temp_dir().join(format!("tidelock-verify-{}", crate::execute::random_id()));
    DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .with_context(|| format!("cannot make {} (TMPDIR names another place)", path.display()))?;
    let scratch = TemporaryDirectory(path);
    let digest = Store::export(&scratch.0, chain).await?;
    tokio::task::spawn_blocking(move || drop(scratch)).await?;
    let position = chain.position;
    Ok(Restored { seq: position.seq, hash: position.hash.to_string(), digest: digest.to_string() })
}

fn render(findings: &VerifyReport) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for Stretch { base, to, bytes } in &findings.stretches {
        let from = if *base == 0 { "from the beginning".to_owned() } else { format!("from base {base}") };
        writeln!(text, "ok  {from} to state {to}: every hash is right ({})", size(*bytes))?;
    }
    if let Some(Restored { seq, hash, digest }) = &findings.restored {
        writeln!(text, "ok  state {seq} was restored\n    journal   {hash}\n    database  {digest}")?;
    }
    for problem in &findings.problems {
        writeln!(text, "WRONG  {problem}")?;
    }
    let states = super::list::states(&findings.restorable);
    match findings.problems.len() {
        0 => writeln!(text, "{}: all is well; states {states} can be restored", findings.location)?,
        count => writeln!(text, "{}: {count} problem{}", findings.location, if count == 1 { "" } else { "s" })?,
    }
    Ok(text)
}
