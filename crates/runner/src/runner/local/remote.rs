//! Plans of remote runs that cannot be saved: the backend `remote`, and Terraform Enterprise before saved plans. As in Atlantis, such a
//! plan is made again without a file, and its text is kept as the plan file. An apply is confirmed if it shows the same text. A text that
//! cannot be kept whole is refused: the rest could differ at the apply.

use super::approved::is_value;
use super::sealed::Sealed;
use super::stage::{Broken, Call, Stage};
use crate::process::MASK;
use crate::runner::result::StepProblem;
use crate::terraform::summary::{planned_text, strip_ansi};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// First line of such a plan file, as Atlantis writes it.
const HEADER: &str = "Atlantis: this plan was created by remote ops\n";
/// Largest such file that is read, in bytes, which is more than is kept of a step's output.
const LIMIT: usize = 8 << 20;
/// Terraform's question before an apply. A local run does not name a workspace there.
const QUESTION: &str = "\nDo you want to perform these actions in workspace \"";
/// The last two lines before it waits for an answer.
const PROMPT: [&str; 2] =
    ["  Terraform will perform the actions described above.", "  Only 'yes' will be accepted to approve."];

/// Returns true if a plan failed because the run is remote and its plan cannot be saved.
pub(super) fn cannot_be_saved(output: &str) -> bool {
    const SAID: &str = "Error: Saving a generated plan is currently not supported";
    output.lines().any(|line| line.strip_prefix("│ ").unwrap_or(line).starts_with(SAID))
}

/// Answer to the question of a remote apply, given once.
struct Confirmation {
    expected: String,
    said: String,
    last: String,
    answer: Option<bool>,
}

impl Confirmation {
    /// Reads a line; returns the answer if Terraform waits for it. Only the approved plan is answered `yes`.
    fn hear(&mut self, line: &str) -> Option<bool> {
        let line = strip_ansi(line);
        let asks = self.last == PROMPT[0] && line == PROMPT[1];
        if self.said.len() <= LIMIT {
            self.said.push_str(&line);
            self.said.push('\n');
        }
        self.last = line;
        if !asks || self.answer.is_some() {
            return None;
        }
        // The last question counts: any text that looks like it before is part of the plan.
        let plan = self.said.rfind(QUESTION).map(|end| planned_text(&self.said[..end]));
        self.answer = Some(plan.is_some_and(|plan| plan == self.expected && !hides_more_than_values(&plan)));
        self.answer
    }
}

/// Returns true if a mask hides what a plan does, or to which resource: another resource could be masked alike.
fn hides_more_than_values(plan: &str) -> bool {
    plan.lines().any(|line| line.contains(MASK) && !is_value(line))
}

/// Returns the text of a plan whose run was remote.
pub(super) async fn text(plan: &Arc<Sealed>) -> Option<String> {
    let plan = Arc::clone(plan);
    let reading = tokio::task::spawn_blocking(move || {
        let is_remote = plan.text(HEADER.len()).is_ok_and(|start| start == HEADER);
        is_remote.then(|| plan.text(LIMIT)).transpose()
    });
    reading.await.ok()?.ok()??.strip_prefix(HEADER).map(str::to_owned)
}

impl Stage<'_> {
    /// Plans without a file, and keeps the text as the plan file.
    pub(super) async fn plan_remotely(&mut self, more: Vec<String>) -> Result<(), Broken> {
        (self.io.log)("The run is remote, and its plan cannot be saved: planning again without a plan file.");
        let mut args: Vec<String> = ["plan", "-input=false", "-refresh", "-no-color"].map(str::to_owned).into();
        args.extend(more);
        let (program, args) = self.program(args);
        let what = format!("{} plan", self.place.tool.name());
        // The file has what no pattern masks: two texts that are masked alike are not the same.
        let finished = self.run_call(Call { is_judged: true, ..Call::new(&what, program, args) }).await?;
        if finished.is_cut {
            return Err(self.broken(StepProblem::RemotePlanTooLong, ""));
        }
        let text = planned_text(&strip_ansi(&finished.output));
        // The user that steps run as writes the file, as Terraform would.
        let write = ["-c", r#"umask 077; exec cat > "$0""#, &self.place.plan_file.to_string_lossy()].map(str::to_owned);
        let stdin = Some(format!("{HEADER}{text}").into_bytes());
        let call = Call { logged: false, stdin, ..Call::new("keeping the plan", Path::new("/bin/sh"), write.into()) };
        self.run_call(call).await?;
        self.shown.push(self.redactor.redact(&text));
        Ok(())
    }

    /// Begins an apply, and answers `yes` if its plan is the approved one.
    pub(super) async fn apply_remotely(&mut self, expected: String, more: Vec<String>) -> Result<(), Broken> {
        let mut args: Vec<String> = ["apply", "-input=false", "-no-color"].map(str::to_owned).into();
        args.extend(more);
        let (said, last) = (String::new(), String::new());
        let confirmation = Arc::new(Mutex::new(Confirmation { expected, said, last, answer: None }));
        let heard = Arc::clone(&confirmation);
        let answering = move |line: &str| {
            let answer = heard.lock().unwrap_or_else(PoisonError::into_inner).hear(line);
            answer.map(|yes| if yes { b"yes\n".to_vec() } else { b"no\n".to_vec() })
        };
        let (program, args) = self.program(args);
        let what = format!("{} apply", self.place.tool.name());
        let call = Call { answering: Some(Box::new(answering)), is_judged: true, ..Call::new(&what, program, args) };
        let ran = self.run_call(call).await;
        let answer = confirmation.lock().unwrap_or_else(PoisonError::into_inner).answer;
        match (ran, answer) {
            (Ok(finished), Some(false)) => {
                Err(self.broken(StepProblem::RemotePlanChanged, &self.redactor.redact(&strip_ansi(&finished.output))))
            }
            (Err(Broken::Problem(StepProblem::Exit { .. }, output)), Some(false)) => {
                Err(Broken::Problem(StepProblem::RemotePlanChanged, output))
            }
            (Ok(finished), _) => {
                self.shown.push(self.redactor.redact(&strip_ansi(&finished.output)));
                Ok(())
            }
            (Err(broken), _) => Err(broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "Terraform will perform the following actions:\n\n  # a.b will be created\n\nPlan: 1 to add, 0 to change, 0 to destroy.";

    fn answered(output: &str) -> Option<bool> {
        answered_for(PLAN, output)
    }

    fn answered_for(plan: &str, output: &str) -> Option<bool> {
        let (expected, said, last) = (plan.to_owned(), String::new(), String::new());
        let mut confirmation = Confirmation { expected, said, last, answer: None };
        output.lines().filter_map(|line| confirmation.hear(line)).last()
    }

    #[test]
    fn only_the_approved_plan_of_a_remote_run_is_confirmed() {
        let question =
            |of: &str| format!("\n\nDo you want to perform these actions{of}?\n{}\n{}\n", PROMPT[0], PROMPT[1]);
        let remote = question(" in workspace \"prod\"");
        let begin = "Running apply in the remote backend.\n\nhttps://app.terraform.io/app/acme/prod/runs/run-2\n\n";
        assert_eq!(answered(&format!("{begin}{PLAN}{remote}")), Some(true));
        assert_eq!(answered(&format!("{begin}{}{remote}", PLAN.replace("1 to add", "2 to add"))), Some(false));
        // A local run, which names no workspace; a plan that continues after text that looks like the question; no question.
        assert_eq!(answered(&format!("{begin}{PLAN}{}", question(""))), Some(false));
        assert_eq!(answered(&format!("{begin}{PLAN}\nmore\n{PLAN}{remote}")), Some(false));
        assert_eq!(answered(&format!("{begin}{PLAN}\n")), None);
        // Masked addresses are not known to be the same, values may be masked.
        let masked = PLAN.replace("a.b", &format!("a.{MASK}"));
        assert_eq!(answered_for(&masked, &format!("{begin}{masked}{remote}")), Some(false));
        let masked = PLAN.replace("created\n", &format!("created\n      + x = {MASK}\n"));
        assert_eq!(answered_for(&masked, &format!("{begin}{masked}{remote}")), Some(true));
        // Only the first question is answered.
        assert_eq!(answered(&format!("{begin}x{remote}{PLAN}{remote}")), Some(false));
    }

    #[test]
    fn terraform_says_in_several_ways_that_a_plan_cannot_be_saved() {
        for output in [
            "Error: Saving a generated plan is currently not supported!\n\nThe \"remote\" backend does not",
            "x\nError: Saving a generated plan is currently not supported\n",
            "╷\n│ Error: Saving a generated plan is currently not supported\n│ \n│ Terraform Cloud does not support",
        ] {
            assert!(cannot_be_saved(output), "{output}");
        }
        assert!(!cannot_be_saved("  + a = \"Error: Saving a generated plan is currently not supported\""));
    }
}
