//! `check_run` and `check_suite`: buttons of our check runs, and GitHub's own *Re-run* (docs.github.com/webhooks, `check_run`).
//!
//! GitHub sends `requested_action` and `rerequested` only to the App that posted the check. The App's id is compared nevertheless: other
//! Apps choose the names and external ids of their check runs. The pull request is the one in our external id, as GitHub names none for
//! heads in forks. A delivery has no id in what is signed, so its identity is the digest of its body. It includes the result of the check
//! and the time of the suite's last change.

use super::payload::{CheckApp, Payload, commit, login, or_empty, present, text};
use crate::webhook::Rejection;
use tidelock_core::domain::command::CommandName;
use tidelock_core::domain::{CheckEvent, Event};

/// Reads the press of a button on a check of the App `ours`; `None` for everything else.
pub(super) fn read(name: &str, json: &[u8], host: &str, ours: Option<u64>) -> Result<Option<Event>, Rejection> {
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
    let is_ours = |app: &Option<CheckApp>| ours.is_some() && app.as_ref().and_then(|app| app.id) == ours;
    let (check, number, sha) = if name == "check_run" {
        let run = present(&payload.check_run, "check_run")?;
        if !is_ours(&run.app) {
            return Ok(None);
        }
        let external = or_empty(&run.external_id);
        let number = external.split_once(':').and_then(|(number, _)| number.parse().ok());
        (Some(text(&run.name, "check_run.name")?.to_owned()), number, &run.head_sha)
    } else {
        let suite = present(&payload.check_suite, "check_suite")?;
        if !is_ours(&suite.app) {
            return Ok(None);
        }
        let number = suite.pull_requests.iter().flatten().find_map(|pull| pull.number);
        (None, number, &suite.head_sha)
    };
    let head = commit(sha, &format!("{name}.head_sha"))?;
    let (repo, _) = payload.repository(host)?;
    let sender = login(&payload.sender, "sender.login")?;
    Ok(Some(Event::Check(CheckEvent { repo, number, head, check, command, sender })))
}
