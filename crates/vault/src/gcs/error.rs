//! The errors of both transports as one type.

use super::super::bucket::BucketError;
use super::{AccountRights, Address};
use google_cloud_gax::error::CredentialsError;
use google_cloud_gax::error::rpc::Code;
use google_cloud_storage::Error;
use std::error::Error as _;
use std::time::Duration;

/// Characters of the service's message that are passed on.
const MAX_WORDS: usize = 500;

/// Failure of a call to Cloud Storage.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallError {
    /// No such object, or no such bucket.
    Absent,
    /// No such bucket.
    NoBucket,
    /// The upload's session has ended.
    Gone,
    /// The object has another generation.
    Precondition,
    /// The range begins beyond the end of the object.
    Range,
    /// One object was changed twice within a second. A later try may succeed.
    RateLimited(String),
    /// The credentials were refused. The call is retried, because a token may just have expired.
    Unauthenticated(String),
    /// The permission is missing.
    PermissionDenied(String),
    /// There was no answer, or none that shows the outcome. Another try may succeed.
    Unanswered(String),
    /// The call cannot succeed, for the reason in the text.
    Refused(String),
}

impl CallError {
    /// Error of a call without an answer within this time.
    pub(super) fn timed_out(after: Duration) -> CallError {
        CallError::Unanswered(format!("nothing came for {:.1} s", after.as_secs_f64()))
    }

    pub(super) fn from_error(error: &Error) -> CallError {
        let words = message_of(error);
        if error.is_authentication() {
            let passing = source::<CredentialsError>(error).is_some_and(CredentialsError::is_transient);
            return if passing { CallError::Unanswered(words) } else { CallError::Unauthenticated(words) };
        }
        if error.is_binding() || (error.is_serialization() && source::<std::io::Error>(error).is_some()) {
            return CallError::Refused(words);
        }
        match (error.http_status_code(), error.status()) {
            (Some(status), _) => CallError::of_status(status, words),
            (None, Some(status)) => CallError::of_status(http_status(status.code), words),
            (None, None) => CallError::Unanswered(words),
        }
    }

    pub(super) fn of_status(status: u16, words: String) -> CallError {
        match status {
            401 => CallError::Unauthenticated(words),
            403 => CallError::PermissionDenied(words),
            // Also for a missing bucket. The message differs between implementations, so the caller checks.
            404 => CallError::Absent,
            // A violated policy of the organisation has the same status, and a retry cannot succeed.
            412 if words.contains("constraint") => CallError::Refused(words),
            412 => CallError::Precondition,
            416 => CallError::Range,
            429 => CallError::RateLimited(words),
            501 => CallError::Refused(words),
            410 => CallError::Gone,
            308 | 408 | 409 | 500.. => CallError::Unanswered(format!("status {status}: {words}")),
            _ => CallError::Refused(words),
        }
    }

    /// Returns true if another attempt may succeed.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, CallError::Unanswered(_) | CallError::RateLimited(_) | CallError::Unauthenticated(_))
    }

    /// Converts the error of a call for which only the bucket can be missing.
    pub(super) fn of_bucket(self) -> CallError {
        if self == CallError::Absent { CallError::NoBucket } else { self }
    }

    /// Returns true if the request may have been done, or be done later. A 429 counts: it may be about our own write of a moment ago.
    pub(super) fn leaves_outcome_unknown(&self) -> bool {
        matches!(self, CallError::Unanswered(_) | CallError::RateLimited(_))
    }

    /// Converts this error of a write that follows an attempt with an unknown outcome: after a refusal, the outcome is still unknown.
    pub(super) fn after_unknown_outcome(self) -> CallError {
        let words = match self {
            // `Absent` is the aim of a deletion; for a creation, `of_bucket` has converted it.
            CallError::Absent | CallError::Precondition | CallError::Unanswered(_) | CallError::RateLimited(_) => {
                return self;
            }
            CallError::Gone => "it is gone".to_owned(),
            CallError::NoBucket => "the bucket does not exist".to_owned(),
            CallError::Range => "the range is refused".to_owned(),
            CallError::Unauthenticated(words) | CallError::PermissionDenied(words) | CallError::Refused(words) => words,
        };
        CallError::Unanswered(format!("an attempt had no answer, and the next one was refused: {words}"))
    }

    /// Converts to the error for the operator.
    pub(super) fn into_error(self, address: &Address, rights: &AccountRights, doing: &str) -> BucketError {
        let (location, doing) = (address.text().to_owned(), doing.to_owned());
        let bucket = address.bucket();
        let reason = match self {
            CallError::Unanswered(reason) | CallError::RateLimited(reason) => {
                return BucketError::Unavailable { location, doing, reason };
            }
            CallError::Absent | CallError::Gone => "there is no such object".to_owned(),
            CallError::Precondition => "its generation is another one".to_owned(),
            CallError::Range => "it ends before that range".to_owned(),
            CallError::NoBucket => format!(
                "the bucket does not exist. Create it: gcloud storage buckets create gs://{bucket} \
                 --location=REGION --uniform-bucket-level-access"
            ),
            CallError::Unauthenticated(words) => format!(
                "these credentials are not accepted: {words}. On Google Cloud the service account is used; elsewhere run \
                 gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS"
            ),
            // A retention policy or a closed billing account has the same status, and its message says so.
            CallError::PermissionDenied(words) if !words.to_ascii_lowercase().contains("permission") => words,
            CallError::PermissionDenied(words) => {
                let advice = match rights {
                    AccountRights::Objects => grant(bucket, "roles/storage.objectUser"),
                    AccountRights::Folder(folder) => grant_in(address, folder),
                };
                format!("{}. {advice}", words.trim_end_matches('.'))
            }
            CallError::Refused(words) => words,
        };
        BucketError::Refused { location, doing, reason }
    }
}

/// Returns advice to the operator on granting a role on the bucket.
pub(super) fn grant(bucket: &str, role: &str) -> String {
    format!(
        "Grant {role} on the bucket: gcloud storage buckets add-iam-policy-binding gs://{bucket} \
         --member=serviceAccount:ACCOUNT --role={role}"
    )
}

/// Returns advice to the operator on granting what a job needs in a folder below the prefix.
fn grant_in(address: &Address, folder: &str) -> String {
    let (bucket, prefix) = (address.bucket(), address.prefix());
    format!(
        "Grant roles/storage.objectCreator and roles/storage.objectViewer on the objects of this folder: for each ROLE of them \
         gcloud storage buckets add-iam-policy-binding gs://{bucket} --member=serviceAccount:ACCOUNT --role=ROLE \
         --condition='title=jobs,expression=resource.name.startsWith(\"projects/_/buckets/{bucket}/objects/{prefix}{folder}\")'"
    )
}

fn http_status(code: Code) -> u16 {
    match code {
        Code::InvalidArgument => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::FailedPrecondition => 412,
        Code::OutOfRange => 416,
        Code::ResourceExhausted => 429,
        Code::Unimplemented => 501,
        _ => 503,
    }
}

fn source<T: std::error::Error + 'static>(error: &Error) -> Option<&T> {
    let mut next = error.source();
    while let Some(inner) = next {
        if let Some(found) = inner.downcast_ref::<T>() {
            return Some(found);
        }
        next = inner.source();
    }
    None
}

/// Returns the service's own message, or else the whole chain of errors.
fn message_of(error: &Error) -> String {
    let text = match (error.status(), error.http_payload()) {
        (Some(status), _) if !status.message.is_empty() => status.message.clone(),
        (_, Some(payload)) if !payload.is_empty() => String::from_utf8_lossy(payload).into_owned(),
        _ => {
            let mut text = error.to_string();
            let mut next = error.source();
            while let Some(inner) = next {
                let inner_text = inner.to_string();
                if !text.contains(&inner_text) {
                    text = format!("{text}: {inner_text}");
                }
                next = inner.source();
            }
            text
        }
    };
    shortened(&text)
}

/// Puts a text on one line and cuts it to [`MAX_WORDS`] characters.
pub(super) fn shortened(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(status: u16, body: &str) -> CallError {
        CallError::from_error(&Error::http(
            status,
            http::HeaderMap::new(),
            bytes::Bytes::copy_from_slice(body.as_bytes()),
        ))
    }

    fn grpc(code: Code, message: &str) -> CallError {
        let status = google_cloud_gax::error::rpc::Status::default().set_code(code).set_message(message);
        CallError::from_error(&Error::service(status))
    }

    #[test]
    fn both_transports_say_the_same() {
        let bucket = "The specified bucket does not exist.";
        for (status, code, words, answer) in [
            (404, Code::NotFound, "No such object: b/x", CallError::Absent),
            (404, Code::NotFound, bucket, CallError::Absent),
            (412, Code::FailedPrecondition, "At least one of the pre-conditions", CallError::Precondition),
            (
                412,
                Code::FailedPrecondition,
                "violates constraint x",
                CallError::Refused("violates constraint x".into()),
            ),
            (
                403,
                Code::PermissionDenied,
                "Permission 'x' denied",
                CallError::PermissionDenied("Permission 'x' denied".into()),
            ),
            (
                401,
                Code::Unauthenticated,
                "Invalid Credentials",
                CallError::Unauthenticated("Invalid Credentials".into()),
            ),
            (429, Code::ResourceExhausted, "rate limit", CallError::RateLimited("rate limit".into())),
            (416, Code::OutOfRange, "range", CallError::Range),
            (400, Code::InvalidArgument, "bad", CallError::Refused("bad".into())),
            (503, Code::Unavailable, "busy", CallError::Unanswered("status 503: busy".into())),
            (503, Code::Internal, "busy", CallError::Unanswered("status 503: busy".into())),
        ] {
            assert_eq!(http(status, words), answer);
            assert_eq!(grpc(code, words), answer);
        }
        assert_eq!(http(410, "gone"), CallError::Gone);
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        for (answer, passes) in [
            (http(503, ""), true),
            (http(429, ""), true),
            (http(401, ""), true),
            (CallError::from_error(&Error::io("reset")), true),
            (CallError::from_error(&Error::timeout("late")), true),
            (http(403, ""), false),
            (http(412, ""), false),
            (http(404, ""), false),
            (http(400, ""), false),
        ] {
            assert_eq!(answer.is_transient(), passes, "{answer:?}");
        }
    }

    #[test]
    fn a_refusal_after_an_attempt_without_an_answer_says_nothing_of_that_one() {
        for status in [400, 401, 403, 501] {
            assert!(
                matches!(http(status, "no").after_unknown_outcome(), CallError::Unanswered(words) if words.ends_with(": no")),
                "{status}"
            );
        }
        assert!(matches!(http(404, "").of_bucket().after_unknown_outcome(), CallError::Unanswered(_)));
        assert_eq!(http(404, "").after_unknown_outcome(), CallError::Absent);
        assert_eq!(http(412, "").after_unknown_outcome(), CallError::Precondition);
        let doubtful = [503, 500, 408, 429].map(|status| http(status, "").leaves_outcome_unknown());
        let sure = [400, 401, 403, 404, 412].map(|status| http(status, "").leaves_outcome_unknown());
        assert_eq!((doubtful, sure), ([true; 4], [false; 5]));
    }

    #[test]
    fn errors_say_what_to_do() {
        let address = Address::parse("gs://acme/prod").unwrap();
        let text =
            |answer: CallError| answer.into_error(&address, &AccountRights::Objects, "writing journal/1").to_string();
        insta::assert_snapshot!(text(CallError::NoBucket), @"gs://acme/prod: writing journal/1: the bucket does not exist. Create it: gcloud storage buckets create gs://acme --location=REGION --uniform-bucket-level-access");
        insta::assert_snapshot!(text(CallError::PermissionDenied("Permission 'storage.objects.create' denied".into())), @"gs://acme/prod: writing journal/1: Permission 'storage.objects.create' denied. Grant roles/storage.objectUser on the bucket: gcloud storage buckets add-iam-policy-binding gs://acme --member=serviceAccount:ACCOUNT --role=roles/storage.objectUser");
        insta::assert_snapshot!(text(CallError::PermissionDenied("Object is subject to bucket's retention policy".into())), @"gs://acme/prod: writing journal/1: Object is subject to bucket's retention policy");
        insta::assert_snapshot!(text(CallError::Unauthenticated("Invalid Credentials".into())), @"gs://acme/prod: writing journal/1: these credentials are not accepted: Invalid Credentials. On Google Cloud the service account is used; elsewhere run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS");
        insta::assert_snapshot!(text(CallError::timed_out(Duration::from_secs(4))), @"gs://acme/prod: writing journal/1: no answer: nothing came for 4.0 s");
        let rights = AccountRights::Folder("jobs/plans/".into());
        let denied = CallError::PermissionDenied("Permission 'storage.objects.create' denied".into());
        insta::assert_snapshot!(denied.into_error(&address, &rights, "writing jobs/plans/0123456789abcdef0123456789abcdef/claim"), @r#"gs://acme/prod: writing jobs/plans/…/claim: Permission 'storage.objects.create' denied. Grant roles/storage.objectCreator and roles/storage.objectViewer on the objects of this folder: for each ROLE of them gcloud storage buckets add-iam-policy-binding gs://acme --member=serviceAccount:ACCOUNT --role=ROLE --condition='title=jobs,expression=resource.name.startsWith("projects/_/buckets/acme/objects/prod/jobs/plans/")'"#);
    }
}
