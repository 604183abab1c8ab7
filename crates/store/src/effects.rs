//! The rows of the outbox: effects on hosts, in order.

use super::{Tx, View, json, micros, parse, rows};
use anyhow::{Result, ensure};
use jiff::Timestamp;
use rusqlite::{OptionalExtension, Params, params};
use serde::{Deserialize, Serialize};
use tidelock_core::domain::automerge::MergeAttempt;
use tidelock_core::domain::state::{CommitStatus, Effect, NewEffect, PendingEffect, StatusState};
use tidelock_core::domain::{CommitSha, PullId, PullRequest};

/// Longest description of a status that is joined from several, in characters: the shortest limit among the hosts.
const MAX_DESCRIPTION: usize = 140;

/// Lane of a pull request's effects. Lanes are performed beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Comments and changes of issues, which keep their order.
    Comments = 0,
    /// The merge, which follows all effects that were recorded before it.
    Merge = 1,
    /// Statuses, reactions and the hiding of comments, in any order.
    Marks = 2,
}

/// An effect as its row holds it.
#[derive(Serialize, Deserialize)]
struct Recorded<T> {
    #[serde(flatten)]
    new: T,
    /// Absent in rows of the first format.
    #[serde(default)]
    at: Option<Timestamp>,
}

impl View<'_> {
    /// Returns the last posted status of each context of a commit, if no effect of the pull request is pending. Statuses
    /// that were given up are left out.
    pub fn told_statuses(&self, pull: &PullId, commit: &CommitSha) -> Result<Vec<CommitStatus>> {
        let pull = pull.to_string();
        let waiting: i64 = (self.connection)
            .prepare_cached("SELECT count(*) FROM effects WHERE pull = ?1 AND done IS NULL")?
            .query_row([&pull], |row| row.get(0))?;
        if waiting > 0 {
            return Ok(Vec::new());
        }
        let last = self.last_statuses(&pull, commit)?.into_iter();
        Ok(last.filter(|(_, note)| !note.starts_with("given up")).map(|(status, _)| status).collect())
    }

    /// Returns the last recorded status of each context of a commit, posted or not.
    pub fn decided_statuses(&self, pull: &PullId, commit: &CommitSha) -> Result<Vec<CommitStatus>> {
        let last = self.last_statuses(&pull.to_string(), commit)?;
        Ok(last.into_iter().map(|(status, _)| status).collect())
    }

    /// Returns the status of this context for a commit, on hosts whose statuses belong to commits. Among the open pull requests with this
    /// head, the worst state counts, and of several that of the lowest number. `own` is the status of this pull request. The result is the
    /// same for each of them, and has no details then: a button would act on the pull request that posted last.
    pub fn status_of_commit(&self, pull: &PullId, commit: &CommitSha, own: CommitStatus) -> Result<CommitStatus> {
        let others: Vec<PullRequest> = self.records(
            "SELECT record FROM pulls WHERE pull > ?1 || '#' AND pull < ?1 || '$' AND open
               AND json_extract(record, '$.head.commit') = ?2",
            params![pull.repo.to_string(), commit.as_str()],
        )?;
        let others: Vec<PullRequest> =
            others.into_iter().filter(|other| other.id.repo == pull.repo && other.id != *pull).collect();
        if others.is_empty() {
            return Ok(own);
        }
        let context = own.context.clone();
        let mut all = vec![(pull.number, own)];
        for other in others {
            let said = self.decided_statuses(&other.id, commit)?.into_iter().filter(|said| said.context == context);
            all.extend(said.map(|said| (other.id.number, said)));
        }
        Ok(CommitStatus { details: None, ..joined(all) })
    }

    /// Returns the last recorded status of each context of a commit, with the note on its result; the note is empty while
    /// it is pending.
    fn last_statuses(&self, pull: &str, commit: &CommitSha) -> Result<Vec<(CommitStatus, String)>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT record, coalesce(note, '') FROM effects WHERE pull = ?1 AND record IS NOT NULL ORDER BY id",
        )?;
        let mut rows = statement.query([pull])?;
        let mut last: Vec<(CommitStatus, String)> = Vec::new();
        while let Some(row) = rows.next()? {
            let recorded: Recorded<NewEffect> = parse(row.get_ref(0)?.as_str()?)?;
            if let Effect::Status { commit: of, status } = recorded.new.effect
                && of == *commit
            {
                last.retain(|(known, _)| known.context != status.context);
                last.push((status, row.get(1)?));
            }
        }
        Ok(last)
    }

    /// Returns pending effects of one pull request or of all, in the order in which they were recorded.
    pub fn pending_effects(&self, pull: Option<&PullId>, limit: usize) -> Result<Vec<PendingEffect>> {
        match pull {
            Some(pull) => self.effects(
                "SELECT id, attempts, record FROM effects WHERE done IS NULL AND pull = ?2 ORDER BY id LIMIT ?1",
                params![rows(limit), pull.to_string()],
            ),
            None => self.effects(
                "SELECT id, attempts, record FROM effects WHERE done IS NULL ORDER BY id LIMIT ?1",
                params![rows(limit)],
            ),
        }
    }

    /// Returns pending effects of one pull request and lane, in the order in which they were recorded. The hiding of older comments is left
    /// out while earlier comments are pending.
    pub fn effects_of(&self, pull: &PullId, lane: Lane, limit: usize) -> Result<Vec<PendingEffect>> {
        self.effects(
            "SELECT id, attempts, record FROM effects WHERE done IS NULL AND pull = ?2
               AND CASE json_extract(record, '$.effect.kind') WHEN 'comment' THEN 0 WHEN 'issue' THEN 0 WHEN 'merge' THEN 1 ELSE 2 END = ?3
               AND NOT (json_extract(record, '$.effect.kind') = 'hide' AND EXISTS (
                 SELECT 1 FROM effects AS earlier WHERE earlier.done IS NULL AND earlier.pull = ?2 AND earlier.id < effects.id
                   AND json_extract(earlier.record, '$.effect.kind') = 'comment'))
             ORDER BY id LIMIT ?1",
            params![rows(limit), pull.to_string(), lane as i64],
        )
    }

    /// Returns true if an effect of this pull request that was recorded before this one is pending. The hiding of comments does not count.
    pub fn has_effects_before(&self, pull: &PullId, id: i64) -> Result<bool> {
        let sql = "SELECT 1 FROM effects WHERE done IS NULL AND pull = ?1 AND id < ?2
                     AND json_extract(record, '$.effect.kind') <> 'hide'";
        Ok(self.connection.prepare_cached(sql)?.exists(params![pull.to_string(), id])?)
    }

    /// Returns the last merge of a pull request that was recorded before this effect.
    pub fn merge_before(&self, pull: &PullId, id: i64) -> Result<Option<MergeAttempt>> {
        let found: Option<(String, String)> = (self.connection)
            .prepare_cached(
                "SELECT record, coalesce(note, '') FROM effects
                 WHERE pull = ?1 AND id < ?2 AND json_extract(record, '$.effect.kind') = 'merge' ORDER BY id DESC LIMIT 1",
            )?
            .query_row(params![pull.to_string(), id], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((record, note)) = found else { return Ok(None) };
        let recorded: Recorded<NewEffect> = parse(&record)?;
        let Effect::Merge { head, how, .. } = recorded.new.effect else { return Ok(None) };
        Ok(Some(MergeAttempt { head, how, note }))
    }

    /// Returns the last merge of a pull request.
    pub fn last_merge(&self, pull: &PullId) -> Result<Option<MergeAttempt>> {
        self.merge_before(pull, i64::MAX)
    }

    /// Returns pull requests with pending effects, the one with the oldest first.
    pub fn pulls_with_effects(&self) -> Result<Vec<PullId>> {
        let first = self.effects(
            "SELECT id, attempts, record FROM effects
             WHERE id IN (SELECT min(id) FROM effects WHERE done IS NULL GROUP BY pull) ORDER BY id",
            [],
        )?;
        Ok(first.into_iter().map(|effect| effect.pull).collect())
    }

    /// Returns the ID of the last recorded effect; 0 if there is none. Later effects have greater IDs.
    pub fn last_effect(&self) -> Result<i64> {
        let last = (self.connection)
            .prepare_cached("SELECT coalesce(max(id), 0) FROM effects")?
            .query_row([], |row| row.get(0))?;
        Ok(last)
    }

    fn effects(&self, sql: &str, params: impl Params) -> Result<Vec<PendingEffect>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut effects = Vec::new();
        while let Some(row) = rows.next()? {
            let Recorded { new: NewEffect { pull, effect }, at } = parse(row.get_ref(2)?.as_str()?)?;
            effects.push(PendingEffect { id: row.get(0)?, attempts: row.get(1)?, pull, effect, recorded: at });
        }
        Ok(effects)
    }
}

/// Joins the statuses of several pull requests, with their numbers, for one commit. If there are several, the description names the
/// pull request.
fn joined(mut all: Vec<(u64, CommitStatus)>) -> CommitStatus {
    let goodness = |state: StatusState| match state {
        StatusState::Failure => 0,
        StatusState::Pending => 1,
        StatusState::Success => 2,
    };
    all.sort_by_key(|(number, status)| (goodness(status.state), *number));
    let is_one = all.len() == 1;
    let (number, status) = all.swap_remove(0);
    if is_one {
        return status;
    }
    let description = format!("#{number}: {}", status.description).chars().take(MAX_DESCRIPTION).collect();
    CommitStatus { description, ..status }
}

impl Tx<'_> {
    /// Appends an effect and returns its ID, which is greater than all earlier ones, including removed ones.
    pub fn enqueue(&self, effect: &NewEffect) -> Result<i64> {
        self.execute(
            "INSERT INTO effects (pull, record) VALUES (?1, ?2)",
            params![effect.pull.to_string(), json(&Recorded { new: effect, at: Some(Timestamp::now()) })?],
        )?;
        Ok(self.connection.last_insert_rowid())
    }

    /// Appends effects of one pull request. Does nothing if it stands for a branch.
    pub fn post(&self, pull: &PullId, effects: impl IntoIterator<Item = Effect>) -> Result<()> {
        if pull.is_branch() {
            return Ok(());
        }
        effects.into_iter().try_for_each(|effect| self.enqueue(&NewEffect { pull: pull.clone(), effect }).map(drop))
    }

    /// Counts an attempt. Fails if the effect is not pending.
    pub fn effect_tried(&self, id: i64) -> Result<()> {
        let changed =
            self.execute("UPDATE effects SET attempts = attempts + 1 WHERE id = ?1 AND done IS NULL", [id])?;
        ensure!(changed == 1, "the effect {id} is not pending: it was done or given up");
        Ok(())
    }

    /// Marks an effect as done or given up, with a note on its result. A second call keeps the first note. Keeps the record
    /// of a status without its details, so that its last value stays known, and that of a merge, which may be tried again.
    pub fn effect_done(&self, id: i64, note: &str) -> Result<()> {
        self.execute(
            "UPDATE effects SET done = ?2, note = ?3,
               record = CASE json_extract(record, '$.effect.kind')
                 WHEN 'status' THEN json_remove(record, '$.effect.status.details') WHEN 'merge' THEN record END
             WHERE id = ?1 AND done IS NULL",
            params![id, micros(Timestamp::now()), note],
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use StatusState::{Failure, Pending, Success};

    fn status_of(number: u64, state: StatusState, description: &str) -> (u64, CommitStatus) {
        let (context, description, url) = ("atlantis/plan".into(), description.into(), format!("/{number}"));
        (number, CommitStatus { context, state, description, url, waits: false, details: None })
    }

    #[test]
    fn several_statuses_of_one_commit_are_one_in_any_order() {
        for (all, state, description) in [
            (vec![status_of(2, Success, "fine")], Success, "fine"),
            (vec![status_of(1, Success, "fine"), status_of(2, Failure, "broken")], Failure, "#2: broken"),
            (
                vec![status_of(3, Pending, "runs"), status_of(1, Success, "fine"), status_of(2, Success, "fine too")],
                Pending,
                "#3: runs",
            ),
            (vec![status_of(7, Success, "b"), status_of(4, Success, "a")], Success, "#4: a"),
        ] {
            let mut turned = all.clone();
            turned.reverse();
            for all in [all, turned] {
                let one = joined(all);
                assert_eq!((one.state, one.description.as_str()), (state, description));
            }
        }
        let long = joined(vec![status_of(1, Failure, &"x".repeat(140)), status_of(2, Success, "")]);
        assert_eq!(long.description.chars().count(), MAX_DESCRIPTION);
    }
}
