//! Names and instructions in messages that depend on the program that uses this crate.

/// Words of the program that uses this crate, for messages to its operators.
#[derive(Debug, Clone, Copy)]
pub struct Wording {
    /// Names of the settings in a fingerprint, in the order of the arguments of [`super::lease::fingerprint`].
    pub fingerprint: &'static [&'static str],
    /// Instruction to make a server lead although its fingerprint differs.
    pub force: &'static str,
    /// Name of the setting for the bucket.
    pub bucket: &'static str,
    /// Instruction to give a server both the present and the previous secret for hand-over requests.
    pub both_secrets: &'static str,
}

impl Default for Wording {
    fn default() -> Wording {
        Wording {
            fingerprint: &[],
            force: "start this server once with `Identity::force`",
            bucket: "the bucket's address",
            both_secrets: "start the new server with both",
        }
    }
}

impl Wording {
    /// Returns the names of the differing settings, or of all if the fingerprints cannot be compared.
    pub(super) fn differing(&self, theirs: &str, ours: &str) -> String {
        let names = self.fingerprint;
        let (theirs, ours) = (theirs.split('-'), ours.split('-'));
        if names.is_empty() {
            return "what must not change by accident".to_owned();
        }
        if theirs.clone().count() != names.len() || ours.clone().count() != names.len() {
            return names.join(" or ");
        }
        let pairs = names.iter().zip(theirs.zip(ours)).filter(|(_, (a, b))| a != b);
        pairs.map(|(name, _)| *name).collect::<Vec<_>>().join(" and ")
    }
}
