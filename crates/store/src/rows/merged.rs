//! Rows of many commits, applied together. Only the last image of each row is applied, so that a restore does not write
//! rows that later commits replaced.

use super::{Input, decode, quoted};
use anyhow::{Result, anyhow, ensure};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Changes of consecutive commits of one format.
#[derive(Default)]
pub(crate) struct Merged<'a> {
    tables: BTreeMap<&'a str, Table<'a>>,
}

struct Table<'a> {
    /// The first commit that changed the table.
    first: u64,
    counter: Option<i64>,
    columns: Vec<&'a str>,
    rows: BTreeMap<i64, Last<'a>>,
}

/// The last image of a row.
struct Last<'a> {
    commit: u64,
    /// Encoded values; `None` if the row was deleted.
    values: Option<&'a [u8]>,
}

/// A commit whose rows cannot be applied, and the reason.
pub(crate) type CommitError = (u64, anyhow::Error);

impl<'a> Merged<'a> {
    /// Adds the rows of the next commit.
    pub(crate) fn add(&mut self, commit: u64, encoded: &'a [u8]) -> Result<()> {
        if encoded.is_empty() {
            return Ok(());
        }
        for table in decode(encoded)? {
            let known = match self.tables.entry(table.name) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(free) => free.insert(Table {
                    first: commit,
                    counter: None,
                    columns: table.columns.clone(),
                    rows: BTreeMap::new(),
                }),
            };
            ensure!(known.columns == table.columns, "the table {} has other columns than before", table.name);
            known.counter = table.counter.or(known.counter);
            known.rows.extend(table.rows.into_iter().map(|(row, values)| (row, Last { commit, values })));
        }
        Ok(())
    }

    /// Applies all changes in the caller's transaction. All changed rows are deleted first, because rows may have
    /// exchanged unique values.
    pub(crate) fn put(&self, connection: &Connection) -> Result<(), CommitError> {
        for (name, table) in &self.tables {
            table.clear(connection, name).map_err(|error| (table.first, error))?;
        }
        for (name, table) in &self.tables {
            let refused = |(commit, error): CommitError| {
                (commit, error.context(format!("rows of the table {name} cannot be put back")))
            };
            table.insert(connection, name).map_err(refused)?;
        }
        Ok(())
    }
}

/// A decoded value as an SQL parameter.
struct Bound<'a>(ValueRef<'a>);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.0))
    }
}

impl Table<'_> {
    fn clear(&self, connection: &Connection, name: &str) -> Result<()> {
        let known = connection
            .prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1")?
            .exists([name])?;
        ensure!(known && !name.starts_with("sqlite_"), "there is no table {name:?}");
        let mut delete = connection.prepare_cached(&format!("DELETE FROM {} WHERE rowid = ?1", quoted(name)))?;
        for row in self.rows.keys() {
            delete.execute([row])?;
        }
        Ok(())
    }

    fn insert(&self, connection: &Connection, name: &str) -> Result<(), CommitError> {
        let columns: Vec<String> = self.columns.iter().map(|name| quoted(name)).collect();
        let places: Vec<String> = (1..=columns.len()).map(|number| format!("?{number}")).collect();
        let sql = format!("INSERT INTO {} ({}) VALUES ({})", quoted(name), columns.join(", "), places.join(", "));
        let first = |error: rusqlite::Error| (self.first, anyhow!(error));
        let mut insert = connection.prepare_cached(&sql).map_err(first)?;
        for (row, Last { commit, values }) in &self.rows {
            let Some(values) = values else { continue };
            let mut put = || -> Result<()> {
                let mut input = Input(values);
                let values = self.columns.iter().map(|_| input.value()).collect::<Result<Vec<_>>>()?;
                insert.execute(params_from_iter(values.into_iter().map(Bound)))?;
                ensure!(connection.last_insert_rowid() == *row, "its row {row} has another number inside");
                Ok(())
            };
            put().map_err(|error| (*commit, error))?;
        }
        match self.counter {
            Some(counter) => set_counter(connection, name, counter).map_err(first),
            None => Ok(()),
        }
    }
}

fn set_counter(connection: &Connection, table: &str, counter: i64) -> rusqlite::Result<()> {
    let set = "UPDATE sqlite_sequence SET seq = ?2 WHERE name = ?1";
    if connection.prepare_cached(set)?.execute((table, counter))? == 0 {
        let add = "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)";
        connection.prepare_cached(add)?.execute((table, counter))?;
    }
    Ok(())
}
