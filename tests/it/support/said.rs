//! A comment of the server: its text, and the facts of its hidden last line.

use regex::Regex;
use serde_json::Value;

/// A comment of the server.
pub(crate) struct Said {
    /// Text that people read.
    pub(crate) text: String,
    /// Facts in the hidden line.
    pub(crate) marker: Value,
}

impl Said {
    /// Parses a comment, which ends with a hidden line.
    pub(crate) fn new(body: &str) -> Said {
        let (text, last) = body.trim_end().rsplit_once('\n').unwrap_or_else(|| panic!("one line only: {body}"));
        let forms = [("<!-- tidelock:", " -->"), ("[//]: # (tidelock:", ")")];
        let json = forms.iter().find_map(|(start, end)| last.strip_prefix(start)?.strip_suffix(end));
        let marker = serde_json::from_str(json.unwrap_or_else(|| panic!("no hidden last line: {body}"))).unwrap();
        Said { text: text.trim_end().to_owned(), marker }
    }

    /// Checks that the text has this. A command in code marks may also be in a block of its own.
    #[track_caller]
    pub(crate) fn has(&self, text: &str) -> &Said {
        let command = text.strip_prefix('`').and_then(|text| text.strip_suffix('`'));
        let in_block = command.is_some_and(|command| self.text.contains(&format!("```shell\n{command}\n```")));
        assert!(in_block || self.text.contains(text), "expected {text:?} in:\n{}", self.text);
        self
    }

    #[track_caller]
    pub(crate) fn has_not(&self, text: &str) -> &Said {
        assert!(!self.text.contains(text), "did not expect {text:?} in:\n{}", self.text);
        self
    }

    /// Checks that it is the result of this command with this outcome for every project.
    #[track_caller]
    pub(crate) fn is(&self, command: &str, outcome: &str) -> &Said {
        let results = self.marker["results"].as_array().cloned().unwrap_or_default();
        let fits = |result: &Value| result["cmd"] == command && result["outcome"] == outcome;
        assert!(
            !results.is_empty() && results.iter().all(fits),
            "expected {command} {outcome}:\n{}\n{}",
            self.text,
            self.marker
        );
        self
    }

    /// Checks that it is an automatic re-plan with this outcome.
    #[track_caller]
    pub(crate) fn is_replan(&self, outcome: &str) -> &Said {
        assert_eq!(self.marker["trigger"], "replan", "in:\n{}", self.text);
        self.is("plan", outcome)
    }

    /// Checks that it is no result, but this kind of message.
    #[track_caller]
    pub(crate) fn is_message(&self, kind: &str) -> &Said {
        assert_eq!(self.marker["message"], kind, "in:\n{}", self.text);
        self
    }

    /// Checks that every project failed for this reason.
    #[track_caller]
    pub(crate) fn because(&self, reason: &str) -> &Said {
        let results = self.marker["results"].as_array().cloned().unwrap_or_default();
        assert!(results.iter().all(|result| result["reason"] == reason), "{}\n{}", self.text, self.marker);
        self
    }

    /// Returns directory and outcome of each project, in the order they ran.
    pub(crate) fn outcomes(&self) -> Vec<(String, String)> {
        let results = self.marker["results"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        results.iter().map(|result| (text(&result["dir"]), text(&result["outcome"]))).collect()
    }

    /// Returns the job that its first link leads to.
    #[track_caller]
    pub(crate) fn job(&self) -> String {
        let found = Regex::new("/jobs/([0-9a-f]{32})").unwrap();
        let found = found.captures(&self.text).unwrap_or_else(|| panic!("no job is linked:\n{}", self.text));
        found[1].to_owned()
    }

    /// Returns the text without commits, ids, versions, durations and addresses.
    pub(crate) fn filtered(&self) -> String {
        let volatile = [
            ("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
            ("[0-9a-f]{40}", "COMMIT"),
            (r"\[[0-9a-f]{7}\]\([^)]*/commit/COMMIT\)", "COMMIT"),
            ("[0-9a-f]{32}", "ID"),
            (r"(commit|`main`|head is now|by|head,) [0-9a-f]{7}\b", "$1 COMMIT"),
            (r"Terraform [0-9.]+[0-9]", "Terraform VERSION"),
            (r"\b(?:[0-9.]|&#46;)+ s\b", "TIME"),
            (r"(complete after) [0-9a-z]+", "$1 TIME"),
            (r"http://127\.0\.0\.1:[0-9]+", "http://FORGE"),
            (r"since less than a minute", "since AGE"),
        ];
        let filter =
            |text: String, (from, to): &(&str, &str)| Regex::new(from).unwrap().replace_all(&text, *to).into_owned();
        volatile.iter().fold(self.text.clone(), filter)
    }
}
