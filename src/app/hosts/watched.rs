//! Webhooks that deliver to us, as the doctor of a host reports on them.

use crate::app::doctor::report::{Findings, Verdict};

pub(super) const WEBHOOK: &str = "webhook";

/// A fault of a webhook, and its remedy, which is followed by the page of the webhooks.
pub(super) type HookFault = (Verdict, String, String);

/// The webhooks of a repository, or of what it belongs to.
pub(super) struct WatchedHooks<'a> {
    pub(super) whose: &'a str,
    /// Page of the webhooks.
    pub(super) page: &'a str,
    /// Address at which deliveries should arrive.
    pub(super) events: &'a str,
}

impl WatchedHooks<'_> {
    /// Reports on the webhooks that deliver to us: their faults, or for one without any the words about its deliveries. Returns true if
    /// there is one. `has_other`: what the repository belongs to has one too.
    pub(super) fn report(&self, ours: &[(Vec<HookFault>, String)], has_other: bool, findings: &mut Findings) -> bool {
        let WatchedHooks { whose, page, events } = self;
        if ours.len() > 1 || (!ours.is_empty() && has_other) {
            let text = format!("{whose}: several webhooks come to {events}; each delivery comes as often");
            findings.warn(WEBHOOK, text, &format!("leave one at {page}"));
        }
        for (faults, deliveries) in ours {
            if faults.is_empty() {
                findings.fine(WEBHOOK, format!("{whose}: that to {events} is active; {deliveries}"));
            }
            for (verdict, text, mend) in faults {
                let text = format!("{whose}: that to {events} {text}");
                findings.add(WEBHOOK, *verdict, text, &format!("{mend} at {page}"));
            }
        }
        !ours.is_empty()
    }
}

/// Returns a fault for each event that a webhook lacks: of those that are needed, and of those that make something faster, each by its name
/// with what is missing without it.
pub(super) fn missing_events(has: &[String], needed: &[(&str, &str)], useful: &[(&str, &str)]) -> Vec<HookFault> {
    let needed = needed.iter().map(|event| (Verdict::Fault, event));
    let all = needed.chain(useful.iter().map(|event| (Verdict::Warning, event)));
    let missing = all.filter(|(_, (name, _))| !has.iter().any(|event| event == name));
    missing
        .map(|(verdict, (name, without))| {
            (verdict, format!("lacks the event {name}: {without}"), "choose it".to_owned())
        })
        .collect()
}
