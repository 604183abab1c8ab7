//! Causes of runs.

use super::DeliveryId;
use super::waiting::ReplanId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Record that caused a run. It ends with the answer of the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "CauseFields", into = "CauseFields")]
pub enum Cause {
    /// No record, as for a drift run.
    #[default]
    None,
    /// A delivery, or work that is recorded like one.
    Delivery(DeliveryId),
    /// An automatic re-plan.
    Replan(ReplanId),
}

/// Fields of a cause in the record of a run.
#[derive(Serialize, Deserialize)]
struct CauseFields {
    delivery: Option<DeliveryId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replan: Option<ReplanId>,
}

impl Cause {
    /// Returns the identity of the delivery, if it is one.
    pub fn delivery(&self) -> Option<&DeliveryId> {
        match self {
            Cause::Delivery(identity) => Some(identity),
            Cause::Replan(_) | Cause::None => None,
        }
    }
}

impl fmt::Display for Cause {
    /// Writes the identity of the delivery, `replan:ID`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Delivery(identity) => f.write_str(identity.as_str()),
            Cause::Replan(ReplanId(id)) => write!(f, "replan:{id}"),
            Cause::None => f.write_str("none"),
        }
    }
}

impl From<DeliveryId> for Cause {
    fn from(identity: DeliveryId) -> Cause {
        Cause::Delivery(identity)
    }
}

impl From<CauseFields> for Cause {
    fn from(fields: CauseFields) -> Cause {
        match (fields.replan, fields.delivery) {
            (Some(id), _) => Cause::Replan(id),
            (None, Some(identity)) => Cause::Delivery(identity),
            (None, None) => Cause::None,
        }
    }
}

impl From<Cause> for CauseFields {
    fn from(cause: Cause) -> CauseFields {
        match cause {
            Cause::Delivery(identity) => CauseFields { delivery: Some(identity), replan: None },
            Cause::Replan(id) => CauseFields { delivery: None, replan: Some(id) },
            Cause::None => CauseFields { delivery: None, replan: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with fields around those of its cause.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct WithCause {
        before: u8,
        #[serde(flatten)]
        cause: Cause,
        after: u8,
    }

    #[test]
    fn a_cause_is_read_from_records_of_all_formats_and_written_like_them() {
        let records = [
            (Cause::None, r#"{"before":1,"delivery":null,"after":2}"#),
            (Cause::Delivery("github:x".into()), r#"{"before":1,"delivery":"github:x","after":2}"#),
            (Cause::Replan(ReplanId(7)), r#"{"before":1,"delivery":null,"replan":7,"after":2}"#),
        ];
        for (cause, json) in records {
            let record = WithCause { before: 1, cause, after: 2 };
            assert_eq!(serde_json::to_string(&record).unwrap(), json);
            assert_eq!(serde_json::from_str::<WithCause>(json).unwrap(), record);
        }
    }
}
