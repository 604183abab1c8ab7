//! A queue of Cloud Tasks, whose tasks call `/wake`. Path and fields are those of "REST Resource: projects.locations.queues.tasks" of the
//! Cloud Tasks API, version 2.

use crate::google_api::{GoogleApi, GoogleApiError};
use jiff::Timestamp;
use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Address of the service.
const SERVICE: &str = "https://cloudtasks.googleapis.com";
/// Time for which a task waits for its answer: the longest that Cloud Tasks allows.
const DEADLINE: &str = "1800s";
/// Tries to leave a task, and the pause between two: a delivery waits for its answer meanwhile.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(200);
/// Tasks that are due in the same period of this many seconds are one: a server may fall asleep often before something is due…
const PERIOD: i64 = 30;
/// …and so are those for now, of many deliveries.
const PERIOD_OF_NOW: i64 = 1;

/// A queue, and what its tasks call.
pub struct WakeQueue {
    google: GoogleApi,
    /// Full name.
    queue: String,
    url: String,
    account: String,
}

#[derive(Serialize)]
struct CreateTask<'a> {
    task: WakeTask<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WakeTask<'a> {
    /// A second task of one name is refused.
    name: String,
    schedule_time: String,
    dispatch_deadline: &'static str,
    http_request: WakeRequest<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WakeRequest<'a> {
    url: &'a str,
    http_method: &'static str,
    oidc_token: WakeToken<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WakeToken<'a> {
    service_account_email: &'a str,
    audience: &'a str,
}

#[derive(Deserialize)]
struct CreatedTask {}

impl WakeQueue {
    /// Makes no request. `endpoint`: address of a double of Cloud Tasks.
    pub(crate) fn new(queue: String, url: String, account: String, endpoint: Option<String>) -> WakeQueue {
        WakeQueue { google: GoogleApi::new("Cloud Tasks", SERVICE, endpoint), queue, url, account }
    }

    /// Leaves a task for this time or shortly after; without one, for now.
    pub(crate) async fn leave(&self, at: Option<Timestamp>) -> Result<(), GoogleApiError> {
        let (why, at) = match at {
            Some(at) => ("due", end_of_period(at, PERIOD)),
            None => ("now", end_of_period(Timestamp::now(), PERIOD_OF_NOW)),
        };
        let mut tried = 0;
        loop {
            tried += 1;
            match self.leave_once(why, at).await {
                Err(GoogleApiError::Unanswered { .. } | GoogleApiError::NotNow { .. }) if tried < TRIES => {
                    tokio::time::sleep(PAUSE).await;
                }
                result => return result,
            }
        }
    }

    async fn leave_once(&self, why: &str, at: Timestamp) -> Result<(), GoogleApiError> {
        let oidc_token = WakeToken { service_account_email: &self.account, audience: &self.url };
        let task = WakeTask {
            name: format!("{}/tasks/{why}-{}", self.queue, at.as_second()),
            schedule_time: at.to_string(),
            dispatch_deadline: DEADLINE,
            http_request: WakeRequest { url: &self.url, http_method: "POST", oidc_token },
        };
        let path = format!("v2/{}/tasks", self.queue);
        match self.google.call::<CreatedTask, _>(Method::POST, &path, &[], Some(&CreateTask { task })).await {
            // The task is there.
            Err(GoogleApiError::Refused { status: StatusCode::CONFLICT, .. }) => Ok(()),
            result => result.map(drop),
        }
    }
}

/// Returns the end of the period that this time is in, which is never before it.
pub(super) fn end_of_period(at: Timestamp, seconds: i64) -> Timestamp {
    let whole = at.as_second() + i64::from(at.subsec_nanosecond() > 0);
    Timestamp::from_second(whole + (-whole).rem_euclid(seconds)).unwrap_or(at)
}
