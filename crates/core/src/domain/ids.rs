//! Identifiers. Each kind is a type of its own, so that none is taken for another. In JSON and SQL all are plain text.
//!
//! Text from outside is checked where it comes in. What our own records hold was checked then.

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
            /// As it is written.
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
            /// As its text.
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
            /// Unchecked: tests use short names.
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
    /// Identity of a delivery, made of what its host has signed, or of what this server has concluded without one.
    DeliveryId
}

impl DeliveryId {
    /// From text that begins with the kind of host, or with what says that this server concluded it.
    pub fn new(text: String) -> DeliveryId {
        DeliveryId(text)
    }
}

/// Hex digits of an identifier that this server makes.
const DIGITS: usize = 32;

/// Gives identifiers that this server makes their form: 128 bits in hex.
macro_rules! of_bits {
    ($($name:ident),*) => {
        $(impl $name {
            /// From random bits.
            pub fn of(bits: u128) -> $name {
                $name(format!("{bits:032x}"))
            }

            /// From text that came from outside; none where it has not the form.
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
    /// Id of a run: 128 random bits, hex. The `run` of the comment marker; a reply that belongs to no run has one of its own.
    RunId
}

id! {
    /// Id of a job, which owns a log at `/jobs/<id>`: 128 random bits, hex.
    JobId
}

impl JobId {
    /// From a column of our own, where it was checked.
    pub fn stored(text: String) -> JobId {
        JobId(text)
    }
}

of_bits!(PlanId, RunId, JobId);

id! {
    /// Full id of a commit: 40 hex digits of SHA-1, or 64 of SHA-256.
    CommitSha
}

/// Text that is no commit id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a commit id")]
pub struct NotACommit(String);

impl CommitSha {
    /// From what a host or git says.
    ///
    /// # Errors
    ///
    /// [`NotACommit`] where it is anything but 40 or 64 lower-case hex digits.
    pub fn parse(text: &str) -> Result<CommitSha, NotACommit> {
        match matches!(text.len(), 40 | 64) && text.bytes().all(is_hex) {
            true => Ok(CommitSha(text.to_owned())),
            false => Err(NotACommit(text.chars().take(64).collect())),
        }
    }

    /// Its first seven digits, for people.
    pub fn short(&self) -> &str {
        self.0.get(..7).unwrap_or(&self.0)
    }
}

id! {
    /// What a person, or a program, is called on a host. Hosts do not tell case apart in it: compare with [`Login::is`].
    Login
}

impl Login {
    /// From a host's word, or a setting.
    pub fn new(text: impl Into<String>) -> Login {
        Login(text.into())
    }

    /// Of an account that is gone, or that the host does not tell. Records have it as empty text.
    pub fn unknown() -> Login {
        Login(String::new())
    }

    /// Whether nobody knows who it is.
    pub fn is_unknown(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether both are the same account. One that is unknown is nobody's.
    pub fn is(&self, other: &Login) -> bool {
        !self.is_unknown() && self.0.eq_ignore_ascii_case(&other.0)
    }
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}
