//! `check_run` and `check_suite`: buttons of our check runs, and GitHub's own *Re-run* (docs.github.com/webhooks, `check_run`).
//!
//! GitHub sends `requested_action` and `rerequested` only to the App that posted the check. The App's id is compared nevertheless: other
//! Apps choose the names and external ids of their check runs. The pull request is the one in our external id, as GitHub names none for
//! heads in forks, and for a suite also those of other repositories; without an id it is found by the commit. A delivery has no id in what is signed, so its identity is the digest of its body. It includes the result of the check
//! and the time of the suite's last change.

use super::payload::{CheckApp, Payload, commit, login, or_empty, present, text};
use crate::webhook::Rejection;
use tidelock_core::domain::command::CommandName;
use tidelock_core::domain::{CheckEvent, Event};

/// Check runs whose buttons a door knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KnownChecks {
    /// The server posts none.
    #[default]
    None,
    /// Those of the App with this id.
    OfApp(u64),
    /// All: a server that only stores deliveries does not know the App. The server that leads reads each delivery again.
    OfAll,
}

impl KnownChecks {
    /// Returns true if this App's check runs are known.
    fn has(self, app: Option<&CheckApp>) -> bool {
        match self {
            KnownChecks::None => false,
            KnownChecks::OfApp(ours) => app.and_then(|app| app.id) == Some(ours),
            KnownChecks::OfAll => true,
        }
    }
}

/// Returns true if a suite of checks gives no hint about what people and other tools say of a commit: it has just begun, or is ours.
pub(super) fn is_silent(json: &[u8], known: KnownChecks) -> bool {
    let Ok(payload) = Payload::parse(json) else { return false };
    let of_ours = |app: Option<&CheckApp>| matches!(known, KnownChecks::OfApp(_)) && known.has(app);
    or_empty(&payload.action) == "requested"
        || payload.check_suite.as_ref().is_some_and(|suite| of_ours(suite.app.as_ref()))
}

/// Reads the press of a button on a known check; `None` for everything else.
pub(super) fn read(name: &str, json: &[u8], host: &str, known: KnownChecks) -> Result<Option<Event>, Rejection> {
    let payload = Payload::parse(json)?;
    let command = match (name, or_empty(&payload.action).as_str()) {
        ("check_run", "requested_action") => {
            let asked = present(&payload.requested_action, "requested_action")?;
            let identifier = text(&asked.identifier, "requested_action.identifier")?;
            let buttons = [CommandName::Plan, CommandName::Apply];
            match buttons.into_iter().find(|command| command.as_str() == identifier) {
                Some(command) => command,
                None => return Ok(None),
            }
        }
        (_, "rerequested") => CommandName::Plan,
        _ => return Ok(None),
    };
    let (check, number, sha) = if name == "check_run" {
        let run = present(&payload.check_run, "check_run")?;
        if !known.has(run.app.as_ref()) {
            return Ok(None);
        }
        let external = or_empty(&run.external_id);
        let number = external.split_once(':').and_then(|(number, _)| number.parse().ok());
        (Some(text(&run.name, "check_run.name")?.to_owned()), number, &run.head_sha)
    } else {
        let suite = present(&payload.check_suite, "check_suite")?;
        if !known.has(suite.app.as_ref()) {
            return Ok(None);
        }
        (None, None, &suite.head_sha)
    };
    let head = commit(sha, &format!("{name}.head_sha"))?;
    let (repo, _) = payload.repository(host)?;
    let sender = login(&payload.sender, "sender.login")?;
    Ok(Some(Event::Check(CheckEvent { repo, number, head, check, command, sender })))
}
