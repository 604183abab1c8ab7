//! What was found, for people and as JSON.

use serde::Serialize;
use std::fmt::Write;

/// How one thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As it should be.
    Ok,
    /// It could not be looked at, or there is nothing to see yet.
    Unknown,
    /// It works, and somebody should know.
    Warning,
    /// It does not work.
    Fault,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) about: &'static str,
    pub(super) verdict: Verdict,
    pub(super) text: String,
    /// What mends it; absent where there is nothing to mend, or where the text says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mend: Option<String>,
}

/// All that was found, in order.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn add(&mut self, about: &'static str, verdict: Verdict, text: impl Into<String>, mend: &str) {
        let mend = (!mend.is_empty()).then(|| mend.to_owned());
        self.0.push(Finding { about, verdict, text: text.into(), mend });
    }

    pub(super) fn fine(&mut self, about: &'static str, text: impl Into<String>) {
        self.add(about, Verdict::Ok, text, "");
    }

    pub(super) fn unknown(&mut self, about: &'static str, text: impl Into<String>, mend: &str) {
        self.add(about, Verdict::Unknown, text, mend);
    }

    pub(super) fn warn(&mut self, about: &'static str, text: impl Into<String>, mend: &str) {
        self.add(about, Verdict::Warning, text, mend);
    }

    pub(super) fn fault(&mut self, about: &'static str, text: impl Into<String>, mend: &str) {
        self.add(about, Verdict::Fault, text, mend);
    }

    pub(super) fn extend(&mut self, others: Findings) {
        self.0.extend(others.0);
    }

    /// No fault.
    pub(super) fn well(&self) -> bool {
        self.count(Verdict::Fault) == 0
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.0.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// For people: a line each, with its mend below it, and a sum.
    pub(super) fn text(&self) -> String {
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
        let _ = writeln!(text, "\n{faults} faults, {warnings} warnings, {unknown} not known");
        text
    }

    /// `{"well": …, "findings": […]}`.
    pub(super) fn json(&self) -> String {
        format!("{:#}\n", serde_json::json!({ "well": self.well(), "findings": self.0 }))
    }
}
