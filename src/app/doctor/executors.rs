//! Runs a job without steps at each executor: it tells where it runs, and what its account may do.

use super::report::Findings;
use crate::app::services::Parts;
use crate::app::{bucket, executors};
use crate::config::executors::ExecutorKind;
use crate::executors::{BucketRight, ProbeEnd, Probed};
use crate::settings::Settings;
use futures::future::join_all;
use std::time::Duration;

const EXECUTOR: &str = "executor";
/// Time in which a probe has to end. An engine may have to start a machine and to fetch the image.
const PATIENCE: Duration = Duration::from_secs(300);
/// What to do about rights that a job should not have.
const TOO_MUCH: &str = "a plan that somebody proposes has these rights too: give the executor an account that may only create and read \
                        objects below its own folder (docs/executors.md)";

pub(super) async fn check(settings: &Settings, parts: &Parts) -> Findings {
    let mut findings = Findings::default();
    let now = parts.now();
    let kinds = &now.global.executors;
    if kinds.is_empty() {
        return findings;
    }
    let executors = match bucket::open(&settings.vault.bucket).await {
        Ok(bucket) => executors::executors(settings, &now.global, parts.hosts(), bucket).await,
        // Told as a finding about the bucket.
        Err(_) => return findings,
    };
    let executors = match executors {
        Ok(executors) => executors,
        Err(error) => {
            findings.fault(EXECUTOR, format!("{error:#}"), "correct it: the server does not start like this");
            return findings;
        }
    };
    let named = kinds.iter().filter(|(name, _)| executors.has(name));
    let probes = named.map(|(name, executor)| {
        let executors = &executors;
        async move {
            let (probed, warnings) = tokio::join!(executors.probe(name, PATIENCE), executors.warnings(name));
            (name, &executor.kind, probed, warnings)
        }
    });
    for (name, kind, probed, warnings) in join_all(probes).await {
        for warning in warnings {
            findings.warn(EXECUTOR, format!("{name}: {}", plain(&warning)), "");
        }
        match probed {
            Ok(end) => report(&mut findings, name, kind, &end),
            Err(error) => {
                let mend = "a job for it fails like this: look at the engine, its rights and its image";
                findings.fault(EXECUTOR, format!("{name}: {}", plain(&format!("{error:#}"))), mend);
            }
        }
    }
    findings
}

fn report(findings: &mut Findings, name: &str, kind: &ExecutorKind, end: &ProbeEnd) {
    let Probed { machine, user, account, allowed, unknown } = &end.probed;
    let account = account.as_ref().map(|account| format!(", account {}", plain(account))).unwrap_or_default();
    let ran = format!("{name}: a job ran in {:.1?} on {} as user {user}{account}", end.took, plain(machine));
    findings.fine(EXECUTOR, ran);
    let list = |rights: &[_]| rights.iter().map(|right: &BucketRight| right.words()).collect::<Vec<_>>().join("; ");
    // A process of the server's machine has the server's account.
    if !allowed.is_empty() && *kind != ExecutorKind::Process {
        findings.warn(EXECUTOR, format!("{name}: its jobs may do this in the bucket: {}", list(allowed)), TOO_MUCH);
    }
    if !unknown.is_empty() {
        let text = format!("{name}: the bucket did not answer whether its jobs may do this: {}", list(unknown));
        findings.unknown(EXECUTOR, text, "run the doctor again");
    }
}

/// Returns a text of a job without what would change a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(1000).collect()
}
