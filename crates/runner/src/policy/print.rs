//! The output of the command, in conftest's format.

use super::PolicyArguments;
use super::evaluate::{NamespaceResult, RuleFinding};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Returns a line for each finding, and a line with the counts.
pub(super) fn lines(results: &[NamespaceResult], asked: &PolicyArguments) -> String {
    let file = &asked.input;
    let mut out = String::new();
    for result in results {
        let mut say = |word: &str, found: &[RuleFinding]| {
            for one in found {
                let _ = writeln!(out, "{word} - {file} - {} - {}", result.namespace, one.message);
            }
        };
        say("WARN", &result.warnings);
        say("FAIL", &result.failures);
        if asked.with_exceptions {
            say("EXCP", &result.exceptions);
        }
    }
    let sum = |count: fn(&NamespaceResult) -> usize| results.iter().map(count).sum::<usize>();
    let counted = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let _ = write!(
        out,
        "\n{}, {} passed, {}, {}",
        counted(sum(NamespaceResult::tests), "test"),
        sum(|result| result.successes),
        counted(sum(|result| result.warnings.len()), "warning"),
        counted(sum(|result| result.failures.len()), "failure"),
    );
    if asked.with_exceptions {
        let _ = write!(out, ", {}", counted(sum(|result| result.exceptions.len()), "exception"));
    }
    out + "\n"
}

/// Returns the output of `--output=json`.
pub(super) fn json(results: &[NamespaceResult], file: &str) -> anyhow::Result<String> {
    let listed = |found: &[RuleFinding]| -> Vec<Value> {
        let row = |one: &RuleFinding| match one.metadata.is_empty() {
            true => json!({"msg": one.message}),
            false => json!({"msg": one.message, "metadata": one.metadata}),
        };
        found.iter().map(row).collect()
    };
    let rows = results.iter().map(|result| {
        let mut row = json!({"filename": file, "namespace": result.namespace, "successes": result.successes});
        for (key, found) in
            [("warnings", &result.warnings), ("failures", &result.failures), ("exceptions", &result.exceptions)]
        {
            if !found.is_empty() {
                row[key] = Value::from(listed(found));
            }
        }
        row
    });
    Ok(serde_json::to_string_pretty(&rows.collect::<Vec<_>>())? + "\n")
}
