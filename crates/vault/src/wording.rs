//! How messages name what belongs to the program that uses this crate: its settings, and how they are changed.

/// Words of the program that uses this crate, for messages to its operators.
#[derive(Debug, Clone, Copy)]
pub struct Wording {
    /// The settings that a fingerprint is made of, in the order in which [`super::lease::fingerprint`] got them.
    pub fingerprint: &'static [&'static str],
    /// How a server is made to lead although its fingerprint differs.
    pub force: &'static str,
    /// The setting that names the bucket.
    pub bucket: &'static str,
    /// How a server is given the secret that hand-over requests are proven with and the one before it.
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
    /// Those settings of the fingerprint whose parts differ; all of them where the parts cannot be compared.
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
