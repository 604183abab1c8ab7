//! Names of a job's objects.

use super::FOLDER;
use std::fmt;

/// Digits of a key: 128 random bits, hexadecimal.
const KEY_DIGITS: usize = 32;
/// Longest name of an executor.
const LONGEST_EXECUTOR: usize = 40;

/// Prefix of all objects of one job: `jobs/<executor>/<key>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JobPrefix {
    executor: String,
    key: String,
}

impl JobPrefix {
    /// Returns the prefix of a job; absent if one of the names cannot be part of one. `key` has 32 hexadecimal digits.
    pub fn new(executor: &str, key: &str) -> Option<JobPrefix> {
        let is_key = key.len() == KEY_DIGITS && key.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (is_executor_name(executor) && is_key).then(|| JobPrefix { executor: executor.to_owned(), key: key.to_owned() })
    }

    /// Parses `jobs/<executor>/<key>`.
    pub fn parse(text: &str) -> Option<JobPrefix> {
        let (executor, key) = text.strip_prefix(FOLDER)?.split_once('/')?;
        JobPrefix::new(executor, key)
    }

    /// Returns the prefix of the job that an object belongs to; absent for another program's object.
    pub(super) fn of_object(name: &str) -> Option<JobPrefix> {
        let mut segments = name.strip_prefix(FOLDER)?.splitn(3, '/');
        let prefix = JobPrefix::new(segments.next()?, segments.next()?)?;
        segments.next().map(|_| prefix)
    }

    /// Returns the name of the executor.
    pub fn executor(&self) -> &str {
        &self.executor
    }

    /// Returns the key.
    pub fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn object(&self, object: &str) -> String {
        format!("{self}/{object}")
    }

    pub(super) fn numbered(&self, object: &str, number: u32) -> String {
        format!("{self}/{object}/{number:08}")
    }
}

impl fmt::Display for JobPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FOLDER}{}/{}", self.executor, self.key)
    }
}

/// Returns true if an executor may have this name: a part of object names, of at most 40 characters.
pub fn is_executor_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    (1..=LONGEST_EXECUTOR).contains(&name.len()) && name.bytes().all(fits)
}
