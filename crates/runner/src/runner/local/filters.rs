//! `run.output`: filters for the part of a step's output that people see.

use crate::terraform::summary::plan_text;
use regex::Regex;
use tidelock_core::config::workflow::OutputFilter;

/// Returns the output of a step that has succeeded, with its filters applied in order; absent if it is hidden.
pub(super) fn filtered(text: String, filters: &[OutputFilter]) -> Result<Option<String>, regex::Error> {
    match filters.contains(&OutputFilter::Hide) {
        true => Ok(None),
        false => masked(text, filters).map(Some),
    }
}

/// Returns the output of a step that has failed, timed out or was interrupted. Output that `hide` hides is shown, so that people can see
/// the reason; all other filters apply. If one of them cannot be applied, nothing is shown.
pub(super) fn filtered_failure(text: String, filters: &[OutputFilter]) -> String {
    masked(text, filters).unwrap_or_else(|error| format!("(The output is not shown: run.output: {error})"))
}

fn masked(mut text: String, filters: &[OutputFilter]) -> Result<String, regex::Error> {
    for filter in filters {
        match filter {
            OutputFilter::Show | OutputFilter::Hide => {}
            OutputFilter::StripRefreshing => text = plan_text(&text),
            OutputFilter::FilterRegex(expression) => {
                text = Regex::new(expression)?.replace_all(&text, "${1}<redacted>${2}").into_owned();
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "password=hunter2;";

    fn mask() -> OutputFilter {
        OutputFilter::FilterRegex("(password=)[^;]*(;)".into())
    }

    #[test]
    fn output_filters_apply_in_order() {
        let filter = |filters: &[OutputFilter]| filtered(PRINTED.into(), filters).unwrap();
        assert_eq!(filter(&[]).as_deref(), Some(PRINTED));
        assert_eq!(filter(&[mask()]).as_deref(), Some("password=<redacted>;"));
        assert_eq!(filter(&[OutputFilter::Hide]), None);
        assert_eq!(filter(&[mask(), OutputFilter::Hide]), None);
    }

    #[test]
    fn of_a_failure_nothing_is_hidden_and_all_that_is_masked_stays_masked() {
        let filter = |filters: &[OutputFilter]| filtered_failure(PRINTED.into(), filters);
        assert_eq!(filter(&[OutputFilter::Hide]), PRINTED);
        assert_eq!(filter(&[OutputFilter::Hide, mask()]), "password=<redacted>;");
        let broken = OutputFilter::FilterRegex("(".into());
        assert!(!filter(&[broken]).contains("hunter2"));
    }
}
