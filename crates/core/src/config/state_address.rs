//! Address of a project's state, from its workflow.

use super::paths::clean;
use super::workflow::{EnvValue, Step};
use super::{LockMode, ProjectConfig};
use crate::domain::state_address::StateAddress;
use std::collections::BTreeSet;

/// Option of Terraform's `init` that names a file with settings of the backend, or one setting.
const BACKEND_CONFIG: &str = "-backend-config";

impl ProjectConfig {
    /// Returns the address of its state, besides its directory and workspace: fixed values that the plan stage of its workflow sets. It is
    /// unknown in mode `strict`, which only compares directory and workspace.
    pub fn state_address(&self) -> StateAddress {
        if matches!(self.repo_locks, LockMode::Strict(_)) {
            return StateAddress::default();
        }
        let mut address = StateAddress::default();
        for step in &self.workflow.plan {
            match step {
                Step::Init { extra_args } => match backend_configs(extra_args) {
                    Some(values) => address.backend.extend(values),
                    None => return StateAddress::default(),
                },
                Step::Env { name, value } if name == "TF_DATA_DIR" => {
                    address.data_dir = match value {
                        EnvValue::Value(value) if is_fixed(value) => Some(clean(value)),
                        EnvValue::Value(_) | EnvValue::Command(_) => None,
                    };
                }
                _ => {}
            }
        }
        address
    }
}

/// Returns true if no shell and no variable changes a value.
fn is_fixed(value: &str) -> bool {
    !value.is_empty() && !value.contains(['$', '`', '\\'])
}

/// Returns the values of `-backend-config`; none if one of them is not fixed.
fn backend_configs(args: &[String]) -> Option<BTreeSet<String>> {
    let mut values = BTreeSet::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        // Terraform accepts one dash or two.
        let Some(rest) = arg.strip_prefix('-').and_then(|arg| {
            format!("-{}", arg.trim_start_matches('-')).strip_prefix(BACKEND_CONFIG).map(str::to_owned)
        }) else {
            continue;
        };
        let value = match rest.strip_prefix('=') {
            Some(value) => value.to_owned(),
            None if rest.is_empty() => args.next()?.clone(),
            None => continue,
        };
        if !is_fixed(&value) {
            return None;
        }
        // A file by its path, or `key=value`.
        values.insert(if value.contains('=') { value } else { clean(&value) });
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_files_are_read_from_arguments_in_every_form() {
        let read = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            backend_configs(&args).map(|values| values.into_iter().collect::<Vec<_>>())
        };
        for (args, values) in [
            (&["-upgrade"][..], Some(vec![])),
            (&["-backend-config=dev.hcl"], Some(vec!["dev.hcl"])),
            (&["--backend-config", "./a/../dev.hcl"], Some(vec!["dev.hcl"])),
            (&["-backend-config=key=dev", "-backend-config=common.hcl"], Some(vec!["common.hcl", "key=dev"])),
            (&["-backend-config=$WORKSPACE.hcl"], None),
            (&["-backend-config"], None),
            (&["-backend-config="], None),
        ] {
            let values = values.map(|values| values.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(read(args), values, "{args:?}");
        }
    }
}
