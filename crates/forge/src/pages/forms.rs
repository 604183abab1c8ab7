//! Actions of the forms: comment, review, merge, close, push an edit, open a pull request, send a webhook again.

use super::super::pull::{self, Pull};
use super::super::repo::{self, OpenOptions};
use super::super::{PEOPLE, Shared, hooks};
use super::{Fields, Reaction};
use anyhow::{Context, bail};
use std::sync::Arc;

/// Performs the action of a form and redirects to a page.
pub(super) async fn act(shared: &Arc<Shared>, segments: &[String], form: &Fields) -> anyhow::Result<Reaction> {
    if let [word, id] = segments
        && word == "deliveries"
    {
        let id = id.parse().context("not a delivery's number")?;
        shared.change(|state| hooks::redeliver(state, id))?;
        return Ok(Reaction::Redirect("/deliveries".to_owned()));
    }
    let Some((full_name, rest)) = shared.kind.split(segments) else { return Ok(Reaction::NotFound) };
    match rest.as_slice() {
        ["new"] => open(shared, &full_name, form).await,
        ["pull" | "pullrequest" | "merge_requests" | "pulls" | "pull-requests", number, action] => {
            let number = number.parse().context("not a pull request's number")?;
            on_pull(shared, &full_name, number, action, form).await
        }
        _ => Ok(Reaction::NotFound),
    }
}

fn field<'a>(form: &'a Fields, name: &str) -> anyhow::Result<&'a str> {
    form.get(name).map(|text| text.trim()).filter(|text| !text.is_empty()).with_context(|| format!("{name} is empty"))
}

/// Returns the acting person: one of those that the pages offer.
fn person(form: &Fields) -> anyhow::Result<&'static str> {
    let login = field(form, "as")?;
    let known = PEOPLE.iter().find(|(name, _)| *name == login);
    known.map(|(name, _)| *name).with_context(|| format!("there is no {login} here"))
}

/// Returns the text of the file in the form; `None` deletes it. Browsers send CRLF.
fn edited(form: &Fields) -> Option<String> {
    if form.contains_key("delete") {
        return None;
    }
    let mut text = form.get("content").cloned().unwrap_or_default().replace("\r\n", "\n");
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    Some(text)
}

async fn open(shared: &Arc<Shared>, full_name: &str, form: &Fields) -> anyhow::Result<Reaction> {
    let (path, text) = (field(form, "path")?, edited(form));
    let body = form.get("body").cloned().unwrap_or_default();
    let options = OpenOptions { draft: form.contains_key("draft"), body, ..OpenOptions::default() };
    let repo = shared.forge().repo(full_name);
    let changes = [(path, text.as_deref())];
    let opened = repo
        .open_pull(field(form, "branch")?, person(form)?, field(form, "title")?, &changes, options)
        .await
        .context("the pull request was not opened")?;
    Ok(Reaction::Redirect(shared.kind.pull_page(full_name, opened.number())))
}

async fn on_pull(
    shared: &Arc<Shared>,
    full_name: &str,
    number: u64,
    action: &str,
    form: &Fields,
) -> anyhow::Result<Reaction> {
    let login = person(form)?;
    let pull: Pull = shared.forge().repo(full_name).pull(number);
    let page = shared.kind.pull_page(full_name, number);
    let needs_write = !matches!(action, "comment" | "approve" | "request-changes");
    if needs_write && !shared.lock().repo(full_name)?.can_write(login) {
        bail!("{login} has read access only and cannot {action}; choose somebody else");
    }
    match action {
        "comment" => {
            let body = form.get("quick").map_or_else(|| field(form, "body"), |command| Ok(command.as_str()))?;
            let id = pull.comment(login, &body.replace("\r\n", "\n"))?;
            return Ok(Reaction::Redirect(format!("{page}#comment-{id}")));
        }
        "check" => {
            let check = field(form, "check")?.parse().context("not a check run's number")?;
            let button = if form.contains_key("rerun") { None } else { Some(field(form, "button")?) };
            pull.press(login, check, button)?;
        }
        "approve" => pull.approve(login)?,
        "request-changes" => pull.request_changes(login)?,
        "merge" => {
            pull::merge(shared, full_name, number, login, "merge").await.context("not merged")?;
        }
        "close" => shared.change(|state| repo::close(state, &shared.url, full_name, number, login))?,
        "reopen" => pull.reopen()?,
        "ready" => pull.ready()?,
        "edit" => {
            let (path, text) = (field(form, "path")?, edited(form));
            pull.push_as(login, &format!("Change {path}"), &[(path, text.as_deref())]).await.context("not pushed")?;
        }
        _ => return Ok(Reaction::NotFound),
    }
    Ok(Reaction::Redirect(page))
}
