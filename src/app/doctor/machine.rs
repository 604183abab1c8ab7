//! Checks this machine: the programs that the server calls, and the data directory.

use super::report::Findings;
use crate::app::services;
use crate::checkout::space::Space;
use crate::domain::size;
use crate::execute::random_id;
use crate::process::{Invocation, Protection, Redactor, find_on_path, run};
use crate::settings::Settings;
use crate::terraform::install::{Installer, ToolRequest};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const TOOLS: &str = "tools";
const DATA_DIR: &str = "data-dir";
const STEPS: &str = "steps";
/// Time limit for a program to print its version.
const VERSION_LIMIT: Duration = Duration::from_secs(20);
/// Limit of that output, in bytes.
const VERSION_OUTPUT: usize = 4 << 10;
/// Free space in bytes below which checkouts and providers of one project may not fit.
const LITTLE_SPACE: u64 = 2 << 30;
/// Free space in bytes below which nothing can be expected to work.
const NO_SPACE: u64 = 256 << 20;

pub(super) async fn check(settings: &Settings) -> Findings {
    let mut findings = Findings::default();
    let path = settings.child_env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
    let path = path.unwrap_or_default();
    match git(settings).await {
        Ok(version) => findings.fine(TOOLS, version),
        Err(error) => findings.fault(TOOLS, format!("{error:#}"), "install git on the server's PATH"),
    }
    // The doctor downloads nothing.
    let redactor = Redactor::new(settings.secrets.clone());
    let installer = Installer::new(services::without_downloads(settings, redactor));
    let default = settings.default_tf_distribution;
    for which in [default, default.other()] {
        let wanted = ToolRequest { distribution: Some(which), ..ToolRequest::default() };
        let found = installer.resolve(&wanted).await;
        let is_there = find_on_path(&path, Path::new(which.binary())).is_some();
        match found {
            Ok(tool) => findings.fine(TOOLS, format!("{} {} ({})", which.title(), tool.version, tool.path.display())),
            Err(_) if which != default && !is_there => {}
            Err(error) if which == default && !(settings.tf_download && settings.default_tf_version.is_some()) => {
                let mend = format!("install {} on the server's PATH, or set --default-tf-version", which.binary());
                findings.fault(TOOLS, format!("{error:#}"), &mend);
            }
            Err(_) if which == default => {
                let version = settings.default_tf_version.as_deref().unwrap_or_default();
                findings.unknown(TOOLS, format!("{} {version} is downloaded when it is needed", which.title()), "");
            }
            Err(error) => findings.warn(TOOLS, format!("{error:#}"), ""),
        }
    }
    match Protection::of_steps(settings.steps.confinement) {
        Ok(protection @ Protection::Landlock(_)) => findings.fine(STEPS, format!("{protection}")),
        Ok(protection) => {
            let mend = "remove --step-confinement=off and use Linux 6.12 or newer, or run the server as root with --run-as-user";
            findings.warn(STEPS, format!("{protection}"), if settings.run_as_user.is_none() { mend } else { "" });
        }
        Err(error) => findings.fault(STEPS, format!("{error:#}"), "correct it: the server does not start like this"),
    }
    let data_dir = settings.data_dir.clone();
    let looked = tokio::task::spawn_blocking(move || {
        let mut findings = Findings::default();
        directory(&data_dir, &mut findings);
        findings
    });
    match looked.await {
        Ok(found) => findings.extend(found),
        Err(error) => findings.fault(DATA_DIR, format!("could not be checked: {error}"), ""),
    }
    findings
}

async fn git(settings: &Settings) -> Result<String> {
    let invocation = Invocation::new("git", ["--version"], "/")
        .env(settings.child_env.clone())
        .timeout(VERSION_LIMIT)
        .reading(VERSION_OUTPUT);
    let redactor = Redactor::new(settings.secrets.clone());
    let finished = run(invocation, &redactor, &CancellationToken::new(), None).await?;
    if !finished.success() {
        bail!("git --version: {}: {}", finished.ending(), finished.output.trim());
    }
    Ok(redactor.redact(finished.read_text()?.trim()))
}

fn directory(data_dir: &Path, findings: &mut Findings) {
    let shown = data_dir.display();
    // The start creates it below the nearest existing folder.
    let Some(there) = data_dir.ancestors().find(|dir| dir.is_dir()) else {
        findings.fault(DATA_DIR, format!("{shown} cannot be made"), "correct --data-dir");
        return;
    };
    if let Err(error) = try_to_write(there) {
        let mend = "give it to the user that the server runs as, or correct --data-dir";
        findings.fault(DATA_DIR, format!("{error:#}"), mend);
        return;
    }
    let made = if there == data_dir { "" } else { "is made at the start; " };
    match Space::of(there) {
        Ok(Space { free, total }) => {
            let text = format!("{shown}: {made}{} of {} free", size(free), size(total));
            let mend = "make room, or give it a larger disk";
            match free {
                0..NO_SPACE => findings.fault(DATA_DIR, text, mend),
                NO_SPACE..LITTLE_SPACE => findings.warn(DATA_DIR, text, mend),
                _ => findings.fine(DATA_DIR, text),
            }
        }
        Err(error) => findings.unknown(DATA_DIR, format!("{shown}: its free space is not known: {error}"), ""),
    }
}

fn try_to_write(dir: &Path) -> Result<()> {
    let probe: PathBuf = dir.join(format!(".doctor-{}", random_id()));
    let written =
        std::fs::write(&probe, b"tidelock doctor").with_context(|| format!("cannot write to {}", dir.display()));
    // Also removes the part that a full disk left.
    let removed = std::fs::remove_file(&probe);
    written?;
    removed.with_context(|| format!("cannot remove {}", probe.display()))
}
