//! Policies of the server-side configuration that cannot work with the settings, or on this machine.

use crate::config::global::GlobalConfig;
use crate::settings::Settings;
use std::path::Path;

/// Returns a warning for each. Relative paths are in a project's directory, so only absolute ones are looked for.
pub(super) fn warnings(settings: &Settings, global: &GlobalConfig) -> Vec<String> {
    let sets = &global.policies.sets;
    match (settings.enable_policy_checks, sets.is_empty()) {
        (true, true) => vec![
            "--enable-policy-checks is on, and there are no `policies` with `policy_sets` in repos.yaml: no plan can be applied"
                .to_owned(),
        ],
        (false, false) => {
            vec!["the `policies` of repos.yaml have no effect without --enable-policy-checks".to_owned()]
        }
        (false, true) => Vec::new(),
        (true, false) => {
            let paths = sets.iter().filter_map(|set| Some((&set.name, set.path.as_ref()?)));
            let missing = paths.filter(|(_, path)| Path::new(path).is_absolute() && !Path::new(path).exists());
            let warning = |(name, path)| {
                format!("policy set `{name}`: there is no {path} on this machine, so no plan passes it")
            };
            missing.map(warning).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn warned(flags: &[&str], config: &str) -> Vec<String> {
        let needed = ["--gh-user=bot", "--gh-token=t", "--allow-unsigned-webhooks", "--repo-allowlist=*"];
        let flags = needed.iter().chain(flags).map(OsString::from);
        let settings = Settings::load(flags, [("HOME".into(), "/home/tide".into())]);
        let settings = settings.unwrap_or_else(|error| panic!("{error}"));
        warnings(&settings, &GlobalConfig::parse(config, "f").unwrap())
    }

    #[test]
    fn policies_that_cannot_work_are_named() {
        const ON: &str = "--enable-policy-checks";
        let sets = |path: &str| {
            format!("policies: {{policy_sets: [{{name: gate, path: '{path}', owners: {{users: [olga]}}}}]}}")
        };
        assert!(warned(&[], "repos: []").is_empty());
        assert!(warned(&[ON], "repos: []")[0].contains("no plan can be applied"));
        assert!(warned(&[], &sets("/"))[0].contains("no effect without --enable-policy-checks"));
        assert_eq!(
            warned(&[ON], &sets("/nowhere/policies")),
            ["policy set `gate`: there is no /nowhere/policies on this machine, so no plan passes it"]
        );
        for path in ["/", "of/the/project"] {
            assert!(warned(&[ON], &sets(path)).is_empty(), "{path}");
        }
    }
}
