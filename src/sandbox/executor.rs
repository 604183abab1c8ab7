//! Executors of the sandbox's jobs, and the server-side configuration that names them.

use super::tour::TourKind;

/// Name of the executor of kind `process` in the sandbox's configuration.
pub(crate) const NAME: &str = "processes";

/// Where the sandbox's jobs run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum SandboxExecutor {
    /// In the server.
    #[default]
    Local,
    /// In processes of this machine that outlive the server.
    Process,
}

impl SandboxExecutor {
    /// All executors.
    pub(crate) const ALL: [SandboxExecutor; 2] = [SandboxExecutor::Local, SandboxExecutor::Process];

    /// Returns its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SandboxExecutor::Local => "local",
            SandboxExecutor::Process => "process",
        }
    }

    /// Returns the server-side configuration for it and a tour, as JSON; absent if there is nothing to configure.
    pub(crate) fn repo_config(self, tour: Option<TourKind>) -> Option<String> {
        let mut entries: Vec<String> = tour.and_then(TourKind::repo_entry).map(str::to_owned).into_iter().collect();
        let executors = match self {
            SandboxExecutor::Local => String::new(),
            SandboxExecutor::Process => {
                entries.push(format!(r#"{{"id":"/.*/","executor":[{{"plan":"{NAME}","apply":"{NAME}"}}]}}"#));
                format!(r#""executors":{{"{NAME}":{{"kind":"process"}}}},"#)
            }
        };
        (!entries.is_empty()).then(|| format!(r#"{{{executors}"repos":[{}]}}"#, entries.join(",")))
    }

    /// Returns one sentence about it for a tour, where its first job begins; absent for jobs in the server.
    pub(super) fn introduction(self) -> Option<String> {
        (self != SandboxExecutor::Local).then(|| {
            format!(
                "each job runs at the executor `{NAME}`: a process that takes it from the bucket and outlives the server (docs/executors.md)"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn only_what_differs_from_the_defaults_is_configured() {
        let config =
            |executor: SandboxExecutor, tour| executor.repo_config(tour).map(|text| text.parse::<Value>().unwrap());
        let strict = json!({"id": "/.*/", "repo_locks": {"mode": "strict"}, "allowed_users": ["*", "*:unlock"]});
        let rule = json!({"id": "/.*/", "executor": [{"plan": NAME, "apply": NAME}]});
        let executors = json!({NAME: {"kind": "process"}});
        for (executor, tour, expected) in [
            (SandboxExecutor::Local, None, None),
            (SandboxExecutor::Local, Some(TourKind::Lifecycle), None),
            (SandboxExecutor::Local, Some(TourKind::Safety), Some(json!({"repos": [strict]}))),
            (SandboxExecutor::Process, None, Some(json!({"executors": executors, "repos": [rule]}))),
            (
                SandboxExecutor::Process,
                Some(TourKind::Safety),
                Some(json!({"executors": executors, "repos": [strict, rule]})),
            ),
        ] {
            assert_eq!(config(executor, tour), expected, "{executor:?} {tour:?}");
        }
    }
}
