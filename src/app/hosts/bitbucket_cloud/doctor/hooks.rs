//! Checks the webhooks of repositories and of their workspaces.

use super::ServedCloudRepository;
use crate::app::doctor::report::{Findings, Verdict};
use crate::app::hosts::watched::{HookFault, WEBHOOK, WatchedHooks, missing_events};
use crate::settings::hosts::bitbucket_cloud::BitbucketCloudSettings;
use crate::vcs::HostError;
use std::collections::BTreeMap;
use tidelock_hosts::bitbucket_cloud::{BitbucketCloud, BitbucketCloudHook};

/// Events that are needed, with what lacks without them.
const NEEDED: [(&str, &str); 5] = [
    ("pullrequest:created", "nothing is planned without a command"),
    ("pullrequest:updated", "pushes are planned in rounds of --reconcile-interval alone"),
    ("pullrequest:comment_created", "commands are found in rounds of --reconcile-interval alone"),
    ("pullrequest:fulfilled", "locks are released in rounds of --reconcile-interval alone"),
    ("pullrequest:rejected", "locks are released in rounds of --reconcile-interval alone"),
];
/// Events that make something faster, with what is slower without them.
const USEFUL: [(&str, &str); 7] = [
    ("repo:push", "in mode `strict` plans become invalid in rounds of --reconcile-interval alone"),
    ("pullrequest:approved", "a merge that waits for an approval is tried in rounds of --reconcile-interval alone"),
    ("pullrequest:unapproved", "a refused merge is tried in rounds of --reconcile-interval alone"),
    ("pullrequest:changes_request_created", "a refused merge is tried in rounds of --reconcile-interval alone"),
    (
        "pullrequest:changes_request_removed",
        "a merge that requested changes prevent is tried in rounds of --reconcile-interval alone",
    ),
    ("repo:commit_status_created", "a merge that waits for a build is tried in rounds of --reconcile-interval alone"),
    ("repo:commit_status_updated", "a merge that waits for a build is tried in rounds of --reconcile-interval alone"),
];

/// Checks the webhooks that deliver to `events`.
pub(super) async fn check(
    cloud: &BitbucketCloud,
    options: &BitbucketCloudSettings,
    events: &str,
    served: &[ServedCloudRepository],
    findings: &mut Findings,
) {
    let site = options.base_url.trim_end_matches("/2.0").replace("https://api.bitbucket.org", "https://bitbucket.org");
    let mut of_workspaces: BTreeMap<&str, bool> = BTreeMap::new();
    for ServedCloudRepository { repo, may_admin } in served {
        if !may_admin {
            continue;
        }
        let workspace = repo.owner.as_str();
        if !of_workspaces.contains_key(workspace) {
            of_workspaces.insert(workspace, of_workspace(cloud, &site, events, workspace, findings).await);
        }
        let has_other = of_workspaces.get(workspace) == Some(&true);
        let (name, page) = (repo.full_name(), format!("{site}/{}/admin/webhooks", repo.full_name()));
        match cloud.repository_hooks(repo).await {
            Ok(hooks) => {
                let watched = WatchedHooks { whose: &name, page: &page, events };
                if !judge_all(&watched, &hooks, has_other, findings) && !has_other {
                    let mend = format!(
                        "add it at {page}: URL {events}, the secret of --bitbucket-webhook-secret, and the triggers of \
                         docs/bitbucket-cloud.md"
                    );
                    findings.fault(WEBHOOK, format!("{name} has none that comes to {events}"), &mend);
                }
            }
            Err(error) => findings.unknown(WEBHOOK, error.to_string(), &format!("look at {page}")),
        }
    }
}

/// Checks the webhooks of a workspace; returns true if one delivers to us. A workspace whose webhooks we may not read has none here.
async fn of_workspace(
    cloud: &BitbucketCloud,
    site: &str,
    events: &str,
    workspace: &str,
    findings: &mut Findings,
) -> bool {
    match cloud.workspace_hooks(workspace).await {
        Ok(hooks) => {
            let page = format!("{site}/{workspace}/workspace/settings/webhooks");
            judge_all(&WatchedHooks { whose: workspace, page: &page, events }, &hooks, false, findings)
        }
        Err(HostError::Denied { .. } | HostError::NotFound { .. }) => false,
        Err(error) => {
            findings.unknown(WEBHOOK, error.to_string(), "run the doctor again");
            false
        }
    }
}

/// Reports on the webhooks that deliver to us; returns true if there is one. `has_other`: the workspace has one too.
fn judge_all(
    watched: &WatchedHooks<'_>,
    hooks: &[BitbucketCloudHook],
    has_other: bool,
    findings: &mut Findings,
) -> bool {
    let ours = hooks.iter().filter(|hook| hook.url == watched.events);
    // The host reports neither the secret nor our answers.
    let deliveries = format!("its requests are on {}", watched.page);
    let ours: Vec<_> = ours.map(|hook| (judge(hook), deliveries.clone())).collect();
    watched.report(&ours, has_other, findings)
}

/// Returns the faults of a webhook that delivers to us, each with its remedy.
fn judge(hook: &BitbucketCloudHook) -> Vec<HookFault> {
    let mut judged = Vec::new();
    if !hook.active {
        judged.push((Verdict::Fault, "is not active".to_owned(), "make it active".to_owned()));
    }
    if hook.has_secret == Some(false) {
        let text = "has no secret: its deliveries are not signed, and refused".to_owned();
        judged.push((Verdict::Fault, text, "give it the secret of --bitbucket-webhook-secret".to_owned()));
    }
    if !hook.verifies_tls {
        let mend = "enable the verification".to_owned();
        judged.push((Verdict::Warning, "does not verify our certificate".to_owned(), mend));
    }
    judged.extend(missing_events(&hook.events, &NEEDED, &USEFUL));
    judged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> BitbucketCloudHook {
        BitbucketCloudHook {
            url: "https://t.example/events".into(),
            active: true,
            has_secret: Some(true),
            verifies_tls: true,
            events: NEEDED.iter().chain(&USEFUL).map(|(name, _)| (*name).to_owned()).collect(),
            ..BitbucketCloudHook::default()
        }
    }

    #[test]
    fn each_fault_of_a_webhook_is_found_alone() {
        assert_eq!(judge(&sound()), []);
        assert_eq!(judge(&BitbucketCloudHook { has_secret: None, ..sound() }), []);
        let without = |name: &str| {
            let events = sound().events.into_iter().filter(|event| event != name).collect();
            BitbucketCloudHook { events, ..sound() }
        };
        for (hook, verdict, said) in [
            (BitbucketCloudHook { active: false, ..sound() }, Verdict::Fault, "not active"),
            (BitbucketCloudHook { has_secret: Some(false), ..sound() }, Verdict::Fault, "no secret"),
            (BitbucketCloudHook { verifies_tls: false, ..sound() }, Verdict::Warning, "certificate"),
            (without("pullrequest:created"), Verdict::Fault, "the event pullrequest:created:"),
            (without("pullrequest:comment_created"), Verdict::Fault, "pullrequest:comment_created"),
            (without("repo:push"), Verdict::Warning, "the event repo:push"),
            (without("pullrequest:unapproved"), Verdict::Warning, "the event pullrequest:unapproved"),
            (without("pullrequest:changes_request_created"), Verdict::Warning, "changes_request_created"),
            (without("pullrequest:changes_request_removed"), Verdict::Warning, "that requested changes prevent"),
            (without("repo:commit_status_created"), Verdict::Warning, "the event repo:commit_status_created"),
        ] {
            let judged = judge(&hook);
            assert!(judged.len() == 1 && judged[0].0 == verdict && judged[0].1.contains(said), "{judged:?}");
        }
    }

    #[test]
    fn only_webhooks_that_come_to_us_are_judged_and_two_of_them_are_one_too_many() {
        let judged = |hooks: &[BitbucketCloudHook], has_other| {
            let mut findings = Findings::default();
            let watched =
                WatchedHooks { whose: "acme/infra", page: "https://b/hooks", events: "https://t.example/events" };
            (judge_all(&watched, hooks, has_other, &mut findings), findings.text())
        };
        let elsewhere = BitbucketCloudHook { url: "https://ci.example/".into(), active: false, ..sound() };
        assert_eq!(judged(&[elsewhere], false), (false, "\n0 faults, 0 warnings, 0 not known\n".to_owned()));
        let (found, text) = judged(&[sound()], false);
        assert!(found && text.starts_with("ok       webhook    acme/infra: that to"), "{text}");
        assert!(judged(&[sound(), sound()], false).1.contains("several webhooks"));
        assert!(judged(&[sound()], true).1.contains("several webhooks"));
    }
}
