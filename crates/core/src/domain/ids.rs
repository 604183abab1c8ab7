//! Identifiers. Each kind is a type of its own, so that one cannot be used in place of another. In JSON and SQL all are plain text.
//!
//! Text from outside is checked when it is received. Text in our own records is not checked again.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Declares an identifier that is written as text.
macro_rules! id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Returns its text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            /// Formats its text.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        #[cfg(any(test, feature = "test-support"))]
        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }

        #[cfg(any(test, feature = "test-support"))]
        impl From<String> for $name {
            /// Accepts any text: tests use short names.
            fn from(text: String) -> $name {
                $name(text)
            }
        }

        #[cfg(any(test, feature = "test-support"))]
        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                $name(text.to_owned())
            }
        }
    };
}

id! {
    /// Identity of a delivery. It is derived from content that its host has signed, or from a decision of this server that no host signed.
    DeliveryId
}

impl DeliveryId {
    /// Creates it from text that begins with the kind of host, or with the prefix of the server's own deliveries.
    pub fn new(text: String) -> DeliveryId {
        DeliveryId(text)
    }
}

/// Hex digits of an identifier that this server creates.
const DIGITS: usize = 32;

/// Implements the form of identifiers that this server creates: 128 bits in hex.
macro_rules! of_bits {
    ($($name:ident),*) => {
        $(impl $name {
            /// Creates it from random bits.
            pub fn from_bits(bits: u128) -> $name {
                $name(format!("{bits:032x}"))
            }

            /// Parses text from outside; none if it does not have this form.
            pub fn parse(text: &str) -> Option<$name> {
                (text.len() == DIGITS && text.bytes().all(is_hex)).then(|| $name(text.to_owned()))
            }
        })*
    };
}

id! {
    /// Id of a plan: 128 random bits, hex.
    PlanId
}

id! {
    /// Id of a run: 128 random bits, hex. It is the `run` of the comment marker. A reply that belongs to no run has an id of its own.
    RunId
}

id! {
    /// Id of a job, which owns a log at `/jobs/<id>`: 128 random bits, hex.
    JobId
}

impl JobId {
    /// Creates it from a database column, whose text was checked before.
    pub fn stored(text: String) -> JobId {
        JobId(text)
    }
}

of_bits!(PlanId, RunId, JobId);

id! {
    /// Full id of a commit: 40 hex digits of SHA-1, or 64 of SHA-256.
    CommitSha
}

/// Error for text that is not a commit id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a commit id")]
pub struct NotACommit(String);

impl CommitSha {
    /// Parses a commit id from a host or git.
    ///
    /// # Errors
    ///
    /// [`NotACommit`] unless it is 40 or 64 lower-case hex digits.
    pub fn parse(text: &str) -> Result<CommitSha, NotACommit> {
        match matches!(text.len(), 40 | 64) && text.bytes().all(is_hex) {
            true => Ok(CommitSha(text.to_owned())),
            false => Err(NotACommit(text.chars().take(64).collect())),
        }
    }

    /// Returns its first seven digits, for people.
    pub fn short(&self) -> &str {
        self.0.get(..7).unwrap_or(&self.0)
    }
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}
