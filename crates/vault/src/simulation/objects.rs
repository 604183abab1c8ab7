//! Contents of the objects that servers write, read with the vault's own format and cached by content.

use super::request::Content;
use super::world::Fact;
use crate::inbox::StoredDelivery;
use crate::pack::{self, Invalid, ObjectKind, Section};
use crate::{Hash, Position, calls};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Maximum number of cached objects.
const REMEMBERED: usize = 50_000;

/// A commit or a seal.
pub(super) struct Journal {
    pub(super) seal: bool,
    pub(super) epoch: u64,
    pub(super) previous: Hash,
    pub(super) hash: Hash,
    pub(super) facts: Vec<Fact>,
}

pub(super) struct Base {
    pub(super) position: Position,
    pub(super) facts: Vec<Fact>,
}

type Known = HashMap<u64, Result<Rc<Journal>, String>>;

thread_local! {
    static JOURNALS: RefCell<Known> = RefCell::default();
}

/// Parses a state or changes, which are a JSON list here, in place of those of `store`.
pub(super) fn facts(rows: &[u8]) -> Vec<Fact> {
    if rows.is_empty() { Vec::new() } else { serde_json::from_slice(rows).unwrap() }
}

pub(super) fn journal_name(seq: u64) -> String {
    calls::journal(seq)
}

fn section(content: &Content, offset: u64, section: &Section) -> Result<Vec<u8>, Invalid> {
    let start = usize::try_from(offset).unwrap();
    let end = start + usize::try_from(section.stored).unwrap();
    pack::decode(section, content.bytes.slice(start..end)).map(|bytes| bytes.to_vec())
}

fn decode_journal(content: &Content) -> Result<Journal, Invalid> {
    let head = pack::decode_head(&content.bytes, content.bytes.len() as u64)?;
    let rows = match &head.header.rows {
        Some(rows) => section(content, head.contents, rows)?,
        None => Vec::new(),
    };
    for (offset, blob) in head.sections() {
        section(content, offset, &blob)?;
    }
    Ok(Journal {
        seal: head.header.kind == ObjectKind::Seal,
        epoch: head.header.epoch,
        previous: head.header.previous,
        hash: head.hash,
        facts: facts(&rows),
    })
}

pub(super) fn journal(content: &Content) -> Result<Rc<Journal>, String> {
    JOURNALS.with_borrow_mut(|known| {
        if known.len() > REMEMBERED {
            known.clear();
        }
        let decode = || decode_journal(content).map(Rc::new).map_err(|bad| format!("{bad:?}"));
        known.entry(content.digest).or_insert_with(decode).clone()
    })
}

pub(super) fn base(content: &Content) -> Result<Base, String> {
    let decode = || {
        let head = pack::decode_head(&content.bytes, content.bytes.len() as u64)?;
        let parts = head.header.database.as_ref().map_or(0, Vec::len);
        let mut database = Vec::new();
        for (number, (offset, part)) in head.sections().enumerate() {
            let bytes = section(content, offset, &part)?;
            if number < parts {
                database.extend(bytes);
            }
        }
        let position = Position { seq: head.header.seq, hash: head.header.previous };
        Ok(Base { position, facts: facts(&database) })
    };
    decode().map_err(|bad: Invalid| format!("{bad:?}"))
}

/// Parses the delivery of an inbox object, behind its envelope.
pub(super) fn delivery(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    serde_json::from_slice::<StoredDelivery>(&bytes[end + 1..]).ok().map(|stored| stored.body)
}
