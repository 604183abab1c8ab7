//! What the service says instead of doing it, in the words and codes of both transports.

use serde_json::{Value, json};

/// A refusal.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Refusal {
    fn new(status: u16, reason: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { status, reason, message: message.into() }
    }

    pub(crate) fn no_bucket() -> Refusal {
        Refusal::new(404, "notFound", "The specified bucket does not exist.")
    }

    pub(crate) fn no_object(bucket: &str, name: &str) -> Refusal {
        Refusal::new(404, "notFound", format!("No such object: {bucket}/{name}"))
    }

    pub(crate) fn no_upload() -> Refusal {
        Refusal::new(410, "uploadGone", "The upload session is gone.")
    }

    pub(crate) fn precondition() -> Refusal {
        Refusal::new(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
    }

    pub(crate) fn not_modified() -> Refusal {
        Refusal::new(304, "notModified", "Not modified.")
    }

    pub(crate) fn range() -> Refusal {
        Refusal::new(416, "requestedRangeNotSatisfiable", "Request range not satisfiable")
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Refusal {
        Refusal::new(400, "invalid", message)
    }

    pub(crate) fn unknown(what: &str) -> Refusal {
        Refusal::new(501, "notImplemented", format!("The double does not know {what}."))
    }

    pub(crate) fn too_many(name: &str) -> Refusal {
        let text = format!(
            "The object {name} exceeded the rate limit for object mutation operations (create, update, and delete). \
             Please reduce your request rate."
        );
        Refusal::new(429, "rateLimitExceeded", text)
    }

    pub(crate) fn forbidden(permission: &str) -> Refusal {
        let text = format!(
            "tidelock@example.iam.gserviceaccount.com does not have {permission} access to the Google Cloud Storage \
             object. Permission '{permission}' denied on resource (or it may not exist)."
        );
        Refusal::new(403, "forbidden", text)
    }

    pub(crate) fn retained(name: &str) -> Refusal {
        let text = format!(
            "Object '{name}' is subject to bucket's retention policy or object retention and cannot be deleted or \
             overwritten"
        );
        Refusal::new(403, "retentionPolicyNotMet", text)
    }

    /// What a fault says.
    pub(crate) fn fault(status: u16) -> Refusal {
        match status {
            401 => Refusal::new(401, "authError", "Invalid Credentials"),
            403 => Refusal::forbidden("storage.objects.get"),
            412 => Refusal::precondition(),
            429 => Refusal::too_many("object"),
            _ => Refusal::new(status, "backendError", "We encountered an internal error. Please try again."),
        }
    }

    /// The body of the JSON API.
    pub(crate) fn json(&self) -> Value {
        let error = json!({"message": self.message, "domain": "global", "reason": self.reason});
        json!({"error": {"code": self.status, "message": self.message, "errors": [error]}})
    }

    /// The code of gRPC.
    pub(crate) fn code(&self) -> u32 {
        match self.status {
            304 | 409 => 10,
            400 => 3,
            401 => 16,
            403 => 7,
            404 | 410 => 5,
            412 => 9,
            416 => 11,
            429 => 8,
            501 => 12,
            503 => 14,
            504 => 4,
            _ => 13,
        }
    }
}
