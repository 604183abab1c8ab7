//! Secrets of a project: its variables with values from stores, which only its steps get, and all that masks its output.

use super::environment::{self, Environment};
use super::stage::{Broken, Stage};
use super::steps::{MAX_JSON, SHOW};
use super::{Io, Local};
use crate::process::{Masks, Redactor, SHORTEST_SECRET};
use crate::runner::result::StepProblem;
use crate::runner::spec::JobSpec;
use crate::terraform::summary::{is_total, strip_ansi};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidelock_core::config::secrets::mask;

/// Prefix of the variables from which Terraform takes the values of its own.
const VARIABLE: &str = "TF_VAR_";

/// Length from which a word is not taken for a common one, in bytes.
const LONGEST_WORD: usize = 8;

/// Secrets of one job.
#[derive(Clone)]
pub(super) struct JobSecrets {
    values: Vec<(String, SecretString)>,
    /// Masks them, and what the masks of the project match.
    pub(super) redactor: Redactor,
}

impl JobSecrets {
    /// Sets the variables.
    pub(super) fn add_to(&self, env: &mut Environment) {
        for (name, value) in &self.values {
            environment::set(env, name, value.expose_secret());
        }
    }

    /// Returns them with a redactor that also masks what another one masks.
    pub(super) fn masked_like(self, other: &Redactor) -> JobSecrets {
        let redactor = other.with_parts(self.values.iter().map(|(_, value)| value.clone()).collect());
        JobSecrets { redactor, ..self }
    }

    /// Returns them with a redactor that also masks the values that variables of Terraform have in the plan which the job reads. They may be
    /// others: those of another stage, or from before a change in the store.
    pub(super) async fn with_those_of_plan(&self, stage: &Stage<'_>) -> Result<JobSecrets, Broken> {
        let of_project = &stage.spec.project.secrets;
        let names = of_project.plan.keys().chain(of_project.apply.keys());
        let names: BTreeSet<String> = names.filter_map(|name| name.strip_prefix(VARIABLE)).map(str::to_owned).collect();
        let Some(plan) = stage.plan.as_ref().filter(|_| !names.is_empty()) else { return Ok(self.clone()) };
        let json = match stage.json_of(Arc::clone(plan), &[], MAX_JSON).await {
            // Only Terraform's remote run has the values of such a plan.
            Err(Broken::Problem(StepProblem::RemotePlan, _)) => return Ok(self.clone()),
            json => json?,
        };
        let redactor = self.redactor.clone();
        let reading =
            tokio::task::spawn_blocking(move || values_in(&json, &names).map(|values| redactor.with_parts(values)));
        let redactor = reading.await.ok().flatten().ok_or_else(|| {
            let error = "it does not tell the values of variables, which are masked in the output of steps".to_owned();
            stage.broken(StepProblem::Values { step: SHOW.to_owned(), error }, "")
        })?;
        Ok(JobSecrets { values: self.values.clone(), redactor })
    }
}

/// Variables of a plan in JSON.
#[derive(Deserialize)]
struct ShownVariables {
    #[serde(default)]
    variables: BTreeMap<String, ShownVariable>,
}

#[derive(Deserialize)]
struct ShownVariable {
    #[serde(default)]
    value: Value,
}

/// Returns the values of these variables in a plan in JSON; `None` if it cannot be read. Terraform does not mask them there, and leaves out
/// ephemeral ones.
fn values_in(json: &[u8], names: &BTreeSet<String>) -> Option<Vec<SecretString>> {
    let ShownVariables { variables } = serde_json::from_slice(json).ok()?;
    let values = variables.into_iter().filter(|(name, _)| names.contains(name));
    let text = |value: Value| match value {
        Value::Null | Value::Bool(_) => None,
        Value::String(text) => Some(SecretString::from(text)),
        value @ (Value::Number(_) | Value::Array(_) | Value::Object(_)) => Some(value.to_string().into()),
    };
    Some(values.filter_map(|(_, variable)| text(variable.value)).collect())
}

/// Returns a redactor that also masks what these masks of the configuration match. An error names one that is not valid.
pub fn masking(redactor: &Redactor, masks: &[String]) -> Result<Redactor, String> {
    let regexes = masks.iter().map(|text| mask(text)).collect::<Result<Vec<_>, _>>()?;
    Ok(redactor.with_masks(Masks { regexes, plain: strip_ansi, spares: is_total }))
}

impl Local {
    /// Reads the secrets of a job, before its first step.
    pub(super) async fn secrets(&self, spec: &JobSpec, io: &Io<'_>) -> Result<JobSecrets, Broken> {
        let redactor = masking(&self.redactor, &spec.project.masks).map_err(|error| {
            // Checked where the configuration is read; a specification may come from another version.
            let problem = StepProblem::NotStarted { program: "the first step".into(), error, init: false };
            Broken::Problem(problem, String::new())
        })?;
        let wanted = spec.project.secrets.for_command(spec.command.name);
        if wanted.is_empty() {
            return Ok(JobSecrets { values: Vec::new(), redactor });
        }
        let values = tokio::select! {
            read = self.secret_reader.read_all(wanted) => read.map_err(|problem| {
                let (variable, reference) = (problem.variable, problem.reference);
                let why = problem.reason.to_string();
                tracing::warn!(job = spec.job.as_str(), variable, reference, why, "a secret cannot be read");
                let problem = StepProblem::SecretNotRead { variable, reference, why };
                Broken::Problem(problem, String::new())
            })?,
            () = io.stop.cancelled() => return Err(Broken::Stopped),
        };
        for (name, value) in &values {
            let value = value.expose_secret().trim();
            let is_word = value.len() < LONGEST_WORD && value.bytes().all(|byte| byte.is_ascii_alphabetic());
            if value.len() < SHORTEST_SECRET {
                (io.log)(&format!(
                    "[tidelock: the value of {name} is shorter than {SHORTEST_SECRET} bytes, and is not masked]"
                ));
            } else if is_word {
                (io.log)(&format!(
                    "[tidelock: the value of {name} is a short word, which is masked wherever it occurs]"
                ));
            }
        }
        let redactor = redactor.with_parts(values.iter().map(|(_, value)| value.clone()).collect());
        Ok(JobSecrets { values, redactor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_tells_the_values_of_its_variables() {
        let json = br#"{"format_version": "1.2", "variables": {
            "token": {"value": "hunter22"}, "pin": {"value": 123456}, "list": {"value": [{"key": "deep-value"}]},
            "other": {"value": "not a secret"}, "none": {}}, "planned_values": {}}"#;
        let names = ["token", "pin", "list", "none", "ephemeral"].map(str::to_owned).into();
        let values = values_in(json, &names).unwrap();
        let told: Vec<&str> = values.iter().map(ExposeSecret::expose_secret).collect();
        assert_eq!(told, [r#"[{"key":"deep-value"}]"#, "123456", "hunter22"]);
        assert_eq!(
            Redactor::default().with_parts(values).redact("is deep-value of 123456"),
            "is <redacted> of <redacted>"
        );
        assert!(values_in(b"{}", &names).unwrap().is_empty());
        assert!(values_in(b"no json", &names).is_none());
    }
}
