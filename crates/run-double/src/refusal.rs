//! Refusals of a service, in the form of all Google APIs.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A refusal: `google.rpc.Status` in JSON (cloud.google.com/apis/design/errors).
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    word: &'static str,
    message: String,
}

impl Refusal {
    pub(crate) fn new(status: u16, word: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { status, word, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Refusal {
        Refusal::new(400, "INVALID_ARGUMENT", message)
    }

    /// Refusal of a path that no call has.
    pub(crate) fn no_such_path() -> Refusal {
        Refusal::new(404, "NOT_FOUND", "The requested URL was not found on this server.")
    }

    pub(crate) fn json(&self) -> Value {
        json!({"error": {"code": self.status, "message": self.message, "status": self.word}})
    }
}

/// Returns the message of a body.
pub(crate) fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::invalid(format!("Invalid JSON payload received. {error}")))
}
