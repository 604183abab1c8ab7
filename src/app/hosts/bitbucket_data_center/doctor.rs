//! Checks Bitbucket Data Center: its version, the token and its account, our permission in the served repositories, and the webhooks that
//! should deliver to us.

mod hooks;

use super::super::served::{RepositoryReader, names, wanted};
use super::{TOKEN_USER, client};
use crate::app::doctor::report::Findings;
use crate::domain::RepoId;
use crate::settings::Settings;
use crate::settings::hosts::bitbucket_data_center::BitbucketDataCenterSettings;
use crate::vcs::{Host as _, HostError};
use tidelock_hosts::bitbucket_data_center::{
    BitbucketDataCenter, BitbucketDataCenterInstance, BitbucketDataCenterRepository,
};

const BITBUCKET: &str = "bitbucket";
/// First version with the builds of commits that are our statuses (`POST .../commits/{commitId}/builds`).
const FIRST_VERSION: (u64, u64) = (7, 4);
/// Maximum number of repositories that are looked at one by one.
const MAX_REPOSITORIES: usize = 50;

pub(super) async fn check(settings: &Settings, events: &str) -> Findings {
    let mut findings = Findings::default();
    let Some(options) = &settings.hosts.bitbucket_data_center else { return findings };
    let Some(data_center) = client(options, settings) else {
        findings.fine(BITBUCKET, "there is no token, and --events-only needs none");
        return findings;
    };
    match data_center.instance().await {
        Ok(instance) => judge_instance(&instance, options, &mut findings),
        Err(error @ (HostError::Denied { .. } | HostError::NotFound { .. })) => {
            let names = options.names;
            let mend = format!(
                "make a new HTTP access token for {}, and give it as TIDELOCK_{} or --{}",
                options.user,
                names.token.to_uppercase().replace('-', "_"),
                names.token_file
            );
            findings.fault(BITBUCKET, format!("the token is not taken: {error}"), &mend);
            return findings;
        }
        Err(error) => {
            let mend = format!("check --{}, the network, and whether the host is well", options.names.base_url);
            findings.fault(BITBUCKET, error.to_string(), &mend);
            return findings;
        }
    }
    let served = repositories(&data_center, settings, options, &mut findings).await;
    if settings.poll.is_none() {
        hooks::check(&data_center, options, events, &served, &mut findings).await;
    }
    findings
}

/// Reports on the version and on the account of the token.
fn judge_instance(
    instance: &BitbucketDataCenterInstance,
    options: &BitbucketDataCenterSettings,
    findings: &mut Findings,
) {
    let (user, version) = (&options.user, &instance.version);
    let host = match version.is_empty() {
        true => options.hostname.clone(),
        false => format!("{} (Bitbucket {version})", options.hostname),
    };
    let mut numbers = version.split('.').map_while(|part| part.parse().ok());
    if (numbers.next().zip(numbers.next())).is_some_and(|version| version < FIRST_VERSION) {
        let (major, minor) = FIRST_VERSION;
        let text = format!("{host} takes no build statuses of pull requests: the server cannot set its statuses");
        findings.fault(BITBUCKET, text, &format!("update Bitbucket to {major}.{minor} or later"));
    }
    match &instance.login {
        None => findings.unknown(BITBUCKET, format!("whose the token is, {host} does not tell"), ""),
        Some(login) if user == TOKEN_USER => {
            findings.fine(BITBUCKET, format!("the token is that of the account {login} on {host}"));
        }
        Some(login) if login.as_str().eq_ignore_ascii_case(user) => {
            findings.fine(BITBUCKET, format!("the token is {login}'s on {host}"));
        }
        Some(login) => {
            let name = options.names.user;
            let text = format!("the token is {login}'s on {host}, and --{name} is {user}");
            findings.fault(BITBUCKET, text, &format!("--{name}={login}, or a token of {user}"));
        }
    }
}

/// A served repository.
struct ServedDataCenterRepository {
    repo: RepoId,
    /// True if our token administers it.
    may_admin: bool,
}

/// Returns the served repositories that the token can read, and reports on its permissions there.
async fn repositories(
    data_center: &BitbucketDataCenter,
    settings: &Settings,
    options: &BitbucketDataCenterSettings,
    findings: &mut Findings,
) -> Vec<ServedDataCenterRepository> {
    let seen = data_center.repositories().await.unwrap_or_else(|error| {
        let text = format!("the token's repositories cannot be listed: {error}");
        findings.unknown(BITBUCKET, text, "run the doctor again");
        Vec::new()
    });
    let wanted = wanted(settings, &options.hostname, seen);
    let invite = format!("give {} and its token the permission Repository write there", options.user);
    if wanted.is_empty() {
        let rules = settings.repo_allowlist.join(",");
        let text = format!("the token sees no repository that --repo-allowlist={rules} allows");
        let mend = format!("{invite}; names of repositories begin with the key of the project, not with its name");
        findings.fault(BITBUCKET, text, &mend);
    }
    let reader = RepositoryReader { subject: BITBUCKET, who: "token", invite: &invite, most: MAX_REPOSITORIES };
    let (mut served, mut may_write) = (Vec::new(), Vec::new());
    for repo in reader.first(&wanted, findings) {
        let Some(access) = reader.read(repo, data_center.repository(repo).await, findings) else { continue };
        let name = repo.full_name();
        if judge_repository(&name, &access, &invite, findings) {
            may_write.push(name);
        }
        served.push(ServedDataCenterRepository { repo: repo.clone(), may_admin: access.can_administer });
    }
    if !may_write.is_empty() {
        findings.fine(BITBUCKET, format!("may write to {}", names(&may_write)));
    }
    served
}

/// Reports on our permission in a repository; returns true if the server may write there.
fn judge_repository(name: &str, access: &BitbucketDataCenterRepository, invite: &str, findings: &mut Findings) -> bool {
    if access.archived {
        let mend = "take it off --repo-allowlist";
        findings.warn(BITBUCKET, format!("{name} is archived: nothing is planned there"), mend);
        return false;
    }
    if !access.can_write {
        let text = format!("may not write to {name}: nothing is merged there, and no branch is deleted");
        findings.warn(BITBUCKET, text, invite);
        return false;
    }
    if !access.can_administer {
        let text = format!(
            "does not administer {name}: its webhooks are not checked, and with exclude_pushers no approval counts"
        );
        findings.warn(BITBUCKET, text, "give the account and its token the permission Repository admin there");
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Login;
    use std::ffi::OsString;

    fn said(judge: impl FnOnce(&mut Findings)) -> String {
        let mut findings = Findings::default();
        judge(&mut findings);
        findings.text()
    }

    fn options(user: &str) -> BitbucketDataCenterSettings {
        let user = format!("--bitbucket-user={user}");
        let flags = [
            "--bitbucket-base-url=https://git.example.com",
            "--bitbucket-token=t",
            &user,
            "--allow-unsigned-webhooks",
            "--repo-allowlist=*",
        ];
        let settings = Settings::load(flags.map(OsString::from), [("HOME".into(), "/home/tide".into())]);
        settings.unwrap_or_else(|error| panic!("{error}")).hosts.bitbucket_data_center.unwrap()
    }

    #[test]
    fn an_account_and_an_old_version_are_judged() {
        let judged = |user: &str, login: Option<&str>, version: &str| {
            let instance = BitbucketDataCenterInstance { version: version.into(), login: login.map(Login::new) };
            said(|findings| judge_instance(&instance, &options(user), findings))
        };
        let text = judged("tidelock", Some("Tidelock"), "9.4.3");
        assert!(
            text.starts_with("ok       bitbucket  the token is Tidelock's on git.example.com (Bitbucket 9.4.3)"),
            "{text}"
        );
        assert!(
            judged(TOKEN_USER, Some("token-7"), "10.0.0").starts_with("ok "),
            "a token of a project has an account"
        );
        let text = judged("tidelock", Some("alice"), "");
        assert!(
            text.contains(
                "FAULT    bitbucket  the token is alice's on git.example.com, and --bitbucket-user is tidelock"
            )
        );
        assert!(text.contains("mend: --bitbucket-user=alice"), "{text}");
        assert!(judged("tidelock", None, "9.4.3").starts_with("?  "));
        for (version, is_old) in
            [("7.3.2", true), ("6.10.0", true), ("7.4.0", false), ("8.19.1-rc1", false), ("x", false)]
        {
            let text = judged("tidelock", Some("tidelock"), version);
            assert_eq!(text.contains("mend: update Bitbucket to 7.4 or later"), is_old, "{text}");
        }
    }

    #[test]
    fn the_permission_in_a_repository_is_judged() {
        let sound = BitbucketDataCenterRepository { can_write: true, can_administer: true, archived: false };
        for (access, writes, says) in [
            (sound.clone(), true, "\n0 faults, 0 warnings, 0 not known"),
            (
                BitbucketDataCenterRepository { can_administer: false, ..sound.clone() },
                true,
                "warning  bitbucket  does not administer INFRA/live",
            ),
            (
                BitbucketDataCenterRepository { can_write: false, can_administer: false, ..sound.clone() },
                false,
                "warning  bitbucket  may not write to INFRA/live",
            ),
            (
                BitbucketDataCenterRepository { archived: true, ..sound },
                false,
                "warning  bitbucket  INFRA/live is archived",
            ),
        ] {
            let mut may_write = false;
            let text = said(|findings| may_write = judge_repository("INFRA/live", &access, "invite", findings));
            assert!(may_write == writes && text.contains(says), "{text}");
        }
    }
}
