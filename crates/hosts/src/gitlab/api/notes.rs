//! Comments, which are notes of the merge request. Ours are plain notes: an open thread blocks the merge where "All threads must be
//! resolved" is on. The host cannot hide a note, so an outdated one is folded by editing it.

use super::{Gitlab, answers, quick_actions};
use crate::vcs::http::{odd, page_of, segment, too_many};
use crate::vcs::{Comments, HostComment, HostError, ShownComment};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::PullId;

/// Notes on one page: eight of the greatest length, 1,000,000 characters of up to four bytes, fit into one answer.
const PER_PAGE: u32 = 8;
/// Most pages of notes of one merge request.
const MAX_PAGES: u32 = 600;
/// First line of a folded note.
const FOLDED: &str = "<details><summary>Outdated: replaced by a newer comment</summary>";
/// Reactions whose name on this host is another than in the settings (docs.gitlab.com/api/emoji_reactions).
const REACTIONS: [(&str, &str); 4] =
    [("+1", "thumbsup"), ("-1", "thumbsdown"), ("laugh", "laughing"), ("hooray", "tada")];

pub(super) async fn create(host: &Gitlab, pull: &PullId, body: &str) -> Result<u64, HostError> {
    let path = notes_path(host, pull)?;
    let said = host.change(Method::POST, &path, Some(json!({ "body": quick_actions::defused(body) }))).await;
    said.map_err(HostError::of_comment)?["id"].as_u64().ok_or_else(|| odd(&path, "a note without id"))
}

/// Returns the notes that people and we wrote, oldest first. The host cannot select by time, so the latest come first until an older one.
pub(super) async fn comments(host: &Gitlab, pull: &PullId, since: Option<Timestamp>) -> Result<Comments, HostError> {
    host.account().await?;
    let path = format!("{}?sort=desc&order_by=updated_at", notes_path(host, pull)?);
    let (mut list, mut now): (Vec<HostComment>, _) = (Vec::new(), None);
    for page in 1..=MAX_PAGES {
        let answer = host.http.get(&page_of(&path, PER_PAGE, page)).await?;
        now = now.or(answer.at);
        let Value::Array(rows) = &answer.body else { return Err(odd(&path, "not a list")) };
        let is_older =
            |row: &&Value| since.zip(answers::moment(&row["updated_at"])).is_some_and(|(since, at)| at < since);
        let is_done = rows.iter().any(|row| is_older(&row)) || answer.next.is_none();
        for comment in rows.iter().filter(|row| is_said(row) && !is_older(row)).filter_map(comment) {
            // A note that was edited meanwhile moves others to the next page.
            if !list.iter().any(|known| known.id == comment.id) {
                list.push(comment);
            }
        }
        if is_done {
            list.sort_by_key(|comment| (comment.created, comment.id));
            return Ok(Comments { list, now: now.unwrap_or_else(Timestamp::now) });
        }
    }
    Err(too_many(&path, PER_PAGE, MAX_PAGES))
}

/// Returns one note; absent if it is gone or not for everybody.
pub(super) async fn one(host: &Gitlab, pull: &PullId, id: u64) -> Result<Option<HostComment>, HostError> {
    match host.http.get(&format!("{}/{id}", notes_path(host, pull)?)).await {
        Ok(answer) => Ok(Some(answer.body).filter(is_said).as_ref().and_then(comment)),
        Err(HostError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns our own among the latest notes that are not folded, in the order in which they were last written.
pub(super) async fn shown(host: &Gitlab, pull: &PullId) -> Result<Vec<ShownComment>, HostError> {
    let own = &host.account().await?.login;
    let path = format!("{}?sort=desc&order_by=updated_at", notes_path(host, pull)?);
    let body = host.http.get(&page_of(&path, PER_PAGE, 1)).await?.body;
    let Value::Array(rows) = &body else { return Err(odd(&path, "not a list")) };
    let shown = rows
        .iter()
        .filter(|row| is_said(row) && answers::login(&row["author"]).is(own))
        .filter_map(|row| {
            let (id, body) = (row["id"].as_u64()?, row["body"].as_str()?);
            let written = answers::moment(&row["updated_at"])?;
            let shown = ShownComment { id: id.to_string(), body: body.to_owned(), written };
            (!body.starts_with(FOLDED)).then_some((id, shown))
        })
        .collect();
    Ok(ShownComment::oldest_first(shown))
}

/// Folds notes, with one request each.
pub(super) async fn hide(host: &Gitlab, pull: &PullId, comments: &[ShownComment]) -> Result<(), HostError> {
    for comment in comments {
        rewrite(host, pull, &comment.id, &folded(&comment.body)).await?;
    }
    Ok(())
}

/// Replaces the text of a note. Returns false if it was deleted in the meantime. Quick actions of an edited note are carried out as well.
pub(super) async fn rewrite(host: &Gitlab, pull: &PullId, id: &str, body: &str) -> Result<bool, HostError> {
    let path = format!("{}/{}", notes_path(host, pull)?, segment(id));
    match host.change(Method::PUT, &path, Some(json!({ "body": quick_actions::defused(body) }))).await {
        Ok(_) => Ok(true),
        Err(HostError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error.of_comment()),
    }
}

pub(super) async fn delete(host: &Gitlab, pull: &PullId, id: u64) -> Result<(), HostError> {
    match host.change(Method::DELETE, &format!("{}/{id}", notes_path(host, pull)?), None).await {
        Ok(_) | Err(HostError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Adds a reaction. The host answers 404 if the note is gone, and if the reaction is there already.
pub(super) async fn react(host: &Gitlab, pull: &PullId, id: u64, reaction: &str) -> Result<(), HostError> {
    let name = REACTIONS.iter().find(|(ours, _)| *ours == reaction).map_or(reaction, |(_, name)| name);
    let path = format!("{}/{id}/award_emoji?name={}", notes_path(host, pull)?, segment(name));
    match host.change(Method::POST, &path, None).await {
        Ok(_) | Err(HostError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn notes_path(host: &Gitlab, pull: &PullId) -> Result<String, HostError> {
    Ok(format!("{}/notes", host.pull_path(pull)?))
}

/// Returns true if somebody wrote a note for everybody: the host's own reports are notes too, and internal ones are for members only.
fn is_said(note: &Value) -> bool {
    note["system"] != true && note["internal"] != true && note["confidential"] != true
}

fn comment(note: &Value) -> Option<HostComment> {
    Some(HostComment {
        id: note["id"].as_u64()?,
        author: answers::login(&note["author"]),
        created: answers::moment(&note["created_at"])?,
        edited: !note["updated_at"].is_string() || note["updated_at"] != note["created_at"],
        body: note["body"].as_str().unwrap_or_default().to_owned(),
    })
}

/// Returns a folded text. Its last line, the marker, stays the last one.
fn folded(body: &str) -> String {
    let (text, marker) = match body.trim_end().rsplit_once('\n') {
        Some((text, last)) if last.starts_with("<!--") => (text, last),
        _ => (body, ""),
    };
    format!("{FOLDED}\n\n{}\n\n</details>\n\n{marker}", text.trim_end())
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn a_folded_note_keeps_its_marker_as_the_last_line() {
        let marker = r#"<!-- tidelock:{"v":1} -->"#;
        let text = folded(&format!("Ran Plan\n```diff\n+ a\n```\n\n{marker}"));
        assert!(text.starts_with(FOLDED) && text.ends_with(&format!("\n```\n\n</details>\n\n{marker}")), "{text}");
        assert_eq!(folded("by hand"), format!("{FOLDED}\n\nby hand\n\n</details>\n\n"));
    }
}
