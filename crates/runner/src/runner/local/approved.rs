//! Applies of a plan that another job has made, with rights that this one has not: it can have given back a file that does something else
//! than its text. So the file is shown here before anything is applied, and has to have the text that people have approved.

use super::environment;
use super::planned_code::{ComparedCheckout, PlannedCode};
use super::remote;
use super::sealed::Sealed;
use super::stage::{Broken, Call, Stage};
use super::steps::SHOW;
use crate::process::{MASK, Redactor, printed_text};
use crate::runner::result::StepProblem;
use crate::terraform::summary::strip_ansi;
use anyhow::{Result, anyhow};
use semver::Version;
use std::sync::Arc;
use tidelock_core::domain::Distribution;

/// Terraform's data directory. Nothing that a plan leaves there is kept.
const DATA_DIR: &str = ".terraform";
/// First version of OpenTofu that reads files of its own.
const OWN_FILES: Version = Version::new(1, 8, 0);
/// Most lines of a text from which it is compared. The first line of a plan is in its text once.
const MAX_TRIES: usize = 100;
/// Spaces before a value of a resource.
const VALUE_INDENT: usize = 6;

impl Stage<'_> {
    /// Checks that the plan file of an apply does what was approved. `init` has run in the checkout.
    pub(super) async fn check_approved(&self, approved: &str, code: &Arc<Result<PlannedCode>>) -> Result<(), Broken> {
        let Some(plan) = &self.plan else { return Ok(()) };
        (self.io.log)("[tidelock: comparing the plan file with the approved text]");
        let text = match remote::text(plan).await {
            Some(text) => text,
            None => {
                self.check_code(code).await?;
                self.shown(plan).await?
            }
        };
        let redactor = &self.local.redactor;
        // What is no text could be something else as well.
        if strip_ansi(&text) == text && has_block(approved, &text, redactor) {
            return Ok(());
        }
        let problem = if was_cut(approved) { StepProblem::PlanTextTooLong } else { StepProblem::PlanTextDiffers };
        Err(self.broken(problem, &redactor.redact(&text)))
    }

    async fn check_code(&self, code: &Arc<Result<PlannedCode>>) -> Result<(), Broken> {
        let differs = |what: String| self.broken(StepProblem::PlanCodeDiffers { what }, "");
        // Steps of the plan may have left providers and modules in another directory, and `init` would have used them.
        if environment::get(&self.env, "TF_DATA_DIR").is_some_and(|set| !set.is_empty() && set != DATA_DIR) {
            return Err(differs("`TF_DATA_DIR` names another directory than `.terraform`".to_owned()));
        }
        let (code, tool) = (Arc::clone(code), &self.place.tool);
        let checkout = ComparedCheckout {
            root: self.place.tree.root.clone(),
            dir: self.place.dir.clone(),
            data_dir: DATA_DIR.to_owned(),
            reads_tofu: tool.distribution == Distribution::OpenTofu && tool.version >= OWN_FILES,
        };
        let comparing = tokio::task::spawn_blocking(move || match &*code {
            Ok(code) => code.compare(&checkout),
            Err(error) => Err(anyhow!("{error:#}")),
        });
        let compared = comparing.await.map_err(anyhow::Error::from).and_then(|compared| compared);
        compared.map_err(|error| differs(format!("{error:#}")))
    }

    /// Returns the text of a plan file as Terraform shows it, unmasked.
    async fn shown(&self, plan: &Arc<Sealed>) -> Result<String, Broken> {
        let args = ["show".to_owned(), "-no-color".to_owned(), plan.path()].to_vec();
        let (program, args) = self.program(args);
        let call = Call {
            logged: false,
            hides_stdout: true,
            // The approved text is cut at this length.
            read_limit: self.spec.limits.output,
            reads: Some(Arc::clone(plan)),
            ..Call::new(SHOW, program, args)
        };
        let finished = self.run_call(call).await?;
        let text = finished.read().ok().and_then(printed_text);
        text.map(|text| strip_ansi(&text)).ok_or_else(|| self.broken(StepProblem::PlanTextTooLong, ""))
    }
}

/// Returns true if a text has all lines of another, one after another. Other text may be around them: refreshes, warnings, output of
/// `run` steps.
fn has_block(text: &str, block: &str, redactor: &Redactor) -> bool {
    let block: Vec<&str> = block.trim_matches('\n').trim_end().lines().collect();
    let text: Vec<&str> = text.lines().collect();
    let Some(first) = block.first() else { return false };
    let is_same = |(told, own): (&&str, &&str)| is_line(told.trim_end(), own.trim_end(), redactor);
    let begins = |lines: &&[&str]| lines.first().is_some_and(|line| is_same((line, first)));
    text.windows(block.len()).filter(begins).take(MAX_TRIES).any(|lines| lines.iter().zip(&block).all(is_same))
}

/// Returns true if `told` is the line `own`, as far as it is not masked. Secrets of the job that made the plan, and of the server, are not
/// known here, so a masked part stands for any value, like `(sensitive value)`. It does not hide what is done, and to which resource.
fn is_line(told: &str, own: &str, redactor: &Redactor) -> bool {
    if told == own {
        return true;
    }
    told.contains(MASK) && ((is_value(told) && fits(told, own)) || told == redactor.redact(own))
}

/// Returns true if a line of a plan tells the value of an attribute or output, and not what is done.
fn is_value(line: &str) -> bool {
    let text = line.trim_start();
    !text.starts_with('#') && (text.contains(" = ") || line.len() - text.len() >= VALUE_INDENT)
}

/// Returns true if a line has the parts of another between its masks, in this order.
fn fits(masked: &str, line: &str) -> bool {
    let Some((first, rest)) = masked.split_once(MASK) else { return masked == line };
    let Some(mut line) = line.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split(MASK).collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = line.split_once(part) else { return false };
        line = after;
    }
    line.ends_with(last)
}

/// Returns true if parts of an output were left out of a text.
fn was_cut(text: &str) -> bool {
    text.contains(" bytes of output left out here ...]") || text.contains(" bytes of this line left out]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::SecretString;

    const PLAN: &str = "Terraform will perform the following actions:\n\n  # a.b will be created\n  + resource \"a\" \"b\" {\n      + x = \"hunter22\"\n    }\n\nPlan: 1 to add, 0 to change, 0 to destroy.";

    fn has(text: &str) -> bool {
        has_block(text, PLAN, &Redactor::new(vec![SecretString::from("own secret")]))
    }

    #[test]
    fn an_approved_text_has_all_of_the_plan() {
        let warned = format!("steps said this\n{PLAN}\n╷\n│ Warning: old\n╵\n\nReleasing state lock.");
        assert!(has(PLAN) && has(&warned) && has(&format!("{PLAN}  \n")));
        for other in [
            String::new(),
            "No changes. Your infrastructure matches the configuration.".to_owned(),
            PLAN.replace("created", "destroyed"),
            PLAN.replace("hunter22", "hunter23"),
            PLAN.replace("1 to add", "2 to add"),
            PLAN.replace("\n\nPlan", "\nmore\nPlan"),
            PLAN.replace("\nPlan: 1 to add, 0 to change, 0 to destroy.", ""),
            PLAN.replace('\n', " "),
        ] {
            assert!(!has(&other), "{other}");
        }
        assert!(!has_block(PLAN, "", &Redactor::default()));
        assert!(!has_block(PLAN, "\n\n", &Redactor::default()));
    }

    #[test]
    fn a_masked_part_is_any_value_and_no_action() {
        assert!(has(&PLAN.replace("hunter22", MASK)));
        assert!(has(&PLAN.replace("unter2", MASK)));
        for hides_more in [
            PLAN.replace("a.b", MASK),
            PLAN.replace("created", MASK),
            PLAN.replace("1 to add", MASK),
            PLAN.replace("resource", MASK),
            PLAN.replace("  # a.b will be created", MASK),
            PLAN.replace("\"hunter22\"", &format!("{MASK} x")),
        ] {
            assert!(!has(&hides_more), "{hides_more}");
        }
        let of_own = PLAN.replace("a.b", "a.own secret");
        let redactor = Redactor::new(vec![SecretString::from("own secret")]);
        assert!(has_block(&PLAN.replace("a.b", &format!("a.{MASK}")), &of_own, &redactor));
        assert!(!has_block(&PLAN.replace("a.b", &format!("a.{MASK}")), PLAN, &redactor));
    }

    #[test]
    fn parts_between_masks_have_their_order() {
        let masked = |text: &str| text.replace('*', MASK);
        for (line, told) in
            [("a b c", "*"), ("a b c", "a*c"), ("a b c", "*b*"), ("aXbYaZ", "a*b*Z"), ("a b c", "a b c")]
        {
            assert!(fits(&masked(told), line), "{told}");
        }
        for (line, told) in [("a b c", "b*"), ("a b c", "*b"), ("a b c", "*c*b*"), ("aa", "a*aa"), ("a", "a*b*a")] {
            assert!(!fits(&masked(told), line), "{told}");
        }
    }
}
