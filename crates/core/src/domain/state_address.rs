//! Address of a project's state, as far as the server knows it. Repository, directory and workspace identify it; a workflow may add more.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Parts of the address of a project's state from its workflow, besides directory and workspace. Empty if none is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateAddress {
    /// Values of `-backend-config` of its `init` steps.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub backend: BTreeSet<String>,
    /// Its `TF_DATA_DIR`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<String>,
}

impl StateAddress {
    /// Returns true if none is known.
    pub fn is_unknown(&self) -> bool {
        *self == StateAddress::default()
    }

    /// Returns true if two projects of one directory and workspace have different states. Both set a `-backend-config` that the other one
    /// lacks, or both set a `TF_DATA_DIR` and the values differ. Unknown is not different.
    pub fn differs(&self, other: &StateAddress) -> bool {
        let backends = !self.backend.is_subset(&other.backend) && !other.backend.is_subset(&self.backend);
        let data_dirs = self.data_dir.is_some() && other.data_dir.is_some() && self.data_dir != other.data_dir;
        backends || data_dirs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(backend: &[&str], data_dir: Option<&str>) -> StateAddress {
        let backend = backend.iter().map(|value| (*value).to_owned()).collect();
        StateAddress { backend, data_dir: data_dir.map(str::to_owned) }
    }

    #[test]
    fn states_differ_only_where_both_say_so() {
        for (one, other, differs) in [
            ((&[][..], None), (&[][..], None), false),
            ((&["dev"], None), (&[], None), false),
            ((&["dev"], None), (&["dev"], None), false),
            ((&["dev"], None), (&["prod"], None), true),
            ((&["common", "dev"], None), (&["common", "prod"], None), true),
            ((&["common"], None), (&["common", "prod"], None), false),
            ((&[], Some("a")), (&[], None), false),
            ((&[], Some("a")), (&[], Some("a")), false),
            ((&[], Some("a")), (&[], Some("b")), true),
            ((&["dev"], Some("a")), (&["dev"], Some("b")), true),
        ] {
            let (one, other) = (address(one.0, one.1), address(other.0, other.1));
            assert_eq!((one.differs(&other), other.differs(&one)), (differs, differs), "{one:?} {other:?}");
        }
    }

    #[test]
    fn rows_of_earlier_versions_say_nothing_of_it() {
        let known: StateAddress = serde_json::from_str("{}").unwrap();
        assert!(known.is_unknown() && serde_json::to_string(&known).unwrap() == "{}");
    }
}
