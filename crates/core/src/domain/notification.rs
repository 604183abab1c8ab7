//! Messages to those who are told besides the pull request.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One message to one receiver, as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notification {
    /// The same for every try, and for nothing else.
    pub id: String,
    /// Whom it is for, by a name that does not change with the order of the settings and says nothing secret.
    pub receiver: String,
    /// What is sent.
    pub body: Value,
}
