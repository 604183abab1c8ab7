//! Names of a job's objects.

use super::FOLDER;
use std::fmt;

/// Digits of a key: 128 random bits, hexadecimal.
const KEY_DIGITS: usize = 32;
/// First segment of the names, and what may separate segments in a text: addresses have them encoded.
const JOBS: &str = "jobs";
const SEPARATORS: [&str; 2] = ["/", "%2F"];
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

    /// Returns the folder of all jobs of the executor, which ends with `/`.
    pub fn folder(&self) -> String {
        format!("{FOLDER}{}/", self.executor)
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

/// Returns a text for people without the keys of jobs: who knows a key can name the job's objects.
pub fn without_keys(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(JOBS) {
        let (before, after) = rest.split_at(at + JOBS.len());
        shown += before;
        rest = after;
        let found = SEPARATORS.iter().find_map(|separator| {
            let (executor, key) = after.strip_prefix(separator)?.split_once(separator)?;
            let (key, behind) = key.split_at_checked(KEY_DIGITS)?;
            JobPrefix::new(executor, key)?;
            Some((format!("{separator}{executor}{separator}…"), behind))
        });
        if let Some((place, behind)) = found {
            shown += &place;
            rest = behind;
        }
    }
    shown + rest
}

/// Returns true if an executor may have this name: a part of object names, of at most 40 characters.
pub fn is_executor_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    (1..=LONGEST_EXECUTOR).contains(&name.len()) && name.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_for_people_has_no_key_of_a_job() {
        let key = "0123456789abcdef0123456789abcdef";
        for (text, shown) in [
            (
                format!("gs://b/t: writing jobs/plans/{key}/spec: no answer"),
                "gs://b/t: writing jobs/plans/…/spec: no answer",
            ),
            (format!("jobs/a/{key} and jobs/b/{key}"), "jobs/a/… and jobs/b/…"),
            (format!("jobs/jobs/{key}/tree"), "jobs/jobs/…/tree"),
            (format!("/jobs/jobs/a/{key}"), "/jobs/jobs/a/…"),
            (
                format!("https://h/o/jobs%2Fplans%2F{key}%2Fclaim?alt=json"),
                "https://h/o/jobs%2Fplans%2F…%2Fclaim?alt=json",
            ),
            (
                "journal/0000000000000001 of two jobs, jobs/plans/x and jobs/".into(),
                "journal/0000000000000001 of two jobs, jobs/plans/x and jobs/",
            ),
        ] {
            assert_eq!(without_keys(&text), shown);
        }
    }
}
