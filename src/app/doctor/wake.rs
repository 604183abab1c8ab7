//! Leaves a task in the queue that wakes the server, as the server does. It calls `/wake`, which is no visit.

use super::report::Findings;
use crate::app::sleep::wake_queue;
use crate::settings::Settings;

const WAKE: &str = "wake";

pub(super) async fn check(settings: &Settings) -> Findings {
    let mut findings = Findings::default();
    let Some(queue) = wake_queue(&settings.sleep) else { return findings };
    let [name, url, account] = [&settings.sleep.wake_queue, &settings.sleep.wake_url, &settings.sleep.wake_account]
        .map(|text| text.as_deref().unwrap_or_default());
    match queue.leave(None).await {
        Ok(()) => findings.fine(WAKE, format!("a task was left in {name}, which calls {url}")),
        Err(error) => {
            let mend = format!(
                "without tasks, work waits for the next request or the hourly call: the queue has to exist, and the server's \
                 account needs roles/cloudtasks.enqueuer on it, and roles/iam.serviceAccountUser on {account} (docs/sleep.md)"
            );
            findings.fault(WAKE, format!("no task can be left in {name}: {error}"), &mend);
        }
    }
    findings
}
