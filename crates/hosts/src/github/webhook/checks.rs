//! `check_run` and `check_suite`: buttons of our check runs, and GitHub's own *Re-run* (docs.github.com/webhooks, `check_run`).
//!
//! GitHub sends `requested_action` and `rerequested` only to the App that posted the check. The App's id is compared nevertheless: other
//! Apps choose the names and external ids of their check runs. The pull request is the one in our external id, as GitHub names none for
//! heads in forks, and for a suite also those of other repositories. Without that id, the pull request is found by the commit. A delivery
//! has no id in what is signed, so its identity is the digest of its body, which includes the result of the check and the time of the
//! suite's last change.

use super::payload::{CheckApp, Payload, commit, login, or_empty, present, text};
use super::verdict_of;
use crate::webhook::{Rejection, short};
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

/// Reads a delivery about a check: the press of a button on a known one, or the end of a suite, which is a hint. If no check is known, one
/// that cannot be read is not refused.
pub(super) fn receive(name: &str, json: &[u8], host: &str, known: KnownChecks) -> Result<Event, Rejection> {
    let payload = match Payload::parse(json) {
        Ok(payload) => payload,
        Err(_) if known == KnownChecks::None => return Ok(Event::Other(short(name))),
        Err(rejection) => return Err(rejection),
    };
    let pressed = if known == KnownChecks::None { None } else { pressed(name, &payload, host, known)? };
    Ok(match pressed {
        Some(event) => event,
        None if name == "check_run" || is_silent(&payload, known) => Event::Other(short(name)),
        None => verdict_of(name, &payload, host),
    })
}

/// Returns true if a suite of checks gives no hint about what people and other tools say of a commit: it has just begun, or is ours.
fn is_silent(payload: &Payload<'_>, known: KnownChecks) -> bool {
    let of_ours = |app: Option<&CheckApp>| matches!(known, KnownChecks::OfApp(_)) && known.has(app);
    or_empty(&payload.action) == "requested"
        || payload.check_suite.as_ref().is_some_and(|suite| of_ours(suite.app.as_ref()))
}

/// Returns the press of a button on a known check; `None` for everything else.
fn pressed(name: &str, payload: &Payload<'_>, host: &str, known: KnownChecks) -> Result<Option<Event>, Rejection> {
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
