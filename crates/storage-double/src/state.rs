//! Buckets and objects of the double: generations, preconditions, permissions, limits. Both transports use this state.

use super::accounts::{IamTarget, StorageCaller};
use super::refusal::Refusal;
use super::settings::Settings;
use bytes::Bytes;
use jiff::Timestamp;
use md5::{Digest, Md5};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::time::{Duration, Instant};

/// Most items on a page of a list, and the default.
pub(crate) const MAX_PAGE: usize = 1000;
/// Longest name of an object, in bytes.
const MAX_NAME: usize = 1024;
/// Largest custom metadata of an object, in bytes.
const MAX_METADATA: usize = 8 << 10;
/// Least time between two changes of one object.
pub(crate) const MUTATION_INTERVAL: Duration = Duration::from_secs(1);

/// Attributes of an object that a writer gives.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attributes {
    pub(crate) content_type: String,
    pub(crate) content_encoding: String,
    pub(crate) metadata: BTreeMap<String, String>,
    /// Checksum that the content must have.
    pub(crate) crc32c: Option<u32>,
    pub(crate) md5: Option<Vec<u8>>,
}

/// One version of an object.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) generation: i64,
    pub(crate) metageneration: i64,
    pub(crate) content: Bytes,
    pub(crate) content_type: String,
    pub(crate) content_encoding: String,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) crc32c: u32,
    pub(crate) md5: [u8; 16],
    pub(crate) created: Timestamp,
    pub(crate) updated: Timestamp,
}

/// Bytes and their checksums.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) bytes: Bytes,
    crc32c: u32,
    md5: [u8; 16],
}

/// Size in bytes above which checksums are computed on a blocking thread.
const SUMMED_AT_ONCE: usize = 64 << 10;

impl Content {
    fn sum(bytes: Bytes) -> Content {
        Content { crc32c: crc32c::crc32c(&bytes), md5: Md5::digest(&bytes).into(), bytes }
    }

    /// Computes the checksums of the bytes.
    pub(crate) async fn of(bytes: Bytes) -> Result<Content, Refusal> {
        if bytes.len() <= SUMMED_AT_ONCE {
            return Ok(Content::sum(bytes));
        }
        tokio::task::spawn_blocking(move || Content::sum(bytes)).await.map_err(|_| Refusal::fault(500))
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Conditions {
    pub(crate) generation_match: Option<i64>,
    pub(crate) generation_not_match: Option<i64>,
    pub(crate) metageneration_match: Option<i64>,
    pub(crate) metageneration_not_match: Option<i64>,
}

impl Conditions {
    /// Checks the conditions of a write, or of a read of an existing object. The status is 412, or 304 for the negated ones, in the
    /// emulator's order.
    fn hold(&self, present: Option<&Stored>) -> Result<(), Refusal> {
        let (generation, metageneration) = present.map_or((0, 0), |o| (o.generation, o.metageneration));
        let wanted = |name, wanted: Option<i64>, actual: i64| match wanted {
            Some(wanted) if wanted != actual => Err(Refusal::mismatch(name, wanted, actual)),
            _ => Ok(()),
        };
        let unwanted = |name, unwanted: Option<i64>, actual: i64| match unwanted {
            Some(unwanted) if unwanted == actual => Err(Refusal::not_changed(name, actual)),
            _ => Ok(()),
        };
        wanted("ifMetagenerationMatch", self.metageneration_match, metageneration)?;
        unwanted("ifMetagenerationNotMatch", self.metageneration_not_match, metageneration)?;
        wanted("ifGenerationMatch", self.generation_match, generation)?;
        unwanted("ifGenerationNotMatch", self.generation_not_match, generation)
    }
}

/// Parameters of a list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query {
    pub(crate) prefix: String,
    pub(crate) delimiter: String,
    pub(crate) start: String,
    pub(crate) end: String,
    pub(crate) token: String,
    /// Requested items on a page; 0: the maximum.
    pub(crate) page_size: usize,
}

/// One page of a list.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Stored>,
    pub(crate) prefixes: Vec<String>,
    /// Token of the next page; empty on the last one.
    pub(crate) next: String,
}

#[derive(Debug, Default)]
pub(crate) struct BucketState {
    pub(crate) settings: Settings,
    objects: BTreeMap<String, Stored>,
    noncurrent: Vec<Stored>,
    mutated: HashMap<String, Instant>,
}

/// All data of the double.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) buckets: BTreeMap<String, BucketState>,
    /// True if a second change of one object within a second is refused.
    pub(crate) mutation_limit: bool,
    /// Most items on a page; smaller than [`MAX_PAGE`] to get many pages.
    pub(crate) page_limit: usize,
    /// True if rights are checked before preconditions.
    pub(crate) rights_first: bool,
    /// True if who may not list is told that an object does not exist.
    pub(crate) absence_told: bool,
    last_generation: i64,
}

impl State {
    pub(crate) fn new() -> State {
        State {
            buckets: BTreeMap::new(),
            mutation_limit: true,
            page_limit: MAX_PAGE,
            rights_first: false,
            absence_told: false,
            last_generation: 0,
        }
    }

    /// Returns the bucket if the caller has the permission for what is there.
    pub(crate) fn bucket(
        &mut self,
        caller: &StorageCaller,
        permission: &'static str,
        target: IamTarget<'_>,
    ) -> Result<&mut BucketState, Refusal> {
        let (IamTarget::Bucket(bucket) | IamTarget::List(bucket, _) | IamTarget::Object(bucket, _)) = target;
        let found = self.buckets.get_mut(bucket).ok_or_else(|| Refusal::no_bucket(bucket))?;
        if found.settings.requester_pays {
            return Err(Refusal::invalid("Bucket is a requester pays bucket but no user project provided."));
        }
        found.allows(permission)?;
        caller.may(permission, target)?;
        Ok(found)
    }

    pub(crate) fn insert(
        &mut self,
        caller: &StorageCaller,
        bucket: &str,
        name: &str,
        content: Content,
        attributes: Attributes,
        conditions: Conditions,
    ) -> Result<Stored, Refusal> {
        check_name(name)?;
        if attributes.metadata.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() > MAX_METADATA {
            return Err(Refusal::invalid("Metadata is too large."));
        }
        let limit = self.mutation_limit;
        let generation = self.next_generation();
        let (rights_first, target) = (self.rights_first, IamTarget::Object(bucket, name));
        let bucket = self.bucket(caller, "storage.objects.create", target)?;
        if !rights_first {
            conditions.hold(bucket.objects.get(name))?;
        }
        if bucket.objects.contains_key(name) {
            bucket.allows("storage.objects.delete")?;
            caller.may("storage.objects.delete", target)?;
        }
        conditions.hold(bucket.objects.get(name))?;
        bucket.may_be_replaced(name)?;
        let Content { bytes: content, crc32c, md5 } = content;
        // gcs/object.py `init` of the emulator: a wrong checksum is refused like a failed precondition.
        if let Some(said) = attributes.md5.as_ref().filter(|said| *said != &md5) {
            return Err(Refusal::mismatch("md5Hash", hex::encode(said), hex::encode(md5)));
        }
        if let Some(said) = attributes.crc32c.filter(|said| *said != crc32c) {
            return Err(Refusal::mismatch("crc32c", said, crc32c));
        }
        bucket.mutates(name, limit)?;
        let now = Timestamp::now();
        let stored = Stored {
            name: name.to_owned(),
            generation,
            metageneration: 1,
            content,
            content_type: attributes.content_type,
            content_encoding: attributes.content_encoding,
            metadata: attributes.metadata,
            crc32c,
            md5,
            created: now,
            updated: now,
        };
        let old = bucket.objects.insert(name.to_owned(), stored.clone());
        bucket.keeps(old);
        Ok(stored)
    }

    /// Returns the object of a name: the present one, or with versioning that generation.
    pub(crate) fn read(
        &mut self,
        caller: &StorageCaller,
        bucket: &str,
        name: &str,
        generation: Option<i64>,
        conditions: Conditions,
    ) -> Result<Stored, Refusal> {
        let absence_told = self.absence_told;
        let found = self.bucket(caller, "storage.objects.get", IamTarget::Object(bucket, name))?;
        let Some(stored) = found.at(name, generation) else {
            if !absence_told && !caller.has("storage.objects.list", IamTarget::Bucket(bucket)) {
                return Err(Refusal::forbidden_to(caller.email(), "storage.objects.get"));
            }
            return Err(Refusal::no_object(name));
        };
        conditions.hold(Some(stored))?;
        Ok(stored.clone())
    }

    pub(crate) fn delete(
        &mut self,
        caller: &StorageCaller,
        bucket: &str,
        name: &str,
        generation: Option<i64>,
        conditions: Conditions,
    ) -> Result<(), Refusal> {
        let absent = || Refusal::no_object(name);
        let limit = self.mutation_limit;
        let found = self.bucket(caller, "storage.objects.delete", IamTarget::Object(bucket, name))?;
        conditions.hold(Some(found.at(name, generation).ok_or_else(absent)?))?;
        found.may_be_replaced(name)?;
        found.mutates(name, limit)?;
        match generation {
            Some(generation) if found.objects.get(name).is_none_or(|o| o.generation != generation) => {
                found.noncurrent.retain(|o| o.name != name || o.generation != generation);
            }
            named => {
                let old = found.objects.remove(name);
                found.keeps(old.filter(|_| named.is_none()));
            }
        }
        Ok(())
    }

    /// Changes custom metadata, where `None` removes the key, and the content type.
    pub(crate) fn patch(
        &mut self,
        caller: &StorageCaller,
        bucket: &str,
        name: &str,
        changes: BTreeMap<String, Option<String>>,
        content_type: Option<String>,
        conditions: Conditions,
    ) -> Result<Stored, Refusal> {
        let absent = || Refusal::no_object(name);
        let limit = self.mutation_limit;
        let found = self.bucket(caller, "storage.objects.update", IamTarget::Object(bucket, name))?;
        conditions.hold(Some(found.objects.get(name).ok_or_else(absent)?))?;
        found.mutates(name, limit)?;
        let stored = found.objects.get_mut(name).ok_or_else(absent)?;
        for (key, value) in changes {
            match value {
                Some(value) => stored.metadata.insert(key, value),
                None => stored.metadata.remove(&key),
            };
        }
        stored.content_type = content_type.unwrap_or_else(|| stored.content_type.clone());
        stored.metageneration += 1;
        stored.updated = Timestamp::now();
        Ok(stored.clone())
    }

    /// Returns one page of a list; a prefix counts as one item.
    pub(crate) fn list(&mut self, caller: &StorageCaller, bucket: &str, query: &Query) -> Result<Page, Refusal> {
        let limit = self.page_limit.min(MAX_PAGE);
        let limit = if query.page_size == 0 { limit } else { limit.min(query.page_size) };
        let found = self.bucket(caller, "storage.objects.list", IamTarget::List(bucket, &query.prefix))?;
        let after = query.after()?;
        let mut page = Page::default();
        let mut last = String::new();
        let from = query.start.as_str().max(query.prefix.as_str()).to_owned();
        for (name, stored) in found.objects.range::<String, _>((Bound::Included(from), Bound::Unbounded)) {
            if !name.starts_with(&query.prefix) || (!query.end.is_empty() && *name >= query.end) {
                break;
            }
            let folder = query.folder(name);
            let item = folder.as_deref().unwrap_or(name);
            if after.as_deref().is_some_and(|after| item <= after) || (folder.is_some() && item == last) {
                continue;
            }
            if page.objects.len() + page.prefixes.len() == limit {
                page.next = query.token_after(&last);
                break;
            }
            last = item.to_owned();
            match folder {
                Some(folder) => page.prefixes.push(folder),
                None => page.objects.push(stored.clone()),
            }
        }
        Ok(page)
    }

    fn next_generation(&mut self) -> i64 {
        self.last_generation = Timestamp::now().as_microsecond().max(self.last_generation + 1);
        self.last_generation
    }
}

impl BucketState {
    /// Names of all present objects.
    pub(crate) fn names(&self) -> Vec<String> {
        self.objects.keys().cloned().collect()
    }

    /// Replaces the content as a broken disk would: the checksums stay.
    pub(crate) fn damage(&mut self, name: &str, content: Bytes) -> bool {
        self.objects.get_mut(name).map(|stored| stored.content = content).is_some()
    }

    pub(crate) fn allows(&self, permission: &str) -> Result<(), Refusal> {
        if self.settings.denied.contains(&permission) { Err(Refusal::forbidden(permission)) } else { Ok(()) }
    }

    fn at(&self, name: &str, generation: Option<i64>) -> Option<&Stored> {
        let present = self.objects.get(name);
        let Some(generation) = generation else { return present };
        let all = present.into_iter().chain(self.noncurrent.iter().filter(|o| o.name == name));
        all.into_iter().find(|o| o.generation == generation)
    }

    fn keeps(&mut self, old: Option<Stored>) {
        if self.settings.versioning {
            self.noncurrent.extend(old);
        }
    }

    fn may_be_replaced(&self, name: &str) -> Result<(), Refusal> {
        let (Some(seconds), Some(stored)) = (self.settings.retention, self.objects.get(name)) else { return Ok(()) };
        if Timestamp::now().as_second() - stored.created.as_second() < seconds {
            return Err(Refusal::retained(name));
        }
        Ok(())
    }

    fn mutates(&mut self, name: &str, limit: bool) -> Result<(), Refusal> {
        let now = Instant::now();
        let last = self.mutated.insert(name.to_owned(), now);
        match last.filter(|last| limit && now.duration_since(*last) < MUTATION_INTERVAL) {
            None => Ok(()),
            Some(last) => {
                self.mutated.insert(name.to_owned(), last);
                Err(Refusal::too_many(name))
            }
        }
    }
}

impl Query {
    fn folder(&self, name: &str) -> Option<String> {
        let rest = name.get(self.prefix.len()..).filter(|_| !self.delimiter.is_empty())?;
        let end = self.prefix.len() + rest.find(&self.delimiter)? + self.delimiter.len();
        name.get(..end).map(str::to_owned)
    }

    /// Returns the token of the next page. It is valid only for a list with the same prefix and delimiter.
    fn token_after(&self, last: &str) -> String {
        hex::encode(format!("{}\n{}\n{last}", self.prefix, self.delimiter))
    }

    fn after(&self) -> Result<Option<String>, Refusal> {
        if self.token.is_empty() {
            return Ok(None);
        }
        let decoded = hex::decode(&self.token).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        let after = decoded.strip_prefix(&format!("{}\n{}\n", self.prefix, self.delimiter));
        after.map(|after| Some(after.to_owned())).ok_or_else(|| Refusal::invalid("Invalid page token."))
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let wrong = name.is_empty()
        || name.len() > MAX_NAME
        || name.contains(['\r', '\n'])
        || name == "."
        || name == ".."
        || name.starts_with(".well-known/acme-challenge/");
    if wrong { Err(Refusal::invalid("Invalid object name.")) } else { Ok(()) }
}
