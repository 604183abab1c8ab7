//! Messages about applies to receivers besides the pull request.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One message to one receiver, as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notification {
    /// Id that is the same in every attempt, and unique to this message.
    pub id: String,
    /// The receiver, by a name that does not depend on the order of the settings and reveals no secret.
    pub receiver: String,
    /// JSON to send.
    pub body: Value,
}
