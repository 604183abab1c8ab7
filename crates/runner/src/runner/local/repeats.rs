//! Repeats of `init` after errors of registries that usually pass. `init` changes no infrastructure, so that it is safe to repeat, except with
//! Terragrunt, whose hooks would run again, and where it copies a state.

use super::stage::{Broken, Call, Stage};
use crate::process::Finished;
use crate::runner::result::StepProblem;
use std::path::Path;
use std::time::Duration;
use tidelock_core::domain::command::CommandName;

/// Pauses before the repeats of one step.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// Parts of the errors that usually pass, in lower case.
const PASSING: [&str; 8] = [
    "could not connect to registry",
    "connection reset by peer",
    "tls handshake timeout",
    "500 internal server error",
    "502 bad gateway",
    "503 service unavailable",
    "504 gateway timeout",
    "504 gateway time-out",
];

/// Returns the part of an output that names an error which usually passes.
fn passing_error(output: &str) -> Option<&'static str> {
    // Terraform breaks lines within a message, and draws a border before each.
    let words: Vec<&str> = output.split_whitespace().filter(|word| !matches!(*word, "│" | "╷" | "╵")).collect();
    let text = words.join(" ").to_lowercase();
    PASSING.into_iter().find(|error| text.contains(error))
}

/// Returns the line about repeats for the log and the comment.
fn told(what: &str, repeats: usize, error: &str) -> String {
    let times = if repeats == 1 { "once".to_owned() } else { format!("{repeats} times") };
    format!("`{what}` was repeated {times} because of an error that usually passes: {error}.")
}

impl Stage<'_> {
    /// Runs `init` with these arguments, and repeats it after errors that usually pass. An apply never repeats it. Returns its result, and
    /// a line about the repeats; empty if there were none.
    pub(super) async fn run_init(
        &self,
        what: &str,
        program: &Path,
        args: &[String],
    ) -> (Result<Finished, Broken>, String) {
        // Terragrunt's files name commands that run before it, which would get the token.
        let fetches_modules = self.place.tool.terragrunt.is_none();
        let is_safe =
            fetches_modules && !args.iter().any(|arg| arg.contains("migrate-state") || arg.contains("force-copy"));
        let pauses = if is_safe && self.spec.command.name != CommandName::Apply { &PAUSES[..] } else { &[] };
        let (mut pauses, mut repeats, mut line) = (pauses.iter(), 0, String::new());
        loop {
            let call = Call { fetches_modules, installs: true, ..Call::new(what, program, args.to_vec()) };
            let result = self.run_call(call).await;
            let error = match &result {
                Err(Broken::Problem(StepProblem::Exit { .. }, output)) => passing_error(output),
                _ => None,
            };
            let Some((error, pause)) = error.zip(pauses.next()) else { return (result, line) };
            (self.io.log)(&format!("[tidelock: {error}: `{what}` is repeated in {} s]", pause.as_secs()));
            tokio::select! {
                () = tokio::time::sleep(*pause) => {}
                () = self.io.stop.cancelled() => return (result, line),
                () = self.io.kill.cancelled() => return (result, line),
            }
            repeats += 1;
            line = told(what, repeats, error);
        }
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn only_errors_that_usually_pass_are_found_also_across_lines() {
        let wrapped = "╷\n│ Error: Failed to query available provider packages\n│ \n│ Could not retrieve the list of available versions \
                       for provider hashicorp/null: could\n│ not connect to registry.terraform.io: failed to request discovery document\n╵";
        assert_eq!(passing_error(wrapped), Some("could not connect to registry"));
        assert_eq!(
            passing_error("read tcp 10.0.0.1:5: read: connection reset\nby peer"),
            Some("connection reset by peer")
        );
        assert_eq!(passing_error("unsuccessful request: 503 Service Unavailable"), Some("503 service unavailable"));
        for lasting in ["Error: Unsupported argument", "401 Unauthorized", "no available releases match 1.503.0", ""] {
            assert_eq!(passing_error(lasting), None, "{lasting}");
        }
    }

    #[test]
    fn the_line_counts_the_repeats() {
        let line = |repeats| told("terraform init", repeats, "502 bad gateway");
        assert_eq!(
            line(1),
            "`terraform init` was repeated once because of an error that usually passes: 502 bad gateway."
        );
        assert!(line(2).contains("repeated 2 times"));
    }
}
