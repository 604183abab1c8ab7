//! Secrets of a project: its variables with values from stores, which only its steps get, and all that masks its output.

use super::environment::{self, Environment};
use super::stage::Broken;
use super::{Io, Local};
use crate::process::{Masks, Redactor, SHORTEST_SECRET};
use crate::runner::result::StepProblem;
use crate::runner::spec::{JobSpec, Steps};
use crate::terraform::summary::{is_total, strip_ansi};
use secrecy::{ExposeSecret, SecretString};
use tidelock_core::config::secrets::mask;

/// Secrets of one job.
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
        if wanted.is_empty() || spec.steps == Steps::Version {
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
            if value.expose_secret().trim().len() < SHORTEST_SECRET {
                (io.log)(&format!(
                    "[tidelock: the value of {name} is shorter than {SHORTEST_SECRET} bytes, and is not masked]"
                ));
            }
        }
        let redactor = redactor.with(values.iter().map(|(_, value)| value.clone()).collect());
        Ok(JobSecrets { values, redactor })
    }
}
