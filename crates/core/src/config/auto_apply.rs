//! `auto_apply`: projects that are applied without a command.
//!
//! ```yaml
//! auto_apply: {when: approved}
//! ```

use super::raw::RawAutoApply;
use super::yaml::{error_at, quoted};
use super::{ConfigError, Requirement};
use crate::domain::AutoApply;
use serde_saphyr::Spanned;

/// Checks the value in the file.
pub(super) fn rule(raw: &Spanned<RawAutoApply>, file: &str) -> Result<AutoApply, ConfigError> {
    let Some(when) = &raw.value.when else {
        return Err(error_at(file, raw, "auto_apply: it needs `when`: approved, met or never"));
    };
    match when.value.as_str() {
        "approved" => Ok(AutoApply::Approved),
        "met" => Ok(AutoApply::Met),
        "never" => Ok(AutoApply::Never),
        other => {
            let message =
                format!("auto_apply.when: \"{}\" is not known; there are: approved, met, never", quoted(other));
            Err(error_at(file, when, message))
        }
    }
}

/// Returns true if these requirements let `when: approved` wait for an approval.
pub(super) fn wants_approval(requirements: &[Requirement], has_approvals: bool) -> bool {
    has_approvals || requirements.contains(&Requirement::Approved)
}

/// Returns the error for `when: approved` without that requirement.
pub(super) fn needs_approval(raw: &Spanned<RawAutoApply>, file: &str) -> ConfigError {
    let message = "auto_apply: `when: approved` needs the requirement `approved`. Add `apply_requirements: [approved]` or `approvals`, or \
                   use `when: met`";
    match &raw.value.when {
        Some(when) => error_at(file, when, message),
        None => error_at(file, raw, message),
    }
}
