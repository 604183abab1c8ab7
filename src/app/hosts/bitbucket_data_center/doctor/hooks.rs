//! Checks the webhooks of repositories and of their projects, and what became of their deliveries.

use super::ServedDataCenterRepository;
use crate::app::doctor::report::{Findings, Verdict};
use crate::app::hosts::watched::{HookFault, WEBHOOK, WatchedHooks, missing_events};
use crate::settings::hosts::bitbucket_data_center::BitbucketDataCenterSettings;
use crate::vcs::HostError;
use std::collections::BTreeMap;
use tidelock_hosts::bitbucket_data_center::{
    BitbucketDataCenter, BitbucketDataCenterDeliveries, BitbucketDataCenterHook,
};

/// Events that are needed, by their names in the API, with what lacks without them.
const NEEDED: [(&str, &str); 7] = [
    ("pr:opened", "nothing is planned without a command"),
    ("pr:from_ref_updated", "pushes are planned in rounds of --reconcile-interval alone"),
    ("pr:modified", "a draft that is ready is planned in rounds of --reconcile-interval alone"),
    ("pr:comment:added", "commands are found in rounds of --reconcile-interval alone"),
    ("pr:merged", "locks are released in rounds of --reconcile-interval alone"),
    ("pr:declined", "locks are released in rounds of --reconcile-interval alone"),
    ("pr:deleted", "locks are released in rounds of --reconcile-interval alone"),
];
/// Events that make something faster, with what is slower without them.
const USEFUL: [(&str, &str); 4] = [
    ("repo:refs_changed", "in mode `strict` plans become invalid in rounds of --reconcile-interval alone"),
    ("pr:reviewer:approved", "a merge that waits for an approval is tried in rounds of --reconcile-interval alone"),
    (
        "pr:reviewer:unapproved",
        "a merge that requested changes prevent is tried in rounds of --reconcile-interval alone",
    ),
    ("pr:reviewer:needs_work", "a refused merge is tried in rounds of --reconcile-interval alone"),
];

/// Checks the webhooks that deliver to `events`.
pub(super) async fn check(
    data_center: &BitbucketDataCenter,
    options: &BitbucketDataCenterSettings,
    events: &str,
    served: &[ServedDataCenterRepository],
    findings: &mut Findings,
) {
    let secret = options.names.secret;
    let mut of_projects: BTreeMap<&str, bool> = BTreeMap::new();
    for ServedDataCenterRepository { repo, may_admin } in served {
        if !may_admin {
            continue;
        }
        let key = repo.owner.as_str();
        if !of_projects.contains_key(key) {
            of_projects.insert(key, of_project(data_center, options, events, key, findings).await);
        }
        let has_other = of_projects.get(key) == Some(&true);
        let name = repo.full_name();
        let page = format!("{}/plugins/servlet/webhooks/projects/{key}/repos/{}", options.base_url, repo.name);
        let hooks = match data_center.repository_hooks(repo).await {
            Ok(hooks) => hooks,
            Err(error) => {
                findings.unknown(WEBHOOK, error.to_string(), &format!("look at {page}"));
                continue;
            }
        };
        let watched = WatchedHooks { whose: &name, page: &page, events };
        let mut found = Vec::new();
        for hook in hooks.iter().filter(|hook| hook.url == events) {
            let became = data_center.deliveries(repo, hook.id).await;
            let became = became.map_err(|error| {
                let text = format!("{name}: what became of the last deliveries is not known: {error}");
                findings.unknown(WEBHOOK, text, &format!("look at {page}"));
            });
            found.push((hook, became.ok()));
        }
        if !judge_all(&watched, secret, &found, has_other, findings) && !has_other {
            let mend = format!(
                "add it at {page}: URL {events}, the secret of --{secret}, and the events of docs/bitbucket-data-center.md"
            );
            findings.fault(WEBHOOK, format!("{name} has none that comes to {events}"), &mend);
        }
    }
}

/// Checks the webhooks of a project; returns true if one delivers to us. A project whose webhooks we may not read has none here.
async fn of_project(
    data_center: &BitbucketDataCenter,
    options: &BitbucketDataCenterSettings,
    events: &str,
    key: &str,
    findings: &mut Findings,
) -> bool {
    match data_center.project_hooks(key).await {
        Ok(hooks) => {
            let page = format!("{}/plugins/servlet/webhooks/projects/{key}", options.base_url);
            let ours: Vec<_> = hooks.iter().filter(|hook| hook.url == events).map(|hook| (hook, None)).collect();
            judge_all(&WatchedHooks { whose: key, page: &page, events }, options.names.secret, &ours, false, findings)
        }
        // Versions before 8.8 have none of projects, and a token of a repository may not read them.
        Err(HostError::Denied { .. } | HostError::NotFound { .. } | HostError::Rejected { .. }) => false,
        Err(error) => {
            findings.unknown(WEBHOOK, error.to_string(), "run the doctor again");
            false
        }
    }
}

/// Reports on the webhooks that deliver to us, each with what became of its deliveries, if that is known; returns true if there is one.
/// `has_other`: the project has one too.
fn judge_all(
    watched: &WatchedHooks<'_>,
    secret: &str,
    hooks: &[(&BitbucketDataCenterHook, Option<BitbucketDataCenterDeliveries>)],
    has_other: bool,
    findings: &mut Findings,
) -> bool {
    let ours = hooks.iter().map(|(hook, became)| {
        let last = match became.as_ref().and_then(|became| became.success.as_ref()) {
            Some(success) => format!("its last delivery was taken at {}", success.at),
            None => format!("its requests are on {}", watched.page),
        };
        (judge(hook, became.as_ref(), secret), last)
    });
    watched.report(&ours.collect::<Vec<_>>(), has_other, findings)
}

/// Returns the faults of a webhook that delivers to us, each with its remedy.
fn judge(
    hook: &BitbucketDataCenterHook,
    became: Option<&BitbucketDataCenterDeliveries>,
    secret: &str,
) -> Vec<HookFault> {
    let mut judged = missing_events(&hook.events, &NEEDED, &USEFUL);
    let mut add = |verdict, text: String, mend: &str| judged.push((verdict, text, mend.to_owned()));
    if !hook.active {
        add(Verdict::Fault, "is not active".to_owned(), "make it active");
    }
    if hook.has_secret == Some(false) {
        let text = "has no secret: its deliveries are not signed, and refused".to_owned();
        add(Verdict::Fault, text, &format!("give it the secret of --{secret}"));
    }
    if !hook.verifies_tls {
        add(Verdict::Warning, "does not verify our certificate".to_owned(), "enable the verification");
    }
    if let Some(last) = became.and_then(BitbucketDataCenterDeliveries::failing) {
        let text = format!(
            "failed with its last delivery, {} at {}: {}. After five failures in a row Bitbucket skips deliveries, for up to ten hours",
            last.event, last.at, last.result
        );
        let mend = format!("compare its URL, its secret (--{secret}) and the network, then try Test connection");
        add(Verdict::Fault, text, &mend);
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_hosts::bitbucket_data_center::BitbucketDataCenterDelivery;

    fn sound() -> BitbucketDataCenterHook {
        BitbucketDataCenterHook {
            id: 7,
            url: "https://t.example/events".into(),
            active: true,
            has_secret: Some(true),
            verifies_tls: true,
            events: NEEDED.iter().chain(&USEFUL).map(|(name, _)| (*name).to_owned()).collect(),
        }
    }

    fn delivery(at: &str, result: &str) -> Option<BitbucketDataCenterDelivery> {
        Some(BitbucketDataCenterDelivery { event: "pr:opened".into(), at: at.parse().unwrap(), result: result.into() })
    }

    #[test]
    fn each_fault_of_a_webhook_is_found_alone() {
        let judged = |hook: &BitbucketDataCenterHook| judge(hook, None, "bitbucket-webhook-secret");
        assert_eq!(judged(&sound()), []);
        assert_eq!(judged(&BitbucketDataCenterHook { has_secret: None, ..sound() }), []);
        let without = |name: &str| {
            let events = sound().events.into_iter().filter(|event| event != name).collect();
            BitbucketDataCenterHook { events, ..sound() }
        };
        for (hook, verdict, said) in [
            (BitbucketDataCenterHook { active: false, ..sound() }, Verdict::Fault, "not active"),
            (BitbucketDataCenterHook { has_secret: Some(false), ..sound() }, Verdict::Fault, "no secret"),
            (BitbucketDataCenterHook { verifies_tls: false, ..sound() }, Verdict::Warning, "certificate"),
            (without("pr:opened"), Verdict::Fault, "the event pr:opened:"),
            (without("pr:comment:added"), Verdict::Fault, "pr:comment:added"),
            (without("repo:refs_changed"), Verdict::Warning, "the event repo:refs_changed"),
            (without("pr:reviewer:unapproved"), Verdict::Warning, "that requested changes prevent"),
            (without("pr:reviewer:needs_work"), Verdict::Warning, "the event pr:reviewer:needs_work"),
        ] {
            let judged = judged(&hook);
            assert!(judged.len() == 1 && judged[0].0 == verdict && judged[0].1.contains(said), "{judged:?}");
        }
    }

    #[test]
    fn a_last_delivery_that_failed_is_a_fault_until_one_is_taken() {
        let failed = delivery("2026-11-29T09:30:00Z", "FAILURE: 401");
        let judged = |success| {
            let became = BitbucketDataCenterDeliveries { success, failure: failed.clone(), ..Default::default() };
            judge(&sound(), Some(&became), "bitbucket-webhook-secret")
        };
        for earlier in [None, delivery("2026-11-29T09:29:00Z", "SUCCESS: 200")] {
            let found = judged(earlier);
            let [(Verdict::Fault, text, mend)] = &found[..] else { panic!("{found:?}") };
            assert!(
                text.contains("pr:opened at 2026-11-29T09:30:00Z: FAILURE: 401")
                    && mend.contains("--bitbucket-webhook-secret")
            );
        }
        assert_eq!(judged(delivery("2026-11-29T09:31:00Z", "SUCCESS: 200")), []);
    }

    #[test]
    fn two_webhooks_that_come_to_us_are_one_too_many() {
        let judged = |count: usize, has_other| {
            let mut findings = Findings::default();
            let watched =
                WatchedHooks { whose: "INFRA/live", page: "https://b/hooks", events: "https://t.example/events" };
            let hook = sound();
            let hooks: Vec<_> = (0..count).map(|_| (&hook, None)).collect();
            (judge_all(&watched, "bitbucket-webhook-secret", &hooks, has_other, &mut findings), findings.text())
        };
        assert_eq!(judged(0, false), (false, "\n0 faults, 0 warnings, 0 not known\n".to_owned()));
        let (found, text) = judged(1, false);
        assert!(found && text.starts_with("ok       webhook    INFRA/live: that to"), "{text}");
        assert!(judged(2, false).1.contains("several webhooks"));
        assert!(judged(1, true).1.contains("several webhooks"));
    }
}
