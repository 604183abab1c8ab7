//! Changes of issues about drift. Each is recorded as done together with its result: the place of an opened issue, or the end of the record
//! of a closed one. Before an issue is opened, the open ones of our own account are searched for its marker: an earlier process, or an
//! attempt whose response was lost, may have opened it.

use super::OutboxInner;
use crate::domain::PullId;
use crate::domain::RunId;
use crate::domain::drift_issue::{DriftIssue, IssuePlace};
use crate::domain::state::{IssueChange, PendingEffect};
use crate::render::marker;
use crate::reply::duplicates::HostOrStateError;
use crate::vcs::{Host, HostError, HostIssue, IssueEdit, NewIssue};

/// Part of the closing comment in its marker; it is the only one.
const CLOSING_PART: u32 = 1;

/// Note of a change of an issue that is not there, or not ours any more.
const NOT_OURS: &str = "the issue is gone, or is not ours any more";

impl OutboxInner {
    /// Changes an issue. A refusal that no token can fix ends the change: the page of drift shows it, and the log has it once.
    pub(super) async fn issue(
        &self,
        host: &dyn Host,
        effect: &PendingEffect,
        id: &RunId,
        change: &IssueChange,
    ) -> Result<String, HostOrStateError> {
        let wanted = id.clone();
        let Some(issue) = self.store.read(move |view| view.drift_issue(&wanted)).await? else {
            return Ok("its record is gone".to_owned());
        };
        let changed = match (change, &issue.place) {
            (IssueChange::Open { title, body, labels }, _) => {
                let new = NewIssue { title: title.clone(), body: body.clone(), labels: labels.clone() };
                self.open_issue(host, effect, &issue, &new).await
            }
            (IssueChange::Update { body }, Some(place)) => self.update_issue(host, effect, &issue, place, body).await,
            (IssueChange::Close { comment }, Some(place)) => {
                self.close_issue(host, effect, &issue, place, comment).await
            }
            (IssueChange::Update { .. }, None) => return Ok("it was never opened".to_owned()),
            (IssueChange::Close { .. }, None) => self.forget_issue(effect, &issue, "it was never opened").await,
        };
        match changed {
            Err(HostOrStateError::Host(error @ HostError::Rejected { .. })) => {
                self.issue_refused(&issue, &error).await?;
                let note = format!("given up: {error}");
                match change {
                    IssueChange::Close { .. } => self.forget_issue(effect, &issue, &note).await,
                    IssueChange::Update { .. } => {
                        let id = issue.id.clone();
                        self.store.write(move |tx| tx.drift_issue_not_updated(&id)).await?;
                        Ok(note)
                    }
                    IssueChange::Open { .. } => Ok(note),
                }
            }
            changed => changed,
        }
    }

    async fn open_issue(
        &self,
        host: &dyn Host,
        effect: &PendingEffect,
        issue: &DriftIssue,
        new: &NewIssue,
    ) -> Result<String, HostOrStateError> {
        let subject = issue.subject();
        let own = host.own_issues(&issue.repo).await?;
        self.store.may_act().await?;
        let mut known = own.into_iter().find(|own| marker::is_of_drift(&own.body, &subject));
        if let Some(found) = known.take_if(|found| found.body != new.body)
            && host.edit_issue(&issue.repo, found.number, &IssueEdit::Text(new.body.clone())).await?
        {
            known = Some(found);
        }
        let (note, opened) = match known {
            Some(found) => (format!("found as issue {}", found.number), found),
            None => {
                let opened = host.create_issue(&issue.repo, new).await?;
                (format!("issue {}", opened.number), opened)
            }
        };
        let HostIssue { number, url, .. } = opened;
        let (id, issue, told) = (effect.id, issue.id.clone(), note.clone());
        let recorded = self.store.write(move |tx| {
            tx.drift_issue_opened(&issue, IssuePlace { number, url })?;
            tx.effect_done(id, &told)
        });
        recorded.await?;
        Ok(note)
    }

    /// Returns the issue at a place. `None` if it is gone, or is not ours: the name of a deleted repository may be another's now, and a
    /// person may have written a text of their own.
    async fn our_issue(
        &self,
        host: &dyn Host,
        issue: &DriftIssue,
        place: &IssuePlace,
    ) -> Result<Option<HostIssue>, HostError> {
        let subject = issue.subject();
        let found = host.issue(&issue.repo, place.number).await?;
        Ok(found.filter(|found| found.is_ours && marker::is_of_drift(&found.body, &subject)))
    }

    async fn update_issue(
        &self,
        host: &dyn Host,
        effect: &PendingEffect,
        issue: &DriftIssue,
        place: &IssuePlace,
        body: &str,
    ) -> Result<String, HostOrStateError> {
        if self.our_issue(host, issue, place).await?.is_some() {
            self.store.may_act().await?;
            if host.edit_issue(&issue.repo, place.number, &IssueEdit::Text(body.to_owned())).await? {
                return Ok(format!("issue {} updated", place.number));
            }
        }
        self.forget_issue(effect, issue, NOT_OURS).await
    }

    /// Posts the comment and closes the issue, in this order: one that is closed has its comment, or a person has closed it.
    async fn close_issue(
        &self,
        host: &dyn Host,
        effect: &PendingEffect,
        issue: &DriftIssue,
        place: &IssuePlace,
        comment: &str,
    ) -> Result<String, HostOrStateError> {
        match self.our_issue(host, issue, place).await? {
            None => return self.forget_issue(effect, issue, NOT_OURS).await,
            Some(now) if !now.open => return self.forget_issue(effect, issue, "it is closed already").await,
            Some(_) => {}
        }
        let on_issue = PullId { repo: issue.repo.clone(), number: place.number };
        let posted = PendingEffect { pull: on_issue, ..effect.clone() };
        match self.comment(host, &posted, (&issue.id, CLOSING_PART, comment), None).await {
            // A locked conversation can still be closed.
            Err(HostOrStateError::Host(error @ HostError::Rejected { .. })) => {
                tracing::warn!(repository = %issue.repo, "an issue about drift is closed without a comment: {error}");
            }
            posted => _ = posted?,
        }
        self.store.may_act().await?;
        host.edit_issue(&issue.repo, place.number, &IssueEdit::Close).await?;
        self.forget_issue(effect, issue, &format!("issue {} closed", place.number)).await
    }

    /// Records in one commit that the change is done and that the issue has ended.
    async fn forget_issue(
        &self,
        effect: &PendingEffect,
        issue: &DriftIssue,
        note: &str,
    ) -> Result<String, HostOrStateError> {
        let (id, issue, told) = (effect.id, issue.id.clone(), note.to_owned());
        let recorded = self.store.write(move |tx| {
            tx.forget_drift_issue(&issue)?;
            tx.effect_done(id, &told)
        });
        recorded.await?;
        Ok(note.to_owned())
    }

    /// Records the host's refusal for the page of drift; the log has it if it is a new one.
    async fn issue_refused(&self, issue: &DriftIssue, error: &HostError) -> anyhow::Result<()> {
        let because = match error {
            HostError::Rejected { message, .. } => message.clone(),
            error => error.to_string(),
        };
        let (repo, text) = (issue.repo.clone(), because.clone());
        let recorded = self.store.write(move |tx| {
            let mut is_new = true;
            tx.change_missing_issues(&repo, |missing| {
                is_new = missing.refused.replace(text.clone()).as_ref() != Some(&text);
            })?;
            Ok(is_new)
        });
        if recorded.await? {
            tracing::error!(repository = %issue.repo, "the host refuses an issue about drift: {because}");
        }
        Ok(())
    }
}
