//! Failed deliveries of a GitHub App. GitHub keeps a list of deliveries and repeats one only on request.

use crate::vcs::HostError;
use crate::vcs::http::{Http, odd};
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::Value;
use std::collections::HashMap;

/// Attempts on one page: GitHub's maximum.
const PER_PAGE: u32 = 100;
/// Most pages that are read.
const PAGES: usize = 20;
/// Most deliveries that are repeated in one round.
const MAX_PER_ROUND: usize = 25;
/// Most attempts of one delivery, the first included.
const ATTEMPTS: usize = 4;
/// Least age of the last attempt: a younger one may still be answered.
const SETTLED: SignedDuration = SignedDuration::from_secs(30);
/// Greatest age of the last attempt. Reconciliation with the open pull requests has covered older ones.
const OLDEST: SignedDuration = SignedDuration::from_hours(24);
/// Events that cause work.
const WANTED: [&str; 3] = ["pull_request", "issue_comment", "merge_group"];
/// Events and actions of buttons of check runs.
const PRESSES: [(&str, &str); 3] =
    [("check_run", "requested_action"), ("check_run", "rerequested"), ("check_suite", "rerequested")];
/// Greatest age of the first attempt to deliver a press: later the person does not expect it any more, as with comments.
const PRESS_EXPIRY: SignedDuration = SignedDuration::from_mins(10);

/// One attempt of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DeliveryAttempt {
    id: u64,
    guid: String,
    event: String,
    /// Empty for events without one.
    action: String,
    status: u64,
    at: Timestamp,
}

impl DeliveryAttempt {
    fn is_press(&self) -> bool {
        PRESSES.contains(&(self.event.as_str(), self.action.as_str()))
    }
}

/// Requests the recent deliveries that failed, and returns their number. Presses of buttons of other Apps never come to this App.
pub(super) async fn missed(http: &Http) -> Result<usize, HostError> {
    let (attempts, now) = latest(http).await?;
    let wanted = to_repeat(&attempts, now);
    let mut asked = 0;
    for id in wanted {
        match http.send(Method::POST, &format!("/app/hook/deliveries/{id}/attempts"), None).await {
            Ok(_) => asked += 1,
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => tracing::warn!("a delivery that was missed cannot be asked for again: {error}"),
        }
    }
    Ok(asked)
}

/// Returns all attempts that are not too old, newest first, and the time of the answer. The list may end within the attempts of a delivery;
/// the result of such a delivery is not known.
async fn latest(http: &Http) -> Result<(Vec<DeliveryAttempt>, Timestamp), HostError> {
    let mut path = format!("/app/hook/deliveries?per_page={PER_PAGE}");
    let (mut attempts, mut now) = (Vec::new(), None);
    for _ in 0..PAGES {
        let answer = http.get(&path).await?;
        let Value::Array(rows) = answer.body else { return Err(odd(&path, "not a list")) };
        let now = *now.get_or_insert_with(|| answer.at.unwrap_or_else(Timestamp::now));
        attempts.extend(rows.iter().filter_map(attempt));
        let is_old = |attempt: &DeliveryAttempt| now.duration_since(attempt.at) > OLDEST;
        let next = answer.next.filter(|_| !attempts.last().is_some_and(is_old));
        match next.as_deref().and_then(|next| http.path_of(next)) {
            Some(next) => path = next.to_owned(),
            None => return Ok((attempts, now)),
        }
    }
    tracing::warn!(attempts = attempts.len(), "deliveries before these are not asked for again: there are too many");
    Ok((attempts, now.unwrap_or_else(Timestamp::now)))
}

/// Selects the deliveries whose attempts all failed, oldest first, by the ids of their last attempts.
fn to_repeat(attempts: &[DeliveryAttempt], now: Timestamp) -> Vec<u64> {
    let mut deliveries: HashMap<&str, Vec<&DeliveryAttempt>> = HashMap::new();
    let is_wanted = |attempt: &&DeliveryAttempt| WANTED.contains(&attempt.event.as_str()) || attempt.is_press();
    for attempt in attempts.iter().filter(is_wanted) {
        deliveries.entry(&attempt.guid).or_default().push(attempt);
    }
    let mut wanted: Vec<&DeliveryAttempt> = Vec::new();
    for tries in deliveries.into_values() {
        let taken = tries.iter().any(|attempt| (200..300).contains(&attempt.status));
        let Some(last) = tries.iter().max_by_key(|attempt| attempt.at) else { continue };
        let age = now.duration_since(last.at);
        let is_old_press =
            |attempt: &&DeliveryAttempt| attempt.is_press() && now.duration_since(attempt.at) > PRESS_EXPIRY;
        if tries.iter().any(is_old_press) {
            continue;
        }
        if !taken && tries.len() < ATTEMPTS && age >= SETTLED && age <= OLDEST {
            wanted.push(last);
        }
    }
    wanted.sort_by_key(|attempt| (attempt.at, attempt.id));
    wanted.into_iter().take(MAX_PER_ROUND).map(|attempt| attempt.id).collect()
}

fn attempt(row: &Value) -> Option<DeliveryAttempt> {
    Some(DeliveryAttempt {
        id: row["id"].as_u64()?,
        guid: row["guid"].as_str()?.to_owned(),
        event: row["event"].as_str()?.to_owned(),
        action: row["action"].as_str().unwrap_or_default().to_owned(),
        status: row["status_code"].as_u64().unwrap_or_default(),
        at: row["delivered_at"].as_str()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(id: u64, guid: &str, status: u64, seconds_ago: i64) -> DeliveryAttempt {
        let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000 - seconds_ago);
        DeliveryAttempt { id, guid: guid.into(), event: "pull_request".into(), action: String::new(), status, at }
    }

    fn now() -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000)
    }

    #[test]
    fn what_nobody_took_is_asked_for_until_it_is_taken() {
        let failed = [one(1, "a", 502, 100), one(2, "b", 0, 90), one(3, "c", 200, 80), one(4, "d", 500, 5)];
        assert_eq!(to_repeat(&failed, now()), [1, 2]);
        let taken = [&failed[..], &[one(5, "a", 202, 60)]].concat();
        assert_eq!(to_repeat(&taken, now()), [2]);
        let again = [&failed[..], &[one(6, "a", 502, 60)]].concat();
        assert_eq!(to_repeat(&again, now()), [2, 6]);
        let other = DeliveryAttempt { event: "push".into(), ..one(7, "e", 500, 100) };
        assert!(to_repeat(&[other, one(8, "f", 500, 100_000)], now()).is_empty());
    }

    #[test]
    fn a_press_is_asked_for_while_it_is_young() {
        let press = |event: &str, action: &str, seconds_ago| DeliveryAttempt {
            event: event.into(),
            action: action.into(),
            ..one(1, "a", 502, seconds_ago)
        };
        for (event, action) in PRESSES {
            assert_eq!(to_repeat(&[press(event, action, 100)], now()), [1], "{event} {action}");
            assert!(to_repeat(&[press(event, action, 601)], now()).is_empty());
            let tried = [press(event, action, 601), press(event, action, 60)];
            assert!(to_repeat(&tried, now()).is_empty(), "the age is that of the first attempt");
        }
        for (event, action) in [("check_run", "completed"), ("check_suite", "requested"), ("check_run", "")] {
            assert!(to_repeat(&[press(event, action, 100)], now()).is_empty(), "{event} {action}");
        }
    }

    proptest! {
        #[test]
        fn no_delivery_is_asked_for_without_end(rows in proptest::collection::vec((0_u64..6, 0_u64..600, 0_i64..200_000), 0..60)) {
            let attempts: Vec<DeliveryAttempt> =
                rows.iter().zip(1..).map(|((guid, status, ago), id)| one(id, &guid.to_string(), *status, *ago)).collect();
            let asked = to_repeat(&attempts, now());
            prop_assert!(asked.len() <= MAX_PER_ROUND);
            for id in asked {
                let guid = &attempts.iter().find(|attempt| attempt.id == id).unwrap().guid;
                let tries: Vec<&DeliveryAttempt> = attempts.iter().filter(|attempt| attempt.guid == *guid).collect();
                prop_assert!(tries.len() < ATTEMPTS);
                prop_assert!(tries.iter().all(|attempt| !(200..300).contains(&attempt.status)));
            }
        }
    }
}
