//! What lies in a bucket, for people: read without the lease, changes nothing.

use super::bucket::Listed;
use super::lease::{self, Record};
use super::{Vault, VaultError, chain, inbox};
use jiff::Timestamp;
use serde::Serialize;

/// One object of the journal, or one base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Number of the journal object; of a base: of the one that it is the state after.
    pub seq: u64,
    /// `commit`, `seal`, `base`; `damaged` where a file of a directory cannot be read.
    pub kind: String,
    /// When it was made, by the bucket's clock.
    pub created: Timestamp,
    /// Bytes.
    pub size: u64,
}

/// All that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inventory {
    /// Address of the bucket.
    pub location: String,
    /// Who leads; absent before the first leader.
    pub lease: Option<Record>,
    /// Oldest first.
    pub bases: Vec<Entry>,
    /// Oldest first.
    pub journal: Vec<Entry>,
    /// First and last of each row of states that can be restored, as far as names say.
    pub restorable: Vec<(u64, u64)>,
    /// Objects that wait for the leader.
    pub inbox: u64,
    /// Names of what lies among these objects and is not ours.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
}

impl Inventory {
    /// Whether there is any state.
    pub fn is_empty(&self) -> bool {
        self.bases.is_empty() && self.journal.is_empty()
    }

    /// The last states of all stretches of objects but the newest one's: reading each of them, and the newest state, reads
    /// every object that a kept state needs.
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
    /// Looks at what is there.
    pub async fn inventory(&self) -> Result<Inventory, VaultError> {
        let calls = self.calls();
        // The journal last: what it shows is then not older than the bases.
        let lease = lease::look(self).await?;
        let (bases, mut others) = chain::sorted_out(&calls, "base/", "").await?;
        let (journal, more) = chain::sorted_out(&calls, "journal/", "").await?;
        others.extend(more);
        let (mail, more) = inbox::names(&calls).await?;
        others.extend(more);
        let restorable = chain::kept(&bases, &journal);
        let entry = |(seq, Listed { label, created, size, .. })| Entry { seq, kind: label, created, size };
        Ok(Inventory {
            location: self.bucket.location().to_owned(),
            lease,
            bases: bases.into_iter().map(entry).collect(),
            journal: journal.into_iter().map(entry).collect(),
            restorable,
            inbox: mail,
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
                others: Vec::new(),
            };
            assert_eq!(inventory.older_stretches(), *expected, "{bases:?} {restorable:?}");
        }
    }
}
