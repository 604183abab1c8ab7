//! Checks GitLab: the token and its account, our role in the served projects, and the webhooks that should deliver to us.

use super::client;
use crate::app::doctor::report::{Findings, Verdict};
use crate::dispatch::Allowlist;
use crate::domain::RepoId;
use crate::settings::Settings;
use crate::settings::hosts::gitlab::GitlabSettings;
use crate::vcs::{Host as _, HostError};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use tidelock_hosts::gitlab::{AccessToken, Gitlab, HookAnswer, ProjectHook};

const GITLAB: &str = "gitlab";
const WEBHOOK: &str = "webhook";
/// Scope of the token for comments, statuses and merges (docs.gitlab.com/user/profile/personal_access_tokens).
const SCOPE: &str = "api";
/// Access level from which statuses can be set (docs.gitlab.com/user/permissions).
const DEVELOPER: u64 = 30;
/// Access level that may merge into branches with the default protection (docs.gitlab.com/user/project/repository/branches/protected).
const MAINTAINER: u64 = 40;
/// Days before the end of a token from which it is warned of.
const EXPIRES_SOON: i32 = 30;
/// Maximum number of names in one line.
const SHOWN: usize = 5;
/// Maximum number of projects whose webhooks are checked.
const MAX_PROJECTS: usize = 50;
/// Maximum number of groups whose webhooks are checked.
const MAX_GROUPS: usize = 20;

pub(super) async fn check(settings: &Settings, events: &str) -> Findings {
    let mut findings = Findings::default();
    let Some(options) = &settings.hosts.gitlab else { return findings };
    let Some(gitlab) = client(options, settings) else {
        findings.fine(GITLAB, "there is no token, and --events-only needs none");
        return findings;
    };
    if !account(&gitlab, options, &mut findings).await {
        return findings;
    }
    match gitlab.access_token().await {
        Ok(token) => judge_token(&token, Timestamp::now().to_zoned(TimeZone::UTC).date(), &mut findings),
        Err(error) => findings.unknown(GITLAB, format!("the token's scopes and end are not known: {error}"), ""),
    }
    if settings.discard_approval_on_plan {
        judge_discarding(&options.user, &mut findings);
    }
    let served = projects(&gitlab, settings, options, &mut findings).await;
    if settings.automerge {
        merging(&gitlab, &served, &mut findings).await;
    }
    if settings.poll.is_none() {
        let groups = group_webhooks(&gitlab, options, events, &served, &mut findings).await;
        webhooks(&gitlab, options, events, (&served, &groups), &mut findings).await;
    }
    findings
}

/// Checks the host, the token and its account; returns false if the token cannot be used.
async fn account(gitlab: &Gitlab, options: &GitlabSettings, findings: &mut Findings) -> bool {
    let user = &options.user;
    let login = match gitlab.account().await {
        Ok(account) => &account.login,
        Err(error @ (HostError::Denied { .. } | HostError::NotFound { .. })) => {
            let mend =
                format!("make a new token for {user}, and give it as TIDELOCK_GITLAB_TOKEN or --gitlab-token-file");
            findings.fault(GITLAB, format!("the token is not taken: {error}"), &mend);
            return false;
        }
        Err(error) => {
            let mend = "check --gitlab-hostname, the network, and whether the host is well";
            findings.fault(GITLAB, error.to_string(), mend);
            return false;
        }
    };
    let host = match gitlab.version().await {
        Ok(version) => format!("{} (GitLab {version})", options.hostname),
        Err(_) => options.hostname.clone(),
    };
    if login.as_str().eq_ignore_ascii_case(user) {
        findings.fine(GITLAB, format!("the token is {login}'s on {host}"));
    } else {
        let mend = format!("--gitlab-user={login}, or a token of {user}");
        findings.fault(GITLAB, format!("the token is {login}'s on {host}, and --gitlab-user is {user}"), &mend);
    }
    true
}

/// Reports on the token's scopes and on its end.
fn judge_token(token: &AccessToken, today: Date, findings: &mut Findings) {
    if token.scopes.iter().any(|scope| scope == SCOPE) {
        findings.fine(GITLAB, format!("the token has the scope {SCOPE}"));
    } else {
        let text = format!("the token lacks the scope {SCOPE}: nothing can be posted");
        findings.fault(GITLAB, text, &format!("make a token with the scope {SCOPE}"));
    }
    let Some(expires) = token.expires else { return };
    let left = today.until(expires).map_or(0, |span| span.get_days());
    let mend = "rotate it on the page of access tokens, and give the new one to the server (--gitlab-token-file is read on every use)";
    match left {
        ..=0 => findings.fault(GITLAB, format!("the token has expired on {expires}"), mend),
        1..=EXPIRES_SOON => findings.warn(GITLAB, format!("the token expires on {expires}, in {left} days"), mend),
        _ => findings.fine(GITLAB, format!("the token expires on {expires}")),
    }
}

/// Reports an account that may not reset approvals. Only bot users may
/// (docs.gitlab.com/api/merge_request_approvals, "Reset approvals of a merge request").
fn judge_discarding(login: &str, findings: &mut Findings) {
    if is_bot(login) {
        return;
    }
    let text = format!(
        "{login} is not the bot user of a project or group access token, and only those may reset approvals: with \
         --discard-approval-on-plan, nothing is planned while a merge request has an approval"
    );
    findings.warn(GITLAB, text, "use a project or group access token, and its user as --gitlab-user");
}

/// Returns true if a login is that of a project's or group's access token: `project_7_bot_1a2b`, `group_7_bot_1a2b`
/// (docs.gitlab.com/user/project/settings/project_access_tokens, "Bot users for projects").
fn is_bot(login: &str) -> bool {
    let rest = login.strip_prefix("project_").or_else(|| login.strip_prefix("group_"));
    let number = rest.and_then(|rest| rest.split_once("_bot")).map(|(number, _)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Reports projects in which the account may not be able to merge.
async fn merging(gitlab: &Gitlab, served: &[RepoId], findings: &mut Findings) {
    let mut low = Vec::new();
    for repo in served.iter().take(MAX_PROJECTS) {
        if gitlab.own_access_level(repo).await.is_ok_and(|level| level < MAINTAINER) {
            low.push(repo.full_name());
        }
    }
    judge_merging(&low, findings);
}

/// Reports projects in which the account is no Maintainer.
fn judge_merging(low: &[String], findings: &mut Findings) {
    if low.is_empty() {
        return;
    }
    let text = format!(
        "the account's access level is below {MAINTAINER} (Maintainer) in {}: the protection of a branch there may refuse --automerge",
        shown(low)
    );
    findings.warn(
        GITLAB,
        text,
        "give the account the role Maintainer, or let it merge in the protection of the branch",
    );
}

/// Returns the first names of a list, and the number of the others.
fn shown(names: &[String]) -> String {
    let more = names.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", "))
}

/// Returns the served projects in which the account may set statuses, and reports on them.
async fn projects(
    gitlab: &Gitlab,
    settings: &Settings,
    options: &GitlabSettings,
    findings: &mut Findings,
) -> Vec<RepoId> {
    let seen = match gitlab.repositories().await {
        Ok(seen) => seen,
        Err(error) => {
            findings.unknown(
                GITLAB,
                format!("the account's projects cannot be listed: {error}"),
                "run the doctor again",
            );
            return Vec::new();
        }
    };
    let allowlist = Allowlist::new(&settings.repo_allowlist);
    let served = seen.into_iter().filter(|access| !access.archived && allowlist.allows(&access.repo));
    let served: Vec<RepoId> = served.map(|access| access.repo).collect();
    let invite = format!("give {} the role Developer there", options.user);
    for rule in settings.repo_allowlist.iter().map(|rule| rule.trim()).filter(|rule| !rule.contains(['*', '!'])) {
        let Some(repo) = RepoId::of_whole_name(rule).filter(|repo| repo.host.eq_ignore_ascii_case(&options.hostname))
        else {
            continue;
        };
        if served.iter().any(|known| known.to_string().eq_ignore_ascii_case(rule)) {
            continue;
        }
        let text = match gitlab.own_access_level(&repo).await {
            Ok(level) if level < DEVELOPER => {
                format!("the account's access level in {rule} is {level}, less than {DEVELOPER}")
            }
            _ => format!("{rule} is in --repo-allowlist, and the account is no member of it"),
        };
        findings.fault(GITLAB, text, &invite);
    }
    if served.is_empty() {
        let text = "the account may set statuses in no project that --repo-allowlist allows";
        findings.fault(GITLAB, text, &invite);
    } else {
        let names: Vec<String> = served.iter().map(RepoId::full_name).collect();
        findings.fine(GITLAB, format!("may set statuses in {}", shown(&names)));
    }
    served
}

/// Returns the groups above these projects, each once.
fn groups_above(served: &[RepoId]) -> Vec<&str> {
    let mut groups: Vec<&str> = Vec::new();
    for owner in served.iter().map(|repo| repo.owner.as_str()) {
        let ends = owner.match_indices('/').map(|(end, _)| end).chain([owner.len()]);
        groups.extend(ends.map(|end| &owner[..end]));
    }
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// Checks the webhooks of the groups above the served projects, and returns the groups with one that delivers to us.
async fn group_webhooks(
    gitlab: &Gitlab,
    options: &GitlabSettings,
    events: &str,
    served: &[RepoId],
    findings: &mut Findings,
) -> Vec<String> {
    let mut found = Vec::new();
    for group in groups_above(served).into_iter().take(MAX_GROUPS) {
        // Only Owners see them, and a person's namespace is no group: what is unknown is reported for the projects.
        let hooks = gitlab.group_hooks(group).await.unwrap_or_default();
        let page = format!("{}/groups/{group}/-/hooks", options.base_url);
        for hook in hooks.iter().filter(|hook| hook.url == events) {
            found.push(group.to_owned());
            let which = format!("group {group}: that to {events}");
            let judged = judge(hook, options.present_secret().is_some());
            if judged.is_empty() {
                findings.fine(WEBHOOK, format!("{which} is enabled"));
            }
            report(judged, &which, &page, findings);
        }
    }
    found
}

/// Reports the faults of a webhook.
fn report(judged: Vec<(Verdict, String, &'static str)>, which: &str, page: &str, findings: &mut Findings) {
    for (verdict, text, mend) in judged {
        findings.add(WEBHOOK, verdict, format!("{which} {text}"), &format!("{mend} at {page}"));
    }
}

/// Checks the webhooks of the served projects. `groups`: those with a webhook that delivers to us.
async fn webhooks(
    gitlab: &Gitlab,
    options: &GitlabSettings,
    events: &str,
    (served, groups): (&[RepoId], &[String]),
    findings: &mut Findings,
) {
    for repo in served.iter().take(MAX_PROJECTS) {
        let name = repo.full_name();
        let of_groups = groups.iter().filter(|group| name.starts_with(&format!("{group}/"))).count();
        let page = format!("{}/{name}/-/hooks", options.base_url);
        let hooks = match gitlab.project_hooks(repo).await {
            Ok(hooks) => hooks,
            Err(HostError::Denied { .. } | HostError::NotFound { .. }) if of_groups > 0 => continue,
            Err(HostError::Denied { .. } | HostError::NotFound { .. }) => {
                let mend = format!("look at {page}, or give {} the role Maintainer there", options.user);
                findings.unknown(WEBHOOK, format!("the account may not read those of {name}"), &mend);
                continue;
            }
            Err(error) => {
                findings.unknown(WEBHOOK, error.to_string(), "run the doctor again");
                continue;
            }
        };
        let ours: Vec<&ProjectHook> = hooks.iter().filter(|hook| hook.url == events).collect();
        if ours.is_empty() && of_groups == 0 {
            let mend = format!(
                "unless its group or the instance has one, add it at {page}: URL {events}, the secret token of \
                 --gitlab-webhook-secret, merge request events, comments, push events"
            );
            findings.unknown(WEBHOOK, format!("{name} has none that comes to {events}"), &mend);
        }
        let all = ours.len() + of_groups;
        if all > 1 {
            let text = format!("{name}: {all} webhooks come to {events}; each delivery comes as often");
            let mend = format!("leave one at {page}, or the one of its group");
            findings.warn(WEBHOOK, text, &mend);
        }
        for hook in ours {
            let judged = judge(hook, options.present_secret().is_some());
            if judged.is_empty() {
                let last = gitlab.last_hook_answer(repo, hook.id).await.ok().flatten();
                judge_answer(&format!("{name}: that to {events}"), last.as_ref(), &page, findings);
            }
            report(judged, &format!("{name}: that to {events}"), &page, findings);
        }
    }
    let left_out = served.len().saturating_sub(MAX_PROJECTS);
    if left_out > 0 {
        let mend = "a webhook of the group would serve all of its projects";
        findings.unknown(WEBHOOK, format!("{left_out} more projects were not checked"), mend);
    }
}

/// Reports on our answer to the last delivery of a webhook that is as it should be.
fn judge_answer(which: &str, last: Option<&HookAnswer>, page: &str, findings: &mut Findings) {
    match last {
        None => findings
            .fine(WEBHOOK, format!("{which} is enabled; it delivered nothing within two days, as far as is known")),
        Some(answer) if answer.status.starts_with('2') => {
            findings.fine(WEBHOOK, format!("{which} is enabled, and its last delivery was taken"));
        }
        Some(answer) => {
            let text = format!("{which}: its last delivery was answered {}: {}", answer.status, answer.body);
            let mend = match answer.status.as_str() {
                "401" => format!("give it the secret token of --gitlab-webhook-secret at {page}"),
                "403" => "let the host's addresses in (--webhook-allowlist)".to_owned(),
                _ => format!("see its recent events at {page}, and the server's log"),
            };
            findings.fault(WEBHOOK, text, &mend);
        }
    }
}

/// Returns the faults of a webhook that delivers to us, each with its remedy.
fn judge(hook: &ProjectHook, needs_secret: bool) -> Vec<(Verdict, String, &'static str)> {
    let mut judged = Vec::new();
    let mut fault = |text: &str, mend| judged.push((Verdict::Fault, text.to_owned(), mend));
    if !hook.merge_requests {
        fault("sends no events of merge requests: nothing is planned without a command", "enable merge request events");
    }
    if !hook.notes {
        fault("sends no comments: commands are found in rounds of --reconcile-interval alone", "enable comments");
    }
    if hook.has_secret == Some(false) && needs_secret {
        fault("has no secret token: its deliveries are answered 401", "give it that of --gitlab-webhook-secret");
    }
    if hook.has_template {
        fault("has a custom template: its deliveries cannot be read", "remove the template");
    }
    let enable = "see its recent events for our answers, then send a test, which enables it again,";
    match (hook.alert_status.as_str(), hook.disabled_until) {
        ("" | "executable", _) => {}
        (_, Some(until)) => fault(&format!("is disabled by GitLab until {until}, because it has failed"), enable),
        (_, None) => fault("is disabled by GitLab, because it has failed", enable),
    }
    if !hook.verifies_tls {
        let text = "does not verify our certificate: who answers for us gets the secret token".to_owned();
        judged.push((Verdict::Warning, text, "enable SSL verification"));
    }
    if !hook.pushes {
        let text = "sends no pushes: in mode `strict` plans become invalid in rounds of --reconcile-interval alone";
        judged.push((Verdict::Warning, text.to_owned(), "enable push events"));
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> ProjectHook {
        ProjectHook {
            merge_requests: true,
            notes: true,
            pushes: true,
            verifies_tls: true,
            alert_status: "executable".into(),
            has_secret: Some(true),
            ..ProjectHook::default()
        }
    }

    #[test]
    fn each_fault_of_a_webhook_is_found_alone() {
        assert_eq!(judge(&sound(), true), []);
        // Earlier versions report neither state nor secret.
        assert_eq!(judge(&ProjectHook { alert_status: String::new(), has_secret: None, ..sound() }, true), []);
        assert_eq!(judge(&ProjectHook { has_secret: Some(false), ..sound() }, false), []);
        let until = "2026-11-28T12:00:00Z".parse().ok();
        for (hook, verdict, said) in [
            (ProjectHook { merge_requests: false, ..sound() }, Verdict::Fault, "merge requests"),
            (ProjectHook { notes: false, ..sound() }, Verdict::Fault, "no comments"),
            (ProjectHook { has_secret: Some(false), ..sound() }, Verdict::Fault, "401"),
            (ProjectHook { has_template: true, ..sound() }, Verdict::Fault, "custom template"),
            (
                ProjectHook { alert_status: "disabled".into(), ..sound() },
                Verdict::Fault,
                "is disabled by GitLab, because",
            ),
            (
                ProjectHook { alert_status: "temporarily_disabled".into(), disabled_until: until, ..sound() },
                Verdict::Fault,
                "until 2026-11-28T12:00:00Z",
            ),
            (ProjectHook { verifies_tls: false, ..sound() }, Verdict::Warning, "certificate"),
            (ProjectHook { pushes: false, ..sound() }, Verdict::Warning, "no pushes"),
        ] {
            let judged = judge(&hook, true);
            assert!(judged.len() == 1 && judged[0].0 == verdict && judged[0].1.contains(said), "{judged:?}");
        }
    }

    #[test]
    fn our_last_answer_is_reported_with_its_remedy() {
        let said = |status: Option<&str>| {
            let answer =
                status.map(|status| HookAnswer { status: status.into(), body: "The secret token is wrong".into() });
            let mut findings = Findings::default();
            judge_answer("acme/infra", answer.as_ref(), "https://gitlab.com/acme/infra/-/hooks", &mut findings);
            findings.text()
        };
        assert!(said(Some("200")).starts_with("ok ") && said(None).starts_with("ok "));
        for (status, mend) in
            [("401", "--gitlab-webhook-secret"), ("403", "--webhook-allowlist"), ("internal error", "recent events")]
        {
            let text = said(Some(status));
            assert!(text.starts_with("FAULT") && text.contains(status) && text.contains(mend), "{text}");
        }
    }

    #[test]
    fn groups_are_all_above_the_projects() {
        let repo = |owner: &str| RepoId { host: "gitlab.com".into(), owner: owner.into(), name: "live".into() };
        let served = [repo("acme/platform/eu"), repo("acme/apps"), repo("ann"), repo("acme/apps")];
        assert_eq!(groups_above(&served), ["acme", "acme/apps", "acme/platform", "acme/platform/eu", "ann"]);
    }

    #[test]
    fn an_account_that_may_not_reset_approvals_or_merge_is_warned_of() {
        for (login, is_fine) in [
            ("project_7_bot_1a2b3c", true),
            ("group_7_bot", true),
            ("tidelock", false),
            ("project_x_bot_1a", false),
            ("project__bot", false),
        ] {
            let mut findings = Findings::default();
            judge_discarding(login, &mut findings);
            assert_eq!(findings.text().contains("--discard-approval-on-plan"), !is_fine, "{login}");
        }
        let mut findings = Findings::default();
        judge_merging(&[], &mut findings);
        assert!(!findings.text().contains("--automerge"), "{}", findings.text());
        judge_merging(&(0..7).map(|number| format!("acme/p{number}")).collect::<Vec<_>>(), &mut findings);
        let text = findings.text();
        assert!(
            text.starts_with("warning") && text.contains("acme/p4 and 2 more") && text.contains("may refuse"),
            "{text}"
        );
    }

    #[test]
    fn a_token_is_judged_by_its_scopes_and_its_end() {
        let today: Date = "2026-11-28".parse().unwrap();
        let judged = |scopes: &[&str], expires: Option<&str>| {
            let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
            let token = AccessToken { scopes, expires: expires.map(|day| day.parse().unwrap()) };
            let mut findings = Findings::default();
            judge_token(&token, today, &mut findings);
            findings.text()
        };
        assert!(judged(&["read_api"], None).contains("FAULT    gitlab     the token lacks the scope api"));
        for (expires, said) in [
            ("2026-11-28", "FAULT    gitlab     the token has expired"),
            ("2026-12-28", "warning  gitlab     the token expires on 2026-12-28, in 30 days"),
            ("2026-12-29", "ok       gitlab     the token expires on 2026-12-29"),
            ("2028-01-01", "ok       gitlab     the token expires on 2028-01-01"),
        ] {
            let text = judged(&["api", "read_user"], Some(expires));
            assert!(text.contains(said), "{text}");
        }
    }
}
