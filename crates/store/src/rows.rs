//! Changed rows of a commit. They are recorded while a group runs, their final images are read at its end, and a restore
//! applies them ([`Merged`]).
//!
//! Encoding: a format byte, the number of tables, and for each table its name, the value of its AUTOINCREMENT counter
//! if it has one, its columns, and its rows. A row has its row ID, a flag that is set if the row exists, and its values
//! with SQLite's types. Numbers are LEB128, signed ones in zigzag. Input is not trusted: nothing is allocated for a
//! count before its bytes have been read.

mod merged;

use anyhow::{Context, Result, anyhow, bail, ensure};
pub(super) use merged::Merged;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// First byte of every encoding.
const FORMAT: u8 = 1;

/// Maximum number of tables in a commit, and of columns in a table, that a reader accepts.
const WIDTH_LIMIT: u64 = 1000;

/// Rows that changed since the group began, in order, with repetitions.
#[derive(Default)]
struct RecordedChanges {
    tables: Vec<String>,
    rows: Vec<(usize, i64)>,
}

/// Recorder of the rows that change on one connection.
#[derive(Clone, Default)]
pub(super) struct ChangeRecorder {
    recorded: Arc<Mutex<RecordedChanges>>,
}

impl ChangeRecorder {
    /// Records every change of `connection` from now on. SQLite does not report rows that `REPLACE` displaces, nor a
    /// `DELETE` without `WHERE`: the store uses neither.
    pub(super) fn attach(connection: &mut Connection) -> Result<ChangeRecorder> {
        let recorder = ChangeRecorder::default();
        let hook = recorder.clone();
        connection.update_hook(Some(move |_, database: &str, table: &str, row: i64| {
            if database == "main" {
                hook.lock().add(table, row);
            }
        }))?;
        Ok(recorder)
    }

    /// Drops all records.
    pub(super) fn clear(&self) {
        self.rewind(0);
    }

    /// Returns the number of recorded changes.
    pub(super) fn mark(&self) -> usize {
        self.lock().rows.len()
    }

    /// Drops the records after a mark, whose changes were undone.
    pub(super) fn rewind(&self, mark: usize) {
        self.lock().rows.truncate(mark);
    }

    fn lock(&self) -> MutexGuard<'_, RecordedChanges> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes the final images of all changed rows; `None` if nothing changed.
    pub(super) fn capture(&self, connection: &Connection) -> Result<Option<Vec<u8>>> {
        let mut changed: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
        {
            let recorded = self.lock();
            for (table, row) in &recorded.rows {
                let name = recorded.tables.get(*table).context("a change was recorded without its table")?;
                match changed.get_mut(name) {
                    Some(rows) => _ = rows.insert(*row),
                    None => _ = changed.insert(name.clone(), BTreeSet::from([*row])),
                }
            }
        }
        if changed.is_empty() {
            return Ok(None);
        }
        let mut out = vec![FORMAT];
        put_number(&mut out, changed.len() as u64);
        for (table, rows) in &changed {
            capture_table(connection, table, rows, &mut out).with_context(|| format!("cannot read rows of {table}"))?;
        }
        Ok(Some(out))
    }
}

impl RecordedChanges {
    fn add(&mut self, table: &str, row: i64) {
        let known = self.tables.iter().position(|name| name == table);
        let table = known.unwrap_or_else(|| {
            self.tables.push(table.to_owned());
            self.tables.len() - 1
        });
        self.rows.push((table, row));
    }
}

fn capture_table(connection: &Connection, table: &str, rows: &BTreeSet<i64>, out: &mut Vec<u8>) -> Result<()> {
    put_bytes(out, table.as_bytes());
    match counter(connection, table)? {
        Some(value) => {
            out.push(1);
            put_signed(out, value);
        }
        None => out.push(0),
    }
    let mut statement = connection.prepare_cached(&format!("SELECT * FROM {} WHERE rowid = ?1", quoted(table)))?;
    let columns = statement.column_count();
    put_number(out, columns as u64);
    for name in statement.column_names() {
        put_bytes(out, name.as_bytes());
    }
    put_number(out, rows.len() as u64);
    for row in rows {
        put_signed(out, *row);
        let mut found = statement.query([row])?;
        match found.next()? {
            Some(values) => {
                out.push(1);
                for column in 0..columns {
                    put_value(out, values.get_ref(column)?);
                }
            }
            None => out.push(0),
        }
    }
    Ok(())
}

/// Returns the counter of an AUTOINCREMENT table; `None` for other tables and before the first row.
fn counter(connection: &Connection, table: &str) -> Result<Option<i64>> {
    let mut statement = connection.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = ?1")?;
    Ok(statement.query_row([table], |row| row.get(0)).optional()?)
}

/// Changes of one table.
#[derive(Debug, PartialEq)]
struct TableRows<'a> {
    name: &'a str,
    counter: Option<i64>,
    columns: Vec<&'a str>,
    /// Rows with their encoded values; `None` if the row was deleted.
    rows: Vec<(i64, Option<&'a [u8]>)>,
}

fn decode(encoded: &[u8]) -> Result<Vec<TableRows<'_>>> {
    let mut input = Input(encoded);
    let format = input.byte()?;
    ensure!(format == FORMAT, "they are of format {format}, and this version knows {FORMAT} only");
    let mut tables = Vec::new();
    for _ in 0..input.width()? {
        let name = input.text()?;
        let counter = if input.flag()? { Some(input.signed()?) } else { None };
        let mut columns = Vec::new();
        for _ in 0..input.width()? {
            columns.push(input.text()?);
        }
        let mut rows = Vec::new();
        for _ in 0..input.number()? {
            let row = input.signed()?;
            let values = match input.flag()? {
                true => Some(input.values(columns.len())?),
                false => None,
            };
            rows.push((row, values));
        }
        tables.push(TableRows { name, counter, columns, rows });
    }
    ensure!(input.0.is_empty(), "{} bytes are left over", input.0.len());
    Ok(tables)
}

/// The unread rest of the input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).context("they end too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        self.take(1)?.first().copied().context("they end too early")
    }

    fn flag(&mut self) -> Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => bail!("{other} is neither yes nor no"),
        }
    }

    fn number(&mut self) -> Result<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            ensure!(shift < 63 || bits <= 1, "a number is too large");
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(anyhow!("a number does not end"))
    }

    fn signed(&mut self) -> Result<i64> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
    }

    fn width(&mut self) -> Result<u64> {
        let width = self.number()?;
        ensure!(width <= WIDTH_LIMIT, "{width} is more than {WIDTH_LIMIT} tables or columns");
        Ok(width)
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = usize::try_from(self.number()?)?;
        self.take(length)
    }

    fn text(&mut self) -> Result<&'a str> {
        Ok(std::str::from_utf8(self.bytes()?)?)
    }

    /// Returns the bytes of this many values, each of them validated.
    fn values(&mut self, count: usize) -> Result<&'a [u8]> {
        let all = self.0;
        for _ in 0..count {
            self.value()?;
        }
        all.get(..all.len() - self.0.len()).context("they end too early")
    }

    fn value(&mut self) -> Result<ValueRef<'a>> {
        Ok(match self.byte()? {
            0 => ValueRef::Null,
            1 => ValueRef::Integer(self.signed()?),
            2 => ValueRef::Real(f64::from_le_bytes(self.take(8)?.try_into()?)),
            3 => ValueRef::Text(self.bytes()?),
            4 => ValueRef::Blob(self.bytes()?),
            other => bail!("a value has the unknown type {other}"),
        })
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_number(out, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Encodes a value with its type.
pub(super) fn put_value(out: &mut Vec<u8>, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => out.push(0),
        ValueRef::Integer(number) => {
            out.push(1);
            put_signed(out, number);
        }
        ValueRef::Real(number) => {
            out.push(2);
            out.extend_from_slice(&number.to_le_bytes());
        }
        ValueRef::Text(bytes) => {
            out.push(3);
            put_bytes(out, bytes);
        }
        ValueRef::Blob(bytes) => {
            out.push(4);
            put_bytes(out, bytes);
        }
    }
}

/// Quotes an SQL identifier.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod mutation_tests;
#[cfg(test)]
mod tests;
