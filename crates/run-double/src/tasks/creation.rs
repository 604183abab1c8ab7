//! The call `tasks.create`: its body, and what Cloud Tasks refuses.

use crate::refusal::{Refusal, parsed};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use url::{Host, Url};

/// Allowed and default time limits of an attempt (`Task.dispatch_deadline`).
const DEADLINES: std::ops::RangeInclusive<u64> = 15..=1800;
const DEADLINE: u64 = 600;
/// Furthest time of a task (docs.cloud.google.com/tasks/docs/quotas).
const FURTHEST: SignedDuration = SignedDuration::from_hours(720);
/// Longest id of a task, in characters (`Task.name`).
const LONGEST_ID: usize = 500;
/// Longest address, in characters (`HttpRequest.url`).
const LONGEST_URL: usize = 2083;

/// `CreateTaskRequest` without `parent`, which is in the path, and without what Tidelock has no use for: an unknown field is an error, as it
/// is for the service.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CreateTaskRequest {
    task: TaskMessage,
}

/// `Task` without fields that are output only.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct TaskMessage {
    name: String,
    schedule_time: Option<String>,
    dispatch_deadline: Option<String>,
    http_request: Option<HttpRequestMessage>,
}

/// `HttpRequest` without headers, body, and tokens for Google's own APIs.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct HttpRequestMessage {
    url: String,
    http_method: String,
    oidc_token: Option<OidcTokenMessage>,
}

/// `OidcToken`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct OidcTokenMessage {
    service_account_email: String,
    audience: String,
}

/// A task that the service takes.
#[derive(Debug, Clone)]
pub(crate) struct Creation {
    /// Full name, if it was given.
    pub(crate) name: Option<String>,
    pub(crate) created: Timestamp,
    pub(crate) scheduled: Timestamp,
    pub(crate) target: Target,
}

/// Where and how a task is delivered.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) url: Url,
    pub(crate) method: Method,
    /// Account and audience of the token.
    pub(crate) token: Option<(String, String)>,
    pub(crate) deadline: Duration,
}

impl Target {
    /// Target of a call without a deadline of its own.
    pub(crate) fn call(url: Url, account: &str, audience: &str) -> Target {
        let token = Some((account.to_owned(), audience.to_owned()));
        Target { url, method: Method::POST, token, deadline: Duration::from_secs(*DEADLINES.end()) }
    }
}

impl Creation {
    /// Reads and checks the body of a call for this queue.
    pub(crate) fn read(queue: &str, body: &[u8]) -> Result<Creation, Refusal> {
        let CreateTaskRequest { task } = parsed(body)?;
        let request = task.http_request.ok_or_else(|| Refusal::invalid("Task.httpRequest must be set"))?;
        let name = Some(task.name).filter(|name| !name.is_empty());
        if let Some(name) = &name {
            check_name(queue, name)?;
        }
        let created = Timestamp::now();
        let scheduled = task.schedule_time.map_or(Ok(created), |text| time(&text, created))?;
        let deadline = task.dispatch_deadline.map_or(Ok(Duration::from_secs(DEADLINE)), |text| deadline(&text))?;
        let token = request.oidc_token.map(|token| {
            if token.service_account_email.is_empty() {
                return Err(Refusal::invalid("OidcToken.serviceAccountEmail must be set"));
            }
            // "If not specified, the URI specified in target will be used" (`OidcToken.audience`).
            let audience = if token.audience.is_empty() { request.url.clone() } else { token.audience };
            Ok((token.service_account_email, audience))
        });
        let (token, method) = (token.transpose()?, method(&request.http_method)?);
        let url = address(&request.url, token.is_some())?;
        Ok(Creation { name, created, scheduled, target: Target { url, method, token, deadline } })
    }

    /// `Task` in JSON, in the view that contains no body.
    pub(crate) fn json(&self, name: &str) -> Value {
        let Target { url, method, token, deadline } = &self.target;
        let mut request = json!({
            "url": url.as_str(), "httpMethod": method.as_str(), "headers": {"User-Agent": "Google-Cloud-Tasks"},
        });
        if let Some((account, audience)) = token {
            request["oidcToken"] = json!({"serviceAccountEmail": account, "audience": audience});
        }
        json!({
            "name": name, "httpRequest": request, "scheduleTime": self.scheduled.to_string(),
            "createTime": self.created.to_string(), "dispatchDeadline": format!("{}s", deadline.as_secs()), "view": "BASIC",
        })
    }
}

/// Checks the name of a task of this queue (`Task.name`).
fn check_name(queue: &str, name: &str) -> Result<(), Refusal> {
    let Some((of, id)) = name.split_once("/tasks/") else {
        return Err(Refusal::invalid("Invalid resource field value in the request."));
    };
    if of != queue {
        return Err(Refusal::invalid(format!(
            "The queue name from request ('{queue}') must be the same as the queue name in the named task ('{of}')."
        )));
    }
    let is_id = (1..=LONGEST_ID).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if is_id {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "Task ID must be [1, {LONGEST_ID}] characters of letters ([A-Za-z]), numbers ([0-9]), hyphens (-), or underscores (_)."
    )))
}

fn time(text: &str, now: Timestamp) -> Result<Timestamp, Refusal> {
    // What jiff takes beyond RFC 3339: other separators, fewer digits, names of zones.
    let bytes = text.as_bytes();
    let offset = text.strip_suffix('Z').is_none().then(|| bytes.len().checked_sub(6).and_then(|at| bytes.get(at)));
    let has_form = bytes.get(10) == Some(&b'T')
        && [13, 16].iter().all(|&at| bytes.get(at) == Some(&b':'))
        && offset.is_none_or(|sign| matches!(sign, Some(b'+' | b'-')))
        && bytes.iter().all(|byte| byte.is_ascii_digit() || b"-:.+TZ".contains(byte));
    let parsed = if has_form { text.parse::<Timestamp>().ok() } else { None };
    let Some(time) = parsed else {
        return Err(Refusal::invalid(format!(
            "Invalid value at 'task.schedule_time' (type.googleapis.com/google.protobuf.Timestamp), Field 'scheduleTime', \
             Invalid time format: Failed to parse input: {text}"
        )));
    };
    if time.duration_since(now) > FURTHEST {
        // The words are those of bettersg/checkMate#510.
        return Err(Refusal::invalid(format!(
            "The Task.scheduleTime, {text}, is too far in the future. Schedule time must be no more than 720h in the future."
        )));
    }
    Ok(time)
}

/// Reads such as `1800s`: `google.protobuf.Duration` in JSON, whole seconds.
fn deadline(text: &str) -> Result<Duration, Refusal> {
    let digits = text.strip_suffix('s').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let Some(seconds) = digits.and_then(|digits| digits.parse::<u64>().ok()) else {
        return Err(Refusal::invalid(
            "Invalid value at 'task.dispatch_deadline' (type.googleapis.com/google.protobuf.Duration), Field \
             'dispatchDeadline', Illegal duration format; duration must end with 's'",
        ));
    };
    if !DEADLINES.contains(&seconds) {
        return Err(Refusal::invalid("Task.dispatchDeadline must be between [15s, 30m]."));
    }
    Ok(Duration::from_secs(seconds))
}

/// Reads a `HttpMethod`; unspecified means POST (`HttpRequest.http_method`).
fn method(text: &str) -> Result<Method, Refusal> {
    Ok(match text {
        "" | "HTTP_METHOD_UNSPECIFIED" | "POST" => Method::POST,
        "GET" => Method::GET,
        "HEAD" => Method::HEAD,
        "PUT" => Method::PUT,
        "DELETE" => Method::DELETE,
        "PATCH" => Method::PATCH,
        "OPTIONS" => Method::OPTIONS,
        _ => {
            return Err(Refusal::invalid(format!(
                "Invalid value at 'task.http_request.http_method' (type.googleapis.com/google.cloud.tasks.v2.HttpMethod), \"{text}\""
            )));
        }
    })
}

/// Reads an address. A token goes to `https` only (googleapis/nodejs-tasks#353), and here to loopback.
fn address(text: &str, has_token: bool) -> Result<Url, Refusal> {
    if text.is_empty() {
        return Err(Refusal::invalid("HttpRequest.url is required."));
    }
    if text.chars().count() > LONGEST_URL {
        return Err(Refusal::invalid(format!("HttpRequest.url must be at most {LONGEST_URL} characters.")));
    }
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.ok_or_else(|| Refusal::invalid("HttpRequest.url must start with 'http://' or 'https://'"))?;
    let is_loopback = match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    if has_token && url.scheme() == "http" && !is_loopback {
        return Err(Refusal::invalid(
            "HttpRequest.url must start with 'https://' for request with HttpRequest.authorization_header",
        ));
    }
    Ok(url)
}
