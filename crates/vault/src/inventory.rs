//! List of the objects in a bucket, for display. Needs no lease.

use super::bucket::Listed;
use super::lease::{self, Record};
use super::{Vault, VaultError, chain, inbox, jobs};
use jiff::Timestamp;
use serde::Serialize;

/// One object of the journal, or one base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Number of the journal object. A base has the number of the last commit in it.
    pub seq: u64,
    /// `commit`, `seal`, `base`; `damaged` if a file of a directory cannot be read.
    pub kind: String,
    /// Time at which it was created, by the bucket's clock.
    pub created: Timestamp,
    /// Size in bytes.
    pub size: u64,
}

/// All objects of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inventory {
    /// Address of the bucket.
    pub location: String,
    /// The lease; absent before the first leader.
    pub lease: Option<Record>,
    /// Bases, oldest first.
    pub bases: Vec<Entry>,
    /// Journal objects, oldest first.
    pub journal: Vec<Entry>,
    /// First and last number of each range of restorable states, derived from names alone.
    pub restorable: Vec<(u64, u64)>,
    /// Number of objects in the inbox.
    pub inbox: u64,
    /// Number of jobs with objects.
    pub jobs: u64,
    /// Names of foreign objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
}

impl Inventory {
    /// Returns true if there is no state.
    pub fn is_empty(&self) -> bool {
        self.bases.is_empty() && self.journal.is_empty()
    }

    /// Returns the last state of each older range that starts at a base. A reader of these states and of the newest one reads every
    /// object that a kept state needs.
    pub fn older_stretches(&self) -> Vec<u64> {
        let newest = self.bases.last().map_or(0, |base| base.seq);
        let mut ends: Vec<u64> = Vec::new();
        for &(from, to) in &self.restorable {
            let bases = self.bases.iter().map(|base| base.seq).filter(|seq| (from + 1..=to).contains(seq));
            ends.extend(bases.map(|seq| seq - 1));
            ends.extend((to < newest).then_some(to));
        }
        ends
    }
}

impl Vault {
    /// Lists all objects.
    pub async fn inventory(&self) -> Result<Inventory, VaultError> {
        let calls = self.calls();
        // The journal last, so that its list is not older than that of the bases.
        let lease = lease::read(self).await?;
        let (bases, mut others) = chain::sorted_out(&calls, "base/", "").await?;
        let (journal, more) = chain::sorted_out(&calls, "journal/", "").await?;
        others.extend(more);
        let (entries, more) = inbox::names(&calls).await?;
        others.extend(more);
        let (jobs, more) = jobs::names(&calls).await?;
        others.extend(more);
        let restorable = chain::kept(&bases, &journal);
        let entry = |(seq, Listed { label, created, size, .. })| Entry { seq, kind: label, created, size };
        Ok(Inventory {
            location: self.bucket.location().to_owned(),
            lease,
            bases: bases.into_iter().map(entry).collect(),
            journal: journal.into_iter().map(entry).collect(),
            restorable,
            inbox: entries,
            jobs,
            others,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(seqs: &[u64]) -> Vec<Entry> {
        let entry = |seq: &u64| Entry { seq: *seq, kind: String::new(), created: Timestamp::UNIX_EPOCH, size: 0 };
        seqs.iter().map(entry).collect()
    }

    #[test]
    fn older_stretches_and_the_newest_state_are_all_that_is_kept() {
        type Case<'a> = (&'a [u64], &'a [(u64, u64)], &'a [u64]);
        let cases: &[Case<'_>] = &[
            (&[], &[], &[]),
            (&[], &[(1, 9)], &[]),
            (&[5], &[(1, 9)], &[4]),
            (&[5], &[(5, 9)], &[]),
            (&[5, 9], &[(5, 12)], &[8]),
            (&[5, 9], &[(5, 7), (9, 12)], &[7]),
            (&[5, 9], &[(5, 9)], &[8]),
            (&[5, 6, 9], &[(2, 9)], &[4, 5, 8]),
        ];
        for (bases, restorable, expected) in cases {
            let inventory = Inventory {
                location: String::new(),
                lease: None,
                bases: entries(bases),
                journal: Vec::new(),
                restorable: restorable.to_vec(),
                inbox: 0,
                jobs: 0,
                others: Vec::new(),
            };
            assert_eq!(inventory.older_stretches(), *expected, "{bases:?} {restorable:?}");
        }
    }
}
