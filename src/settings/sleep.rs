//! Checks of the settings of a server that sleeps.

use super::typed::Reader;
use std::time::Duration;
use url::Url;

/// Reads the time without work after which the server sleeps; absent if it never does.
pub(super) fn idle_release(r: &mut Reader, name: &str) -> Option<Duration> {
    let idle = r.duration(name);
    if idle.is_zero() {
        return None;
    }
    if r.switch("events-only") {
        r.warn(name, "has no effect: with events-only this server never leads, and makes no request of its own");
    }
    Some(idle)
}

/// Reads the full name of a queue of Cloud Tasks.
pub(super) fn queue(r: &mut Reader, name: &str) -> Option<String> {
    let queue = r.optional(name)?;
    let in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    let is_sound = |part: &str| !part.is_empty() && !matches!(part, "." | "..") && part.bytes().all(in_name);
    let is_queue = match queue.split('/').collect::<Vec<_>>()[..] {
        ["projects", project, "locations", location, "queues", queue] => {
            [project, location, queue].iter().all(|part| is_sound(part))
        }
        _ => false,
    };
    if !is_queue {
        r.wrong(name, "is not of the form projects/PROJECT/locations/REGION/queues/NAME");
    }
    for other in ["wake-url", "wake-account"] {
        if r.text(other).is_empty() {
            r.wrong(
                other,
                "is missing: wake-queue needs the address that its tasks call, and the account of their token",
            );
        }
    }
    if r.duration("idle-release").is_zero() && !r.switch("events-only") {
        r.wrong(name, "needs idle-release: a server that never sleeps needs no task. Set it, or leave wake-queue out");
    }
    Some(queue)
}

/// Reads the address that tasks call.
pub(super) fn url(r: &mut Reader, name: &str) -> Option<String> {
    let text = r.optional(name)?;
    match Url::parse(&text) {
        Ok(url) if is_wake(&url) => {}
        _ => r.wrong(name, "is not of the form https://HOST/wake"),
    }
    if r.text("wake-account").is_empty() {
        r.wrong("wake-account", "is missing: without it nobody may call wake-url");
    }
    Some(text)
}

/// Returns true if tasks may call this address. A token must not travel in clear text, except on this machine.
fn is_wake(url: &Url) -> bool {
    let is_safe = url.scheme() == "https" || (url.scheme() == "http" && super::addresses::is_loopback(url));
    is_safe && url.path().ends_with("/wake") && url.query().is_none() && url.fragment().is_none()
}

/// Reads the account whose tokens `/wake` accepts.
pub(super) fn account(r: &mut Reader, name: &str) -> Option<String> {
    let account = r.optional(name)?;
    let is_sound = |(user, domain): (&str, &str)| !user.is_empty() && domain.contains('.');
    if !account.split_once('@').is_some_and(is_sound) || account.contains(char::is_whitespace) {
        r.wrong(name, "is no e-mail address of a service account");
    }
    if r.text("wake-url").is_empty() {
        r.wrong("wake-url", "is missing: it is the audience of the tokens of wake-account");
    }
    Some(account)
}

#[cfg(test)]
mod tests {
    use crate::settings::tests::{invalid, loaded};
    use std::time::Duration;

    const QUEUE: &str = "--wake-queue=projects/acme/locations/europe-west1/queues/tidelock";
    const URL: &str = "--wake-url=https://tidelock-1.europe-west1.run.app/wake";
    const ACCOUNT: &str = "--wake-account=wake@acme.iam.gserviceaccount.com";

    #[test]
    fn a_server_sleeps_only_if_it_is_told_to() {
        assert_eq!(loaded(&[], &[]).sleep.idle_release, None);
        assert_eq!(loaded(&["--idle-release=0"], &[]).sleep.idle_release, None);
        let sleep = loaded(&["--idle-release=10m", QUEUE, URL, ACCOUNT], &[]).sleep;
        assert_eq!(sleep.idle_release, Some(Duration::from_secs(600)));
        assert!(sleep.wake_queue.is_some() && sleep.wake_url.is_some() && sleep.wake_account.is_some());
        // A server that only takes deliveries wakes another.
        assert!(loaded(&["--events-only", QUEUE, URL, ACCOUNT], &[]).sleep.wake_queue.is_some());
        // Only a job of Cloud Scheduler calls.
        assert!(loaded(&["--idle-release=10m", URL, ACCOUNT], &[]).sleep.wake_queue.is_none());
    }

    #[test]
    fn what_would_never_wake_or_be_open_to_others_stops_the_start() {
        let idle = "--idle-release=10m";
        let cases: [(&[&str], &str); 9] = [
            (&["--idle-release=soon"], "is no duration"),
            (&[QUEUE, URL, ACCOUNT], "needs idle-release"),
            (&[idle, QUEUE, URL], "wake-account is missing"),
            (&[idle, QUEUE, ACCOUNT], "wake-url is missing"),
            (&[idle, URL], "wake-account is missing"),
            (&[idle, "--wake-queue=tidelock", URL, ACCOUNT], "is not of the form projects/"),
            (&[idle, "--wake-queue=projects/a/locations/../queues/q", URL, ACCOUNT], "is not of the form projects/"),
            (&[idle, "--wake-url=http://tide.example/wake", ACCOUNT], "is not of the form https://HOST/wake"),
            (&[idle, URL, "--wake-account=wake"], "is no e-mail address"),
        ];
        for (flags, expected) in cases {
            let problem = invalid(flags, &[]);
            assert!(problem.contains(expected), "{flags:?}: {problem}");
        }
    }
}
