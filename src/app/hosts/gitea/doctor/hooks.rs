//! Checks the webhooks of repositories and of their organizations.

use super::ServedRepository;
use crate::app::doctor::report::{Findings, Verdict};
use crate::app::hosts::watched::{HookFault, WEBHOOK, WatchedHooks, missing_events};
use crate::settings::hosts::gitea::GiteaSettings;
use crate::vcs::HostError;
use std::collections::BTreeMap;
use std::net::IpAddr;
use tidelock_hosts::gitea::{Gitea, GiteaHook};
use url::{Host, Url};

/// Kinds of webhooks whose payloads are those that we read.
const KINDS: [&str; 3] = ["gitea", "gogs", "forgejo"];
/// Events that are needed, by their names in the API, with what lacks without them.
const NEEDED: [(&str, &str); 3] = [
    ("pull_request", "nothing is planned without a command"),
    ("pull_request_sync", "pushes are planned in rounds of --reconcile-interval alone"),
    ("pull_request_comment", "commands are found in rounds of --reconcile-interval alone"),
];
/// Events that make something faster, with what is slower without them.
const USEFUL: [(&str, &str); 2] = [
    ("push", "in mode `strict` plans become invalid in rounds of --reconcile-interval alone"),
    ("pull_request_review", "a merge that waits for a review is tried in rounds of --reconcile-interval alone"),
];
/// Patterns of all branches (services/webhook/webhook.go, `checkBranchFilter`).
const ALL_BRANCHES: [&str; 3] = ["", "*", "**"];

/// Checks the webhooks that deliver to `events`.
pub(super) async fn check(
    gitea: &Gitea,
    options: &GiteaSettings,
    events: &str,
    served: &[ServedRepository],
    findings: &mut Findings,
) {
    if let Some(text) = internal(events).await {
        let mend = "unless it works, have the instance's operator add it to ALLOWED_HOST_LIST in the section [webhook] of app.ini";
        findings.unknown(WEBHOOK, text, mend);
    }
    let mut of_owners: BTreeMap<&str, bool> = BTreeMap::new();
    for ServedRepository { repo, admin } in served {
        let owner = repo.owner.as_str();
        if !of_owners.contains_key(owner) {
            of_owners.insert(owner, of_organization(gitea, options, events, owner, findings).await);
        }
        let has_other = of_owners.get(owner) == Some(&true);
        if !admin {
            continue;
        }
        let (name, page) = (repo.full_name(), format!("{}/{}/settings/hooks", options.base_url, repo.full_name()));
        match gitea.repository_hooks(repo).await {
            Ok(hooks) => {
                let found = judge_all(&name, &page, events, &hooks, has_other, findings);
                if !found && !has_other {
                    let mend = format!(
                        "unless the instance has one, add it at {page}: target URL {events}, POST, application/json, the secret of \
                         --gitea-webhook-secret, and the events of docs/gitea.md"
                    );
                    findings.unknown(WEBHOOK, format!("{name} has none that comes to {events}"), &mend);
                }
            }
            Err(error) => findings.unknown(WEBHOOK, error.to_string(), &format!("look at {page}")),
        }
    }
}

/// Checks the webhooks of an organization; returns true if one delivers to us. An owner whose webhooks we may not read has none here.
async fn of_organization(
    gitea: &Gitea,
    options: &GiteaSettings,
    events: &str,
    owner: &str,
    findings: &mut Findings,
) -> bool {
    match gitea.organization_hooks(owner).await {
        Ok(hooks) => {
            let page = format!("{}/org/{owner}/settings/hooks", options.base_url);
            judge_all(owner, &page, events, &hooks, false, findings)
        }
        Err(HostError::Denied { .. } | HostError::NotFound { .. }) => false,
        Err(error) => {
            findings.unknown(WEBHOOK, error.to_string(), "run the doctor again");
            false
        }
    }
}

/// Reports on the webhooks that deliver to us; returns true if there is one.
fn judge_all(
    whose: &str,
    page: &str,
    events: &str,
    hooks: &[GiteaHook],
    has_other: bool,
    findings: &mut Findings,
) -> bool {
    let ours = hooks.iter().filter(|hook| hook.url == events);
    // The host reports neither the secret nor our answers.
    let deliveries = format!("whether its last delivery was taken is on its page, {page}");
    let ours: Vec<_> = ours.map(|hook| (judge(hook), deliveries.clone())).collect();
    WatchedHooks { whose, page, events }.report(&ours, has_other, findings)
}

/// Returns the faults of a webhook that delivers to us, each with its remedy.
fn judge(hook: &GiteaHook) -> Vec<HookFault> {
    let mut judged = Vec::new();
    if !KINDS.contains(&hook.kind.as_str()) {
        let text = format!("is of the kind {}: its deliveries cannot be read", hook.kind);
        judged.push((Verdict::Fault, text, "add one of the kind Gitea (Forgejo) in its place".to_owned()));
    }
    if !hook.active {
        judged.push((Verdict::Fault, "is not active".to_owned(), "make it active".to_owned()));
    }
    judged.extend(missing_events(&hook.events, &NEEDED, &USEFUL));
    if !ALL_BRANCHES.contains(&hook.branch_filter.as_str()) {
        let text = format!("delivers pushes to branches like {} only", hook.branch_filter);
        let mend = "remove the branch filter, unless it has all base branches,".to_owned();
        judged.push((Verdict::Warning, text, mend));
    }
    judged
}

/// Returns what to know if our address is one to which Gitea does not deliver by default (modules/hostmatcher, `MatchBuiltinExternal`).
async fn internal(events: &str) -> Option<String> {
    let url = Url::parse(events).ok()?;
    let port = url.port_or_known_default()?;
    let addresses: Vec<IpAddr> = match url.host()? {
        Host::Ipv4(address) => vec![address.into()],
        Host::Ipv6(address) => vec![address.into()],
        Host::Domain(name) => tokio::net::lookup_host((name, port)).await.ok()?.map(|address| address.ip()).collect(),
    };
    let address = addresses.into_iter().find(|address| !is_external(*address))?;
    Some(format!("{events} is at the internal address {address}, to which Gitea delivers nothing by default"))
}

/// Returns true for an address that Gitea takes for an external one: unicast, neither private nor loopback.
fn is_external(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            !(address.is_loopback() || address.is_private() || address.is_link_local() || address.is_unspecified())
        }
        IpAddr::V6(address) => {
            let is_local = address.is_unique_local() || address.is_unicast_link_local();
            !(address.is_loopback() || is_local || address.is_unspecified())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> GiteaHook {
        let events = NEEDED.iter().chain(&USEFUL).map(|(name, _)| (*name).to_owned()).collect();
        GiteaHook {
            kind: "gitea".into(),
            url: "https://t.example/events".into(),
            active: true,
            json: true,
            events,
            ..GiteaHook::default()
        }
    }

    #[test]
    fn each_fault_of_a_webhook_is_found_alone() {
        assert_eq!(judge(&sound()), []);
        // The signature of a form is that of its JSON.
        assert_eq!(judge(&GiteaHook { json: false, branch_filter: "*".into(), ..sound() }), []);
        let without = |name: &str| {
            let events = sound().events.into_iter().filter(|event| event != name).collect();
            GiteaHook { events, ..sound() }
        };
        for (hook, verdict, said) in [
            (GiteaHook { kind: "slack".into(), ..sound() }, Verdict::Fault, "of the kind slack"),
            (GiteaHook { active: false, ..sound() }, Verdict::Fault, "not active"),
            (without("pull_request"), Verdict::Fault, "the event pull_request:"),
            (without("pull_request_sync"), Verdict::Fault, "pull_request_sync"),
            (without("pull_request_comment"), Verdict::Fault, "pull_request_comment"),
            (without("push"), Verdict::Warning, "the event push"),
            (without("pull_request_review"), Verdict::Warning, "pull_request_review"),
            (GiteaHook { branch_filter: "main".into(), ..sound() }, Verdict::Warning, "branches like main"),
        ] {
            let judged = judge(&hook);
            assert!(judged.len() == 1 && judged[0].0 == verdict && judged[0].1.contains(said), "{judged:?}");
        }
    }

    #[test]
    fn only_webhooks_that_come_to_us_are_judged_and_two_of_them_are_one_too_many() {
        let judged = |hooks: &[GiteaHook], has_other| {
            let mut findings = Findings::default();
            let found =
                judge_all("acme/infra", "https://g/hooks", "https://t.example/events", hooks, has_other, &mut findings);
            (found, findings.text())
        };
        let elsewhere = GiteaHook { url: "https://ci.example/".into(), active: false, ..sound() };
        assert_eq!(judged(&[elsewhere], false), (false, "\n0 faults, 0 warnings, 0 not known\n".to_owned()));
        let (found, text) = judged(&[sound()], false);
        assert!(
            found && text.starts_with("ok       webhook    acme/infra: that to https://t.example/events"),
            "{text}"
        );
        assert!(judged(&[sound(), sound()], false).1.contains("several webhooks"));
        assert!(judged(&[sound()], true).1.contains("several webhooks"));
    }

    #[tokio::test]
    async fn an_internal_address_is_told() {
        for url in ["http://127.0.0.1:4141/events", "https://10.1.2.3/events", "https://[fd00::1]/events"] {
            assert!(internal(url).await.is_some_and(|text| text.contains("internal address")), "{url}");
        }
        for url in ["https://203.0.113.7/events", "https://[2001:db8::1]/events", "no address"] {
            assert_eq!(internal(url).await, None, "{url}");
        }
    }
}
