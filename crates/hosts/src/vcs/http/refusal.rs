//! Maps an answer that is no success to an error, by its status, headers and message.

use super::MAX_WAIT;
use super::headers::{limit_header, moment};
use crate::vcs::HostError;
use jiff::Timestamp;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use serde_json::Value;
use std::time::Duration;

/// Longest text of a host that is quoted, in characters.
const MAX_MESSAGE: usize = 300;
/// Message of an answer that gives no reason.
pub(crate) const NO_REASON: &str = "no reason given";
/// Longest target of a redirect that is kept, in characters.
const MAX_LOCATION: usize = 2_000;
/// Wait after a rate limit that names no time (GitHub's advice for secondary limits).
const UNNAMED_WAIT: Duration = Duration::from_secs(60);

/// Returns the error for an answer.
pub(super) fn refusal(what: String, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> HostError {
    let message = error_message(body);
    match status.as_u16() {
        203 => HostError::Denied { what, message: "a page to sign in: the token is not taken there".to_owned() },
        301 | 302 | 303 | 307 | 308 => HostError::Moved { what, to: location(headers) },
        410 if !what.starts_with("POST") => HostError::NotFound { what },
        404 => HostError::NotFound { what },
        429 => HostError::RateLimited { what, wait: wait(headers).unwrap_or(UNNAMED_WAIT) },
        403 if is_locked(&message) => HostError::Rejected { what, status: 403, message },
        403 | 422 if is_too_quick(&message) => HostError::RateLimited { what, wait: UNNAMED_WAIT },
        401 | 403 => match wait(headers) {
            Some(wait) => HostError::RateLimited { what, wait },
            None if is_limit(&message) => HostError::RateLimited { what, wait: UNNAMED_WAIT },
            None => HostError::Denied { what, message },
        },
        408 | 500..=599 => HostError::Unavailable { what, message: format!("{status}: {message}") },
        status => HostError::Rejected { what, status, message },
    }
}

fn is_limit(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["rate limit", "abuse detection"].iter().any(|words| message.contains(words))
}

/// Returns true if the conversation is locked: people without write access cannot comment until somebody unlocks it.
fn is_locked(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["issue is locked", "conversation is locked", "on a locked issue"].iter().any(|words| message.contains(words))
}

/// Returns true for GitHub's answer to many comments in a row, which has the status of an invalid request.
fn is_too_quick(message: &str) -> bool {
    message.to_ascii_lowercase().contains("submitted too quickly")
}

/// Returns the duration of a rate limit; absent if the headers report none.
fn wait(headers: &HeaderMap) -> Option<Duration> {
    let number = |value: Option<&HeaderValue>| value?.to_str().ok()?.trim().parse::<u64>().ok();
    if let Some(seconds) = number(headers.get(RETRY_AFTER)) {
        return Some(Duration::from_secs(seconds.max(1)).min(MAX_WAIT));
    }
    if number(limit_header(headers, "remaining")) != Some(0) {
        return None;
    }
    // The reset is a time by the host's clock; ours may be wrong.
    let now = moment(headers).unwrap_or_else(Timestamp::now).as_second().unsigned_abs();
    let reset = number(limit_header(headers, "reset")).map(|at| at.saturating_sub(now).max(1));
    Some(reset.map_or(UNNAMED_WAIT, Duration::from_secs).min(MAX_WAIT))
}

/// Target of a redirect.
fn location(headers: &HeaderMap) -> String {
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("nowhere");
    location.chars().take(MAX_LOCATION).collect()
}

/// Returns the host's message in the body of an error, in one line. Hosts write it as `message` or `error`: a text, a list of texts, or an
/// object with texts of fields or with a `message` of its own.
fn error_message(body: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return NO_REASON.to_owned() };
    let told = [&value["message"], &value["error"]["message"], &value["error"]];
    let first = told.into_iter().map(words_of).find(|words| !words.is_empty());
    let mut words: Vec<String> = first.into_iter().collect();
    words.extend(value["error_description"].as_str().map(str::to_owned));
    words.extend(details(&value["error"]));
    for error in value["errors"].as_array().into_iter().flatten() {
        let field = |name: &str| error[name].as_str().unwrap_or_default();
        words.push(match error.as_str().unwrap_or(field("message")) {
            "" => format!("{} {}", field("field"), field("code")),
            text => text.to_owned(),
        });
        let vetoes = error["vetoes"].as_array().into_iter().flatten();
        words.extend(vetoes.filter_map(|veto| veto["detailedMessage"].as_str().map(str::to_owned)));
    }
    words.retain(|words| !words.trim().is_empty());
    let text = if words.is_empty() { NO_REASON.to_owned() } else { words.join("; ") };
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_MESSAGE)
        .collect()
}

/// Returns what Bitbucket Cloud says besides the message of an error: a text, the scopes that a token lacks, and texts of fields
/// (npm @coderabbitai/bitbucket, `error`).
fn details(error: &Value) -> Vec<String> {
    let detail = &error["detail"];
    let mut found: Vec<String> = detail.as_str().map(str::to_owned).into_iter().collect();
    for (key, name) in [("required", "required scopes"), ("granted", "the token's scopes")] {
        let listed = words_of(&detail[key]);
        found.extend((!listed.is_empty()).then(|| format!("{name}: {}", listed.replace("; ", " "))));
    }
    let fields = words_of(&error["fields"]);
    found.extend((!fields.is_empty()).then_some(fields));
    found
}

/// Returns the texts in a message: `text`, `["text"]` or `{"field": ["text"]}`.
fn words_of(message: &Value) -> String {
    match message {
        Value::String(text) => text.clone(),
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; "),
        Value::Object(fields) => {
            let named = fields.iter().map(|(field, texts)| (field, words_of(texts)));
            named
                .filter(|(_, text)| !text.is_empty())
                .map(|(field, text)| format!("{field} {text}"))
                .collect::<Vec<_>>()
                .join("; ")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_limit_is_waited_for_by_the_hosts_clock() {
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-remaining", HeaderValue::from_static("0"));
        // 90 seconds after the answer, by the host's clock, which is years behind ours.
        headers.insert("x-ratelimit-reset", HeaderValue::from_static("1577836890"));
        headers.insert("date", HeaderValue::from_static("Wed, 01 Jan 2020 00:00:00 GMT"));
        assert_eq!(wait(&headers), Some(Duration::from_secs(90)));
        // Years ahead of ours.
        headers.insert("x-ratelimit-reset", HeaderValue::from_static("4102444830"));
        headers.insert("date", HeaderValue::from_static("Fri, 01 Jan 2100 00:00:00 GMT"));
        assert_eq!(wait(&headers), Some(Duration::from_secs(30)));
        headers.remove("date");
        assert_eq!(wait(&headers), Some(MAX_WAIT));
    }

    #[test]
    fn a_rate_limit_is_read_without_the_x_as_well() {
        let mut headers = HeaderMap::new();
        headers.insert("ratelimit-remaining", HeaderValue::from_static("0"));
        headers.insert("ratelimit-reset", HeaderValue::from_static("1577836890"));
        headers.insert("date", HeaderValue::from_static("Wed, 01 Jan 2020 00:00:00 GMT"));
        assert_eq!(wait(&headers), Some(Duration::from_secs(90)));
        headers.insert("ratelimit-remaining", HeaderValue::from_static("1"));
        assert_eq!(wait(&headers), None);
    }

    #[test]
    fn a_message_is_read_in_every_shape_as_one_short_line() {
        for (body, want) in [
            (r#"{"message": "404 Project Not Found"}"#, "404 Project Not Found"),
            (r#"{"message": {"name": ["is too long", "is\r\nodd"], "url": []}}"#, "name is too long; is odd"),
            (r#"{"message": ["one", "two"]}"#, "one; two"),
            (r#"{"error": "insufficient_scope"}"#, "insufficient_scope"),
            (
                r#"{"error": "invalid_token", "error_description": "Token is expired."}"#,
                "invalid_token; Token is expired.",
            ),
            (r#"{"error": {"message": "Repository not found", "detail": {"x": "y"}}}"#, "Repository not found"),
            (
                r#"{"message": "Validation Failed", "errors": [{"field": "body", "code": "invalid"}]}"#,
                "Validation Failed; body invalid",
            ),
            (
                r#"{"type": "error", "error": {"message": "Bad request", "detail": "Try\n later", "fields": {"key": ["too long"]}}}"#,
                "Bad request; Try later; key too long",
            ),
            (
                r#"{"type": "error", "error": {"message": "No privilege.", "detail": {"granted": ["repository"], "required": ["a", "b"]}}}"#,
                "No privilege.; required scopes: a b; the token's scopes: repository",
            ),
            (
                r#"{"errors": [{"context": null, "message": "It is vetoed.", "vetoes": [{"summaryMessage": "a", "detailedMessage": "One more."}]}]}"#,
                "It is vetoed.; One more.",
            ),
            (r#"{"message": null}"#, "no reason given"),
            (r#"{"errors": []}"#, "no reason given"),
            ("<html>", "no reason given"),
        ] {
            assert_eq!(error_message(body.as_bytes()), want, "{body}");
        }
        let long = format!(r#"{{"message": {{"base": ["{}"]}}}}"#, "x".repeat(1000));
        assert_eq!(error_message(long.as_bytes()).chars().count(), MAX_MESSAGE);
    }
}
