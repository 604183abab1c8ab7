//! Reads the secrets that `repos.yaml` names by the identity of the server, and shows none of them.

use super::report::Findings;
use crate::app::services::Parts;
use crate::settings::Settings;
use futures::StreamExt;
use std::collections::BTreeMap;

const SECRET: &str = "secret";
/// Secrets that are read at once.
const AT_ONCE: usize = 4;
const MEND: &str = "jobs of its projects fail like this: correct the reference in repos.yaml, or the rights of the identity \
                    (docs/secrets.md)";

pub(super) async fn check(settings: &Settings, parts: &Parts) -> Findings {
    let mut findings = Findings::default();
    let now = parts.now();
    let mut read = Vec::new();
    for reference in now.global.secret_references() {
        let (name, reader) = (reference.to_string(), &settings.secret_reader);
        let wanted = BTreeMap::from([(name.clone(), reference.clone())]);
        read.push(async move { (name, reader.read_all(&wanted).await.err()) });
    }
    let read: Vec<_> = futures::stream::iter(read).buffered(AT_ONCE).collect().await;
    for (name, problem) in read {
        match problem {
            None => findings.fine(SECRET, format!("{name} can be read")),
            // The jobs of an executor have an identity of their own.
            Some(problem) if !now.global.executors.is_empty() => {
                let text = format!(
                    "{name} cannot be read by the server, only perhaps by jobs of an executor: {}",
                    problem.reason
                );
                findings.warn(SECRET, text, MEND);
            }
            Some(problem) => findings.fault(SECRET, format!("{name} cannot be read: {}", problem.reason), MEND),
        }
    }
    findings
}
