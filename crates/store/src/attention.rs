//! Records that need a person: merged changes that are not applied, failures on open pull requests, policies that wait for approval, locks
//! that keep others waiting.

use super::listing::FAILED;
use super::{View, parse, rows};
use anyhow::Result;
use tidelock_core::domain::PullRequest;
use tidelock_core::domain::ownership::ProjectOwner;
use tidelock_core::domain::policies::{PolicyCheckRecord, PolicySetRecord};
use tidelock_core::domain::state::{ProjectLock, ProjectStatus};

/// Maximum number of policy checks that are looked at.
const MAX_CHECKS: usize = 200;

/// The first of what waits for a person, each list with the same limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NeedsAttention {
    /// Owners whose pull request is merged or closed, the oldest first.
    pub owed: Vec<ProjectOwner>,
    /// Failed projects of open pull requests, the latest failure first.
    pub failed: Vec<(PullRequest, ProjectStatus)>,
    /// Open pull requests whose last plan failed as a whole, each with the reason in one line; the latest activity first.
    pub faults: Vec<(PullRequest, String)>,
    /// Policy checks that lack approvals, of open pull requests whose plan can still be applied; the projects that were first checked last
    /// come first.
    pub unapproved: Vec<(PullRequest, PolicyCheckRecord)>,
    /// Locks for which other pull requests wait, the oldest first.
    pub contested: Vec<ProjectLock>,
}

impl View<'_> {
    /// Returns what waits for a person, at most `limit` of each kind.
    pub fn attention(&self, limit: usize) -> Result<NeedsAttention> {
        let mut owed = self.owed()?;
        owed.sort_by_key(|owner| owner.holder.since);
        owed.truncate(limit);
        let failed = format!(
            "SELECT p.record, s.record FROM
               (SELECT pull, record, updated, seq FROM project_statuses
                WHERE {FAILED} AND pull IN (SELECT pull FROM pulls WHERE open) ORDER BY updated DESC, seq DESC LIMIT ?1) s
             JOIN pulls p ON p.pull = s.pull ORDER BY s.updated DESC, s.seq DESC"
        );
        let faults = "SELECT record, json_extract(record, '$.fault') FROM pulls INDEXED BY pulls_open
             WHERE open AND json_extract(record, '$.fault') IS NOT NULL ORDER BY activity DESC LIMIT ?1";
        let failed = self.pairs(&failed, limit)?.into_iter();
        let faults = self.pairs(faults, limit)?.into_iter();
        Ok(NeedsAttention {
            owed,
            failed: failed.map(|(pull, status)| Ok((parse(&pull)?, parse(&status)?))).collect::<Result<_>>()?,
            faults: faults.map(|(pull, fault)| Ok((parse(&pull)?, fault))).collect::<Result<_>>()?,
            unapproved: self.unapproved(limit)?,
            contested: self.contested_locks(limit)?,
        })
    }

    fn unapproved(&self, limit: usize) -> Result<Vec<(PullRequest, PolicyCheckRecord)>> {
        let checks =
            "SELECT p.record, c.record FROM (SELECT seq, pull, record FROM policy_checks ORDER BY seq DESC LIMIT ?1) c
             JOIN pulls p ON p.pull = c.pull AND p.open
             JOIN plans l ON l.id = json_extract(c.record, '$.plan') AND l.consumed_by IS NULL ORDER BY c.seq DESC";
        let mut found = Vec::new();
        for (pull, check) in self.pairs(checks, MAX_CHECKS)? {
            let check: PolicyCheckRecord = parse(&check)?;
            if check.sets.iter().any(PolicySetRecord::lacks_approvals) {
                found.push((parse(&pull)?, check));
            }
            if found.len() == limit {
                break;
            }
        }
        Ok(found)
    }

    fn contested_locks(&self, limit: usize) -> Result<Vec<ProjectLock>> {
        self.records(
            "SELECT record FROM locks l WHERE EXISTS
               (SELECT 1 FROM waiters w WHERE w.host = l.host AND w.repo = l.repo AND w.dir = l.dir AND w.workspace = l.workspace
                AND w.pull <> l.pull)
             ORDER BY since, seq LIMIT ?1",
            [rows(limit)],
        )
    }

    /// Returns the two texts of each row.
    fn pairs(&self, sql: &str, limit: usize) -> Result<Vec<(String, String)>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let pairs = statement.query_map([rows(limit)], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(pairs.collect::<rusqlite::Result<_>>()?)
    }
}
