//! Refusals of the service, in the words and codes of both transports. Some exist in Google's own emulator (googleapis/storage-testbench)
//! as well. Those have its code, words and form of the body, and name the emulator's source file. A client that supports both evaluates
//! only the status.

use serde_json::{Value, json};
use std::fmt::Display;

#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// The body has the emulator's form: `RestException.as_response` and `_simple_json_error` of testbench/error.py.
    emulated: bool,
}

impl Refusal {
    fn new(status: u16, reason: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { status, reason, message: message.into(), emulated: false }
    }

    fn emulated(status: u16, message: String) -> Refusal {
        Refusal { emulated: true, ..Refusal::new(status, "", message) }
    }

    /// testbench/database.py `get_bucket`: `notfound`.
    pub(crate) fn no_bucket(bucket: &str) -> Refusal {
        Refusal::emulated(404, format!("Bucket {bucket} does not exist."))
    }

    /// testbench/database.py `__get_object`: `notfound`.
    pub(crate) fn no_object(name: &str) -> Refusal {
        Refusal::emulated(404, format!("{name} does not exist."))
    }

    /// testbench/database.py `get_upload`: `notfound`.
    pub(crate) fn no_upload(id: &str) -> Refusal {
        Refusal::emulated(404, format!("Upload {id} does not exist."))
    }

    /// testbench/common.py `if_generation_match`: `mismatch` of testbench/error.py, also for a wrong checksum.
    pub(crate) fn mismatch(what: &str, expected: impl Display, actual: impl Display) -> Refusal {
        Refusal::emulated(412, format!("{what} validation failed. Expected = {expected} vs Actual = {actual}."))
    }

    /// testbench/common.py `if_generation_not_match`: `notchanged`, for writes as for reads.
    pub(crate) fn not_changed(what: &str, number: i64) -> Refusal {
        Refusal::emulated(304, format!("{what} expected {number} == actual {number} validation failed."))
    }

    /// testbench/common.py `parse_multipart`: `invalid`, unless there are exactly two parts.
    pub(crate) fn malformed() -> Refusal {
        Refusal::emulated(400, "Multipart body is malformed is invalid.".to_owned())
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
        Refusal::forbidden_to("tidelock@example.iam.gserviceaccount.com", permission)
    }

    pub(crate) fn forbidden_to(email: &str, permission: &str) -> Refusal {
        let text = format!(
            "{email} does not have {permission} access to the Google Cloud Storage object. Permission '{permission}' \
             denied on resource (or it may not exist)."
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

    /// Refusal of an injected fault.
    pub(crate) fn fault(status: u16) -> Refusal {
        match status {
            401 => Refusal::new(401, "authError", "Invalid Credentials"),
            403 => Refusal::forbidden("storage.objects.get"),
            412 => Refusal::mismatch("ifGenerationMatch", 0, 1),
            429 => Refusal::too_many("object"),
            _ => Refusal::new(status, "backendError", "We encountered an internal error. Please try again."),
        }
    }

    /// Body of the refusal in the JSON API.
    pub(crate) fn json(&self) -> Value {
        if self.emulated {
            // The message is itself the JSON of an error.
            let message = json!({"error": {"errors": [{"domain": "global", "message": self.message}]}}).to_string();
            return json!({"error": {"code": self.status, "message": message}});
        }
        let error = json!({"message": self.message, "domain": "global", "reason": self.reason});
        json!({"error": {"code": self.status, "message": self.message, "errors": [error]}})
    }

    /// Code of the refusal in gRPC.
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
