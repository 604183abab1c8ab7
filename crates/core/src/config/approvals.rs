//! `approvals`: the approvals that a project needs for the requirement `approved`.
//!
//! ```yaml
//! approvals: {any_of: ["team:sre", "user:alice"], all_of: [codeowners], count: 2, of_plan: true, exclude_pushers: true}
//! ```

use super::approvers::{Approver, MAX_APPROVERS};
use super::raw::{LocatedText, RawApprovals};
use super::yaml::{error_at, quoted};
use super::{ConfigErrors, errors};
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;

/// Highest `count`.
pub(super) const MAX_COUNT: i64 = 20;

/// Rules of one project; each of them has to be met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRules {
    /// At least `count` different people of these have to approve; of all with write access if it is empty.
    pub any_of: Vec<Approver>,
    /// At least one person of each entry has to approve.
    pub all_of: Vec<Approver>,
    /// Number of people of `any_of`; zero if only `all_of` is required.
    pub count: usize,
    /// True if approvals from before the plan do not count.
    pub of_plan: bool,
    /// True if approvals of people who pushed to the pull request do not count.
    pub exclude_pushers: bool,
}

/// Checks the values in the file.
pub(super) fn rules(raw: &Spanned<RawApprovals>, file: &str) -> Result<ApprovalRules, ConfigErrors> {
    let at = raw;
    let raw = &raw.value;
    let any_of = approvers(raw.any_of.as_deref().unwrap_or_default(), "approvals.any_of", Approver::parse, file)?;
    let all_of = approvers(raw.all_of.as_deref().unwrap_or_default(), "approvals.all_of", Approver::parse, file)?;
    let by_default = usize::from(!any_of.is_empty() || all_of.is_empty());
    let count = match &raw.count {
        None => by_default,
        Some(count) => usize::try_from(count.value)
            .ok()
            .filter(|_| (1..=MAX_COUNT).contains(&count.value))
            .ok_or_else(|| error_at(file, count, format!("approvals.count: it is a number from 1 to {MAX_COUNT}")))?,
    };
    let nobody_is_named = any_of.is_empty() && all_of.is_empty();
    if nobody_is_named && raw.count.is_none() && raw.of_plan.is_none() && raw.exclude_pushers.is_none() {
        let message = "approvals: it says nothing; known here: any_of, all_of, count, of_plan, exclude_pushers";
        return Err(error_at(file, at, message).into());
    }
    Ok(ApprovalRules {
        any_of,
        all_of,
        count,
        of_plan: raw.of_plan.unwrap_or_default(),
        exclude_pushers: raw.exclude_pushers.unwrap_or_default(),
    })
}

/// Parses a list of people, each with `parse`.
pub(super) fn approvers(
    list: &[LocatedText],
    key: &str,
    parse: impl Fn(&str) -> Result<Approver, String>,
    file: &str,
) -> Result<Vec<Approver>, ConfigErrors> {
    if let Some(last) = list.last().filter(|_| list.len() > MAX_APPROVERS) {
        return Err(error_at(file, last, format!("{key}: more than {MAX_APPROVERS} entries; use teams")).into());
    }
    errors::all(list.iter().map(|text| {
        parse(&text.value)
            .map_err(|problem| error_at(file, text, format!("{key}: \"{}\": {problem}", quoted(&text.value))))
    }))
}
