//! The host's own ids of repositories with their names, and changes of the kept records when a repository is renamed or is no longer
//! served. Each is one transaction, so that a crash leaves all of it or nothing.

use super::{Tx, View, json, parse};
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, params};
use serde_json::Value;
use tidelock_core::domain::state::{AuditEntry, ProjectLock};
use tidelock_core::domain::{PullId, RepoId, Sighting};

/// Tables with a column `pull`, and their primary keys.
const OF_PULLS: [(&str, &str); 13] = [
    ("runs", "seq"),
    ("jobs", "seq"),
    ("pulls", "seq"),
    ("project_statuses", "seq"),
    ("plans", "seq"),
    ("effects", "id"),
    ("policy_checks", "seq"),
    ("changed_projects", "seq"),
    ("seen_plans", "seq"),
    ("locks", "seq"),
    ("owners", "seq"),
    ("waiters", "seq"),
    ("replans", "id"),
];
/// Tables among those with columns of the repository as well.
const WITH_REPO: [&str; 3] = ["locks", "owners", "waiters"];
/// Tables with columns of the repository alone.
const OF_REPOS: [&str; 4] = ["drift", "remediations", "drift_checks", "drift_issues"];
/// Tables whose rows are deleted when a repository is no longer served; its history stays.
const ENDED: [&str; 7] =
    ["locks", "owners", "waiters", "changed_projects", "project_statuses", "policy_checks", "seen_plans"];
/// Author in the audit log of changes that the server finds by itself.
const SERVER: &str = "tidelock";

impl View<'_> {
    /// Returns the host's id of a repository, if it is known.
    pub fn repo_key(&self, repo: &RepoId) -> Result<Option<String>> {
        let found: Option<Option<String>> = (self.connection)
            .prepare_cached("SELECT json_extract(record, '$.key') FROM repos WHERE repo = ?1")?
            .query_row([repo.to_string()], |row| row.get(0))
            .optional()?;
        Ok(found.flatten())
    }

    /// Returns the repository that is known under a host's id.
    pub fn repo_of_key(&self, host: &str, key: &str) -> Result<Option<RepoId>> {
        self.record(
            "SELECT record FROM repos WHERE json_extract(record, '$.key') = ?2 AND json_extract(record, '$.host') = ?1",
            [host, key],
        )
    }

    /// Returns the repositories with an owned project.
    pub fn repos_of_owners(&self) -> Result<Vec<RepoId>> {
        self.records("SELECT DISTINCT json_extract(record, '$.repo') FROM owners", [])
    }

    /// Returns all recorded pull requests of a repository.
    pub fn pulls_of_repo(&self, repo: &RepoId) -> Result<Vec<PullId>> {
        let mut statement =
            self.connection.prepare_cached("SELECT pull FROM pulls WHERE pull > ?1 || '#' AND pull < ?1 || '$'")?;
        let names = statement.query_map([repo.to_string()], |row| row.get::<_, String>(0))?;
        let names: Vec<String> = names.collect::<rusqlite::Result<_>>()?;
        let number = |name: &String| number_of(name, repo)?.parse().ok();
        Ok(names.iter().filter_map(number).map(|number| PullId { repo: repo.clone(), number }).collect())
    }
}

impl Tx<'_> {
    /// Records the host's id of a repository. The records under its name belong to that id from now on.
    pub fn adopt_repo(&self, sight: &Sighting) -> Result<()> {
        self.serve(&sight.repo, Timestamp::now())?;
        self.execute(
            "UPDATE repos SET record = json_set(record, '$.key', ?2) WHERE repo = ?1",
            [sight.repo.to_string(), sight.key.clone()],
        )?;
        Ok(())
    }

    /// Moves all records of a repository to its present name. `addresses`: its former and its present address for git.
    pub fn rename_repo(&self, from: &RepoId, now: &Sighting, addresses: &[Option<String>; 2]) -> Result<()> {
        let (served, polled) = (self.served_since(from)?.unwrap_or_else(Timestamp::now), self.polled_since(from)?);
        self.rename_rows(from, &now.repo, addresses)?;
        self.execute("DELETE FROM repos WHERE repo = ?1", [from.to_string()])?;
        self.serve(&now.repo, served)?;
        polled.map(|at| self.begin_polling(&now.repo, at)).transpose()?;
        self.adopt_repo(now)?;
        self.signals.replan_recorded.set(true);
        self.audit(&entry("rename", from, format!("kept as {} from now on", now.repo)))
    }

    /// Ends a repository that is no longer served: its locks, owners, plans, re-plans, and pending effects and deliveries. Its history is kept
    /// under a name that no repository can have, so that another repository with its former name inherits nothing.
    pub fn end_repo(&self, repo: &RepoId, key: &str, because: &str) -> Result<()> {
        let place = [&repo.host, &repo.full_name()];
        let locks: Vec<ProjectLock> = self.records("SELECT record FROM locks WHERE host = ?1 AND repo = ?2", place)?;
        for lock in locks {
            let freed = entry("unlock", repo, format!("freed: {because}"));
            self.audit(&AuditEntry {
                pull: Some(lock.holder.pull.clone()),
                project: Some(lock.project.label()),
                ..freed
            })?;
        }
        let mut owners = self.owners()?;
        owners.retain(|owner| owner.repo == *repo);
        for owner in owners {
            let result = format!("no owner any more, was {}: {because}", owner.state.as_str());
            let (pull, project) = (Some(owner.holder.pull.clone()), Some(owner.project.label()));
            self.audit(&AuditEntry { pull, project, ..entry("disown", repo, result) })?;
        }
        let former = RepoId { name: format!("{} (id {key})", repo.name), ..repo.clone() };
        self.rename_rows(repo, &former, &[None, None])?;
        let name = former.to_string();
        self.drop_plans("DELETE FROM plans WHERE pull > ?1 || '#' AND pull < ?1 || '$' RETURNING record", [&name])?;
        for table in ENDED {
            self.execute(&format!("DELETE FROM {table} WHERE pull > ?1 || '#' AND pull < ?1 || '$'"), [&name])?;
        }
        for table in OF_REPOS {
            self.execute(
                &format!("DELETE FROM {table} WHERE host = ?1 AND repo = ?2"),
                [&former.host, &former.full_name()],
            )?;
        }
        self.execute("DELETE FROM freezes WHERE repo = ?1", [&name])?;
        self.execute("DELETE FROM repos WHERE repo = ?1", [repo.to_string()])?;
        self.execute("UPDATE pulls SET open = 0 WHERE pull > ?1 || '#' AND pull < ?1 || '$'", [&name])?;
        for pending in self.pending_effects(None, usize::MAX)?.into_iter().filter(|one| one.pull.repo == former) {
            self.effect_done(pending.id, &format!("given up: {because}"))?;
        }
        for replan in self.replans()?.into_iter().filter(|replan| replan.scope.pull.repo == former) {
            self.end_replan(replan.id)?;
        }
        for (delivery, _) in self.unfinished_deliveries()? {
            if delivery.event.pull_id().is_some_and(|pull| pull.repo == former) {
                self.set_delivery_state(
                    &delivery.identity,
                    tidelock_core::domain::state::DeliveryState::Done,
                    because,
                )?;
            }
        }
        self.audit(&entry("end", repo, because.to_owned()))
    }

    fn rename_rows(&self, from: &RepoId, to: &RepoId, addresses: &[Option<String>; 2]) -> Result<()> {
        let names = TwoNames::new(from, to, addresses);
        for (table, key) in OF_PULLS {
            self.rename_pulls(table, key, &names)?;
        }
        for table in OF_REPOS {
            let sql = format!("SELECT seq, '', record FROM {table} WHERE host = ?1 AND repo = ?2");
            for (seq, _, record) in self.rows_of(&sql, params![from.host, from.full_name()])? {
                let sql = format!("UPDATE OR IGNORE {table} SET repo = ?2, record = ?3 WHERE seq = ?1");
                let changed = self.execute(&sql, params![seq, to.full_name(), names.in_record(record)?])?;
                self.drop_unless(changed, table, "seq", seq)?;
            }
        }
        let sql = "SELECT seq, repo, record FROM freezes WHERE repo = ?1";
        for (seq, _, record) in self.rows_of(sql, [from.to_string()])? {
            let sql = "UPDATE OR IGNORE freezes SET repo = ?2, record = ?3 WHERE seq = ?1";
            let changed = self.execute(sql, params![seq, to.to_string(), names.in_record(record)?])?;
            self.drop_unless(changed, "freezes", "seq", seq)?;
        }
        let sql = "SELECT seq, identity, record FROM deliveries WHERE instr(identity, ?1) > 0";
        for (seq, identity, record) in self.rows_of(sql, [format!(":{from}")])? {
            let sql = "UPDATE OR IGNORE deliveries SET identity = ?2, record = ?3 WHERE seq = ?1";
            let changed = self.execute(sql, params![seq, names.in_text(&identity), names.in_record(record)?])?;
            self.drop_unless(changed, "deliveries", "seq", seq)?;
        }
        Ok(())
    }

    fn rename_pulls(&self, table: &str, key: &str, names: &TwoNames<'_>) -> Result<()> {
        let sql = format!("SELECT {key}, pull, record FROM {table} WHERE pull > ?1 || '#' AND pull < ?1 || '$'");
        for (id, pull, record) in self.rows_of(&sql, [names.from.to_string()])? {
            let Some(number) = number_of(&pull, names.from) else { continue };
            let (pull, record) = (format!("{}#{number}", names.to), names.in_record(record)?);
            let sql = format!("UPDATE OR IGNORE {table} SET pull = ?2, record = ?3 WHERE {key} = ?1");
            let mut changed = self.execute(&sql, params![id, pull, record])?;
            if changed == 1 && WITH_REPO.contains(&table) {
                let sql = format!("UPDATE OR IGNORE {table} SET repo = ?2 WHERE {key} = ?1");
                changed = self.execute(&sql, params![id, names.to.full_name()])?;
            }
            if changed == 1 && table == "locks" {
                let lock: ProjectLock = parse(record.as_deref().unwrap_or_default())?;
                self.execute("UPDATE locks SET key = ?2 WHERE seq = ?1", params![id, lock.key()])?;
            }
            self.drop_unless(changed, table, key, id)?;
        }
        Ok(())
    }

    /// Deletes a row that was not renamed, because the present name has such a row already, which is the later one.
    fn drop_unless(&self, changed: usize, table: &str, key: &str, id: i64) -> Result<()> {
        if changed == 0 {
            self.execute(&format!("DELETE FROM {table} WHERE {key} = ?1"), [id])?;
        }
        Ok(())
    }

    fn rows_of(&self, sql: &str, params: impl rusqlite::Params) -> Result<Vec<(i64, String, Option<String>)>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map(params, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

fn entry(act: &str, repo: &RepoId, result: String) -> AuditEntry {
    AuditEntry {
        at: Timestamp::now(),
        who: SERVER.to_owned(),
        act: act.to_owned(),
        subject: repo.to_string(),
        result,
        ..AuditEntry::default()
    }
}

/// Returns the number in the key of a pull request of this repository. Names of repositories may contain a `#` themselves.
fn number_of<'t>(pull: &'t str, repo: &RepoId) -> Option<&'t str> {
    let number = pull.strip_prefix(&repo.to_string())?.strip_prefix('#')?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(number)
}

/// A former and a present name, in all forms that occur in records.
struct TwoNames<'a> {
    from: &'a RepoId,
    to: &'a RepoId,
    addresses: &'a [Option<String>; 2],
}

impl<'a> TwoNames<'a> {
    fn new(from: &'a RepoId, to: &'a RepoId, addresses: &'a [Option<String>; 2]) -> TwoNames<'a> {
        TwoNames { from, to, addresses }
    }

    fn in_record(&self, record: Option<String>) -> Result<Option<String>> {
        let Some(record) = record else { return Ok(None) };
        let mut value: Value = serde_json::from_str(&record).context("cannot read a stored record")?;
        self.rename(&mut value);
        Ok(Some(json(&value)?))
    }

    fn rename(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let is = |key: &str, wanted: &str| fields.get(key).and_then(Value::as_str) == Some(wanted);
                let is_repo =
                    is("host", &self.from.host) && is("owner", &self.from.owner) && is("name", &self.from.name);
                let is_head = is("repo_owner", &self.from.owner) && is("repo_name", &self.from.name);
                let pairs = [("owner", "name", is_repo), ("repo_owner", "repo_name", is_head)];
                for (owner, name, _) in pairs.into_iter().filter(|(.., is)| *is) {
                    fields.insert(owner.to_owned(), self.to.owner.clone().into());
                    fields.insert(name.to_owned(), self.to.name.clone().into());
                }
                fields.values_mut().for_each(|field| self.rename(field));
            }
            Value::Array(rows) => rows.iter_mut().for_each(|row| self.rename(row)),
            Value::String(text) => *text = self.in_text(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Renames the repository in its key, the key of a pull request, the identity of a delivery, or the address for git. Other text stays.
    fn in_text(&self, text: &str) -> String {
        if let [Some(from), Some(to)] = self.addresses
            && text == from
        {
            return to.clone();
        }
        let (from, to) = (self.from.to_string(), self.to.to_string());
        if text == from {
            return to;
        }
        if let Some(number) = number_of(text, self.from) {
            return format!("{to}#{number}");
        }
        let is_identity = !text.contains(char::is_whitespace);
        match text.split_once(&format!(":{from}")).filter(|(_, rest)| is_identity && rest.starts_with(['#', ':'])) {
            Some((before, rest)) => format!("{before}:{to}{rest}"),
            None => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_replaced_in_every_form_and_nothing_else_is() {
        let repo = |owner: &str, name: &str| RepoId { host: "h".into(), owner: owner.into(), name: name.into() };
        let (from, to) = (repo("acme", "infra"), repo("new", "net"));
        let addresses = [Some("https://h/acme/infra.git".to_owned()), Some("https://h/new/net.git".to_owned())];
        let names = TwoNames::new(&from, &to, &addresses);
        let record = json!({
            "repo": {"host": "h", "owner": "acme", "name": "infra"},
            "other": {"host": "h", "owner": "acme", "name": "infra2"},
            "head": {"repo_owner": "acme", "repo_name": "infra", "branch": "acme/infra"},
            "keys": ["h/acme/infra", "h/acme/infra#12", "h/acme/infra#x", "github:h/acme/infra:comment:5",
                "github:h/acme/infra#1:opened", "github:h/acme/infra2#1:opened", "see :h/acme/infra#1"],
            "clone_url": "https://h/acme/infra.git", "body": "acme/infra",
        });
        let renamed = names.in_record(Some(record.to_string())).unwrap().unwrap();
        let wanted = json!({
            "repo": {"host": "h", "owner": "new", "name": "net"},
            "other": {"host": "h", "owner": "acme", "name": "infra2"},
            "head": {"repo_owner": "new", "repo_name": "net", "branch": "acme/infra"},
            "keys": ["h/new/net", "h/new/net#12", "h/acme/infra#x", "github:h/new/net:comment:5",
                "github:h/new/net#1:opened", "github:h/acme/infra2#1:opened", "see :h/acme/infra#1"],
            "clone_url": "https://h/new/net.git", "body": "acme/infra",
        });
        assert_eq!(serde_json::from_str::<Value>(&renamed).unwrap(), wanted);
    }
}
