//! Parses what Terraform and OpenTofu report about state locks. There are two sources: the error of a command that could not get one, and
//! the file that the local backend keeps next to a state. Pure.

use super::summary::strip_ansi;
use jiff::Timestamp;
use serde_json::Value;
use tidelock_core::domain::state::StateLock;

/// Longest field of a lock's description, in characters.
const MAX_FIELD: usize = 200;

/// Returns the lock in the output of a command that could not acquire it; `None` without such an error.
pub fn find_lock(output: &str) -> Option<StateLock> {
    let text = strip_ansi(output);
    let after = &text[text.find("Error acquiring the state lock")?..];
    let info = &after[after.find("Lock Info:")?..];
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.trim_start_matches(['│', ' ']).strip_prefix(name))?;
        Some(value.trim().chars().take(MAX_FIELD).collect::<String>())
    };
    let id = field("ID:").filter(|id| !id.is_empty())?;
    // The `http` backend prints the description of the wanted lock, and only the ID of the held one.
    let other = after.split_once("already locked: ID=").and_then(|(_, rest)| rest.split_whitespace().next());
    if let Some(other) = other.filter(|other| *other != id) {
        let id = other.chars().take(MAX_FIELD).collect();
        return Some(StateLock { id, operation: String::new(), who: String::new(), created: None });
    }
    Some(StateLock {
        id,
        operation: field("Operation:").unwrap_or_default(),
        who: field("Who:").unwrap_or_default(),
        created: field("Created:").and_then(|text| created(&text)),
    })
}

/// Returns the lock in a file `.<state>.lock.info`; `None` if it is not such a file.
pub fn in_file(json: &str) -> Option<StateLock> {
    let value: Value = serde_json::from_str(json).ok()?;
    let field = |name: &str| value[name].as_str().map(|text| text.chars().take(MAX_FIELD).collect::<String>());
    Some(StateLock {
        id: field("ID").filter(|id| !id.is_empty())?,
        operation: field("Operation").unwrap_or_default(),
        who: field("Who").unwrap_or_default(),
        created: field("Created").and_then(|text| text.parse().ok()),
    })
}

/// Returns true if the state is a local file. Its lock ends with its process, so `force-unlock` has nothing to do.
pub fn is_local(output: &str) -> bool {
    output.contains("LocalState not locked") || output.contains("Local state cannot be unlocked by another process")
}

/// Parses a time in Go's format, such as `2026-11-21 15:10:29.484273086 +0000 UTC`.
fn created(text: &str) -> Option<Timestamp> {
    let words: Vec<&str> = text.split(' ').collect();
    let [date, time, offset, ..] = words.as_slice() else { return None };
    let zone = if *offset == "+0000" { "Z".to_owned() } else { format!("{}:{}", offset.get(..3)?, offset.get(3..)?) };
    format!("{date}T{time}{zone}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: &str = "\u{1b}[31m╷\u{1b}[0m\n│ \u{1b}[1mError: Error acquiring the state lock\u{1b}[0m\n│ \n\
        │ Error message: resource temporarily unavailable\n│ Lock Info:\n│   ID:        03c263d5-44a8-ee6d-6b94-f55764557ba4\n\
        │   Path:      /tmp/a.tfstate\n│   Operation: OperationTypeApply\n│   Who:       root@vm\n│   Version:   1.11.4\n\
        │   Created:   2026-11-21 15:10:29.484273086 +0000 UTC\n│   Info:      \n╵\n";

    #[test]
    fn a_lock_is_read_from_the_error_of_who_met_it_and_from_its_file() {
        let lock = StateLock {
            id: "03c263d5-44a8-ee6d-6b94-f55764557ba4".into(),
            operation: "OperationTypeApply".into(),
            who: "root@vm".into(),
            created: Some("2026-11-21T15:10:29.484273086Z".parse().unwrap()),
        };
        assert_eq!(find_lock(ERROR), Some(lock.clone()));
        let file = r#"{"ID":"03c263d5-44a8-ee6d-6b94-f55764557ba4","Operation":"OperationTypeApply","Info":"","Who":"root@vm",
            "Version":"1.11.4","Created":"2026-11-21T15:10:29.484273086Z","Path":"/tmp/a.tfstate"}"#;
        assert_eq!(in_file(file), Some(lock));
    }

    #[test]
    fn of_a_lock_on_an_http_backend_only_the_id_is_known() {
        let error = ERROR.replace("resource temporarily unavailable", "HTTP remote state already locked: ID=aaaa-1");
        let nobody = StateLock { id: "aaaa-1".into(), operation: String::new(), who: String::new(), created: None };
        assert_eq!(find_lock(&error), Some(nobody));
    }

    #[test]
    fn what_is_no_lock_is_none() {
        for text in [
            "",
            "Lock Info:\n  ID: x",
            "Error acquiring the state lock\nLock Info:\n",
            "Error acquiring the state lock",
        ] {
            assert_eq!(find_lock(text), None, "{text}");
        }
        for text in ["", "{}", "[]", r#"{"ID":""}"#, r#"{"ID":1}"#] {
            assert_eq!(in_file(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_read_in_every_zone() {
        for (text, want) in [
            ("2026-11-21 15:10:29 +0000 UTC", "2026-11-21T15:10:29Z"),
            ("2026-11-21 15:10:29.5 +0130 CEST m=+0.1", "2026-11-21T13:40:29.5Z"),
            ("2026-11-21 15:10:29 -0800 PST", "2026-11-21T23:10:29Z"),
        ] {
            assert_eq!(created(text), Some(want.parse().unwrap()), "{text}");
        }
        assert_eq!(created("yesterday"), None);
        assert_eq!(created("2026-11-21 15:10:29 é"), None);
    }
}
