//! Findings of the doctor, as text and as JSON.

use serde::Serialize;
use std::fmt::Write;

/// Result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::app) enum Verdict {
    /// As it should be.
    Ok,
    /// It could not be checked, or there is nothing to check yet.
    Unknown,
    /// It works, but the operator should know something about it.
    Warning,
    /// It does not work.
    Fault,
}

/// Result of one check with its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in crate::app) struct Finding {
    pub(in crate::app) about: &'static str,
    pub(in crate::app) verdict: Verdict,
    pub(in crate::app) text: String,
    /// Remedy; absent if none is needed, or if the text has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::app) mend: Option<String>,
}

/// All findings, in order.
#[derive(Debug, Default)]
pub(in crate::app) struct Findings(Vec<Finding>);

impl Findings {
    pub(in crate::app) fn add(&mut self, about: &'static str, verdict: Verdict, text: impl Into<String>, mend: &str) {
        let mend = (!mend.is_empty()).then(|| mend.to_owned());
        self.0.push(Finding { about, verdict, text: text.into(), mend });
    }

    pub(in crate::app) fn fine(&mut self, about: &'static str, text: impl Into<String>) {
        self.add(about, Verdict::Ok, text, "");
    }

    pub(in crate::app) fn unknown(&mut self, about: &'static str, text: impl Into<String>, mend: &str) {
        self.add(about, Verdict::Unknown, text, mend);
    }

    pub(in crate::app) fn warn(&mut self, about: &'static str, text: impl Into<String>, mend: &str) {
        self.add(about, Verdict::Warning, text, mend);
    }

    pub(in crate::app) fn fault(&mut self, about: &'static str, text: impl Into<String>, mend: &str) {
        self.add(about, Verdict::Fault, text, mend);
    }

    pub(in crate::app) fn extend(&mut self, others: Findings) {
        self.0.extend(others.0);
    }

    /// Returns true if there is no fault.
    pub(in crate::app) fn well(&self) -> bool {
        self.count(Verdict::Fault) == 0
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.0.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// Returns a line for each finding with its remedy below it, and the totals.
    pub(in crate::app) fn text(&self) -> String {
        let mut text = String::new();
        for Finding { about, verdict, text: what, mend } in &self.0 {
            let word = match verdict {
                Verdict::Ok => "ok",
                Verdict::Unknown => "?",
                Verdict::Warning => "warning",
                Verdict::Fault => "FAULT",
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{word:<8} {about:<10} {what}");
            if let Some(mend) = mend {
                let _ = writeln!(text, "{:<19} mend: {mend}", "");
            }
        }
        let (faults, warnings) = (self.count(Verdict::Fault), self.count(Verdict::Warning));
        let unknown = self.count(Verdict::Unknown);
        let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let (faults, warnings) = (counted(faults, "fault"), counted(warnings, "warning"));
        let _ = writeln!(text, "\n{faults}, {warnings}, {unknown} not known");
        text
    }

    /// Returns `{"well": …, "findings": […]}`.
    pub(in crate::app) fn json(&self) -> String {
        format!("{:#}\n", serde_json::json!({ "well": self.well(), "findings": self.0 }))
    }
}
