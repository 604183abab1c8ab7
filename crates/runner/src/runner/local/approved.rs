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
/// First version of OpenTofu that reads `.tofu` files.
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
        // Not by the secrets and patterns of the project: two addresses that are masked alike are not the same.
        if strip_ansi(&text) == text && has_block_alone(approved, &text, &self.local.redactor) {
            return Ok(());
        }
        let problem = if was_cut(approved) { StepProblem::PlanTextTooLong } else { StepProblem::PlanTextDiffers };
        // Without them, nothing of it can be shown.
        let masked = self.secrets.with_those_of_plan(self).await;
        let shown = masked.map(|secrets| secrets.redactor.redact(&text)).unwrap_or_default();
        Err(self.broken(problem, &shown))
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
        let printed = finished.read().map_err(|_| self.broken(StepProblem::PlanTextTooLong, ""))?;
        if has_hidden_text(printed) {
            return Err(self.broken(StepProblem::PlanTextDiffers, ""));
        }
        let text = printed_text(printed);
        text.map(|text| strip_ansi(&text)).ok_or_else(|| self.broken(StepProblem::PlanTextTooLong, ""))
    }
}

/// Returns true if a text has all lines of another, one after another, and no lines of another plan, in which they could go unnoticed. Other
/// text may be around them: refreshes, warnings, output of `run` steps.
fn has_block_alone(text: &str, block: &str, redactor: &Redactor) -> bool {
    let block: Vec<&str> = block.trim_matches('\n').trim_end().lines().collect();
    let text: Vec<&str> = text.lines().collect();
    let Some(first) = block.first() else { return false };
    let is_same = |(told, own): (&&str, &&str)| is_line(told.trim_end(), own.trim_end(), redactor);
    let (mut at, mut tries, mut found) = (0, 0, false);
    while let Some(line) = text.get(at) {
        let lines = text.get(at..at + block.len()).filter(|_| tries < MAX_TRIES && is_same((line, first)));
        tries += usize::from(lines.is_some());
        if lines.is_some_and(|lines| lines.iter().zip(&block).all(is_same)) {
            // A command may have shown it again.
            (at, found) = (at + block.len(), true);
        } else if is_of_plan(line) {
            return false;
        } else {
            at += 1;
        }
    }
    found
}

/// Returns true if a line tells what a plan does.
fn is_of_plan(line: &str) -> bool {
    let line = line.trim();
    let tells = |what: &str| line.starts_with('#') && line.contains(what);
    line.starts_with("Plan:") || line.starts_with("No changes.") || tells(" will be ") || tells(" must be ")
}

/// Returns true if a text has characters that hide a part of it where it is shown: controls, and returns within a line.
fn has_hidden_text(printed: &[u8]) -> bool {
    let printed = String::from_utf8_lossy(printed);
    let mut rest = printed.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\n' | '\t' => {}
            '\r' if rest.peek() == Some(&'\n') => {}
            c if c.is_control() => return true,
            _ => {}
        }
    }
    false
}

/// Returns true if `told` is the line `own`, as far as it is not masked. Secrets of the job that made the plan, and of the server, are not
/// known here, so a masked part stands for any value, like `(sensitive value)`. It does not hide what is done, and to which resource.
fn is_line(told: &str, own: &str, redactor: &Redactor) -> bool {
    if told == own {
        return true;
    }
    told.contains(MASK) && ((is_value(told) && is_value(own) && fits(told, own)) || told == redactor.redact(own))
}

/// Returns true if a line of a plan tells the value of an attribute or output, and not what is done.
pub(super) fn is_value(line: &str) -> bool {
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
        has_block_alone(text, PLAN, &Redactor::new(vec![SecretString::from("own secret")]))
    }

    #[test]
    fn an_approved_text_has_all_of_the_plan() {
        let warned = format!("steps said this\n{PLAN}\n╷\n│ Warning: old\n╵\n\nReleasing state lock.");
        assert!(has(PLAN) && has(&warned) && has(&format!("{PLAN}  \n")) && has(&format!("{PLAN}\n{PLAN}")));
        // It could be overlooked beside a plan of something else.
        for other in
            ["  # a.c will be created", "# a.c must be replaced", "Plan: 0 to add.", "No changes. All is well."]
        {
            assert!(!has(&format!("{PLAN}\n{other}")) && !has(&format!("{other}\n{PLAN}")), "{other}");
        }
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
        assert!(!has_block_alone(PLAN, "", &Redactor::default()));
        assert!(!has_block_alone(PLAN, "\n\n", &Redactor::default()));
    }

    #[test]
    fn characters_that_hide_text_are_found() {
        for plain in ["", "a\tb\nc", "a\r\nb", "ü ╷ 日本"] {
            assert!(!has_hidden_text(plain.as_bytes()), "{plain:?}");
        }
        for hiding in ["a\rb", "a\u{1b}[2Kb", "a\u{8}b", "a\u{9b}b", "a\r"] {
            assert!(has_hidden_text(hiding.as_bytes()), "{hiding:?}");
        }
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
        assert!(has_block_alone(&PLAN.replace("a.b", &format!("a.{MASK}")), &of_own, &redactor));
        assert!(!has_block_alone(&PLAN.replace("a.b", &format!("a.{MASK}")), PLAN, &redactor));
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
