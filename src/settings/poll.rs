//! Checks of the interval of polling.

use super::typed::Reader;
use std::time::Duration;

/// Name of the setting.
const POLL: &str = "poll";
/// Shortest interval. Hosts have limits of requests, and a person does not notice less.
const SHORTEST: Duration = Duration::from_secs(1);
/// Longest interval: quiet repositories are asked as often.
const LONGEST: Duration = Duration::from_secs(120);

/// Reads the interval; absent if the server takes deliveries.
pub(super) fn interval(r: &mut Reader, name: &str) -> Option<Duration> {
    let interval = r.duration(name);
    if interval.is_zero() {
        return None;
    }
    if !(SHORTEST..=LONGEST).contains(&interval) {
        r.wrong(name, "is not from 1s to 2m");
    }
    if r.switch("events-only") {
        r.wrong(
            name,
            "and events-only are both given: a server that only takes deliveries asks no host. Leave one out",
        );
    }
    if !r.duration("idle-release").is_zero() {
        r.wrong(name, "and idle-release are both given: a server that asks the hosts never sleeps. Leave one out");
    }
    Some(interval)
}

/// Returns true if the server asks the hosts and takes no deliveries, so that nothing has to prove them.
pub(super) fn is_on(r: &mut Reader) -> bool {
    !r.duration(POLL).is_zero()
}

#[cfg(test)]
mod tests {
    use crate::settings::tests::{invalid, loaded};
    use std::time::Duration;

    #[test]
    fn polling_is_off_by_default_and_excludes_what_contradicts_it() {
        assert_eq!(loaded(&[], &[]).poll, None);
        assert_eq!(loaded(&["--poll=0"], &[]).poll, None);
        assert_eq!(loaded(&["--poll=15s"], &[]).poll, Some(Duration::from_secs(15)));
        for (flags, expected) in [
            (&["--poll=soon"][..], "is no duration"),
            (&["--poll=3m"], "is not from 1s to 2m"),
            (&["--poll=15s", "--events-only"], "events-only are both given"),
            (&["--poll=15s", "--idle-release=10m"], "idle-release are both given"),
        ] {
            let problem = invalid(flags, &[]);
            assert!(problem.contains(expected), "{flags:?}: {problem}");
        }
    }

    #[test]
    fn polling_needs_no_webhook_secret_on_any_host() {
        let others = [
            ("ATLANTIS_GH_WEBHOOK_SECRET", ""),
            ("ATLANTIS_AZUREDEVOPS_USER", "tidelock@example.com"),
            ("ATLANTIS_AZUREDEVOPS_TOKEN", "pat_token_value"),
            ("ATLANTIS_GITLAB_USER", "tidelock"),
            ("ATLANTIS_GITLAB_TOKEN", "glpat_token_value"),
            ("ATLANTIS_GITEA_BASE_URL", "https://gitea.example.com"),
            ("ATLANTIS_GITEA_USER", "tidelock"),
            ("ATLANTIS_GITEA_TOKEN", "gitea_token_value"),
        ];
        let settings = loaded(&["--poll=15s"], &others);
        assert!(settings.hosts.github.is_some_and(|host| host.webhook_secret.is_none()));
        assert!(settings.hosts.azure_devops.is_some_and(|host| host.webhook_password.is_none()));
        assert!(settings.hosts.gitlab.is_some_and(|host| host.webhook_secret.is_none()));
        assert!(settings.hosts.gitea.is_some_and(|host| host.webhook_secret.is_none()));
        assert!(
            !settings.warnings.iter().any(|warning| warning.contains("reaches the port")),
            "{:?}",
            settings.warnings
        );
        assert!(invalid(&[], &others).contains("ATLANTIS_GH_WEBHOOK_SECRET"));
    }
}
