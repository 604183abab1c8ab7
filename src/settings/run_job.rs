//! Settings of `tidelock run-job`: the bucket, the job, and the environment of its steps.

use super::bucket::{self, BucketAddress};
use super::typed::{Reader, none_of};
use super::{SettingsError, check, without_duplicates};
use secrecy::{ExposeSecret, SecretString};
use std::ffi::OsString;
use std::sync::Arc;
use tidelock_secrets::SecretReader;

/// Variable with the prefix of the job's objects, which is a secret: it has the key.
pub(crate) const JOB_VARIABLE: &str = "TIDELOCK_JOB";
/// A variable of a job's environment is secret if its name has one of these words or ends with [`KEY`], in upper or lower case.
const SECRET_WORDS: [&str; 5] = ["TOKEN", "SECRET", "PASSWORD", "PASSPHRASE", "CREDENTIAL"];
/// Ending of the names of other secret variables.
const KEY: &str = "_KEY";
/// Endings of the names of variables that only say where a secret is.
const PLACES: [&str; 5] = ["_FILE", "_PATH", "_DIR", "_URL", "_URI"];
/// Shortest value that is taken for a secret because of its variable's name, in bytes. A shorter one may be a common word, such as `true`.
const SHORTEST: usize = 8;

/// Settings of one job.
pub struct JobSettings {
    /// The bucket.
    pub bucket: BucketAddress,
    /// Prefix of the job's objects, `jobs/<executor>/<key>`.
    pub job: SecretString,
    /// Environment of its steps: that of this process without the job's prefix and without what a server keeps from steps.
    pub env: Vec<(String, String)>,
    /// Values that are masked in every stream: the key, those that a server masks, and values of variables whose names say that they are
    /// secret.
    pub secrets: Vec<SecretString>,
    /// Reads the secrets of the job's project.
    pub secret_reader: Arc<SecretReader>,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
}

impl JobSettings {
    /// Loads the settings from the flags of the bucket, the value of `--job`, and these variables.
    pub fn load(
        args: impl IntoIterator<Item = OsString>,
        job: Option<OsString>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<JobSettings, SettingsError> {
        let (of_job, others): (Vec<_>, Vec<_>) = env.into_iter().partition(|(name, _)| name == JOB_VARIABLE);
        let job = job.or_else(|| of_job.into_iter().next().map(|(_, value)| value));
        let mut reader = Reader::new(args, others)?;
        let secret_reader = check::secret_reader(&mut reader);
        check::mask(&mut reader);
        if !reader.is_given("bucket") {
            return Err(SettingsError::Invalid("--bucket is required".to_owned()));
        }
        let bucket = bucket::address(&mut reader, "bucket");
        let (values, environment, problems) = reader.finish();
        none_of(&problems)?;
        let job = job.and_then(|job| job.into_string().ok()).filter(|job| !job.is_empty());
        let job = job.ok_or_else(|| SettingsError::Invalid(format!("--job or {JOB_VARIABLE} is required")))?;
        let mut secrets = environment.secrets;
        secrets.extend(job.rsplit('/').next().map(SecretString::from));
        secrets.extend(values.iter().filter(|(setting, _)| setting.is_secret()).map(|(_, given)| given.value.clone()));
        let named = environment.others.iter().filter(|(name, value)| is_secret(name, value));
        secrets.extend(named.map(|(_, value)| SecretString::from(value.as_str())));
        Ok(JobSettings {
            bucket,
            job: job.into(),
            env: environment.others.into_iter().collect(),
            secrets: without_duplicates(secrets),
            secret_reader,
            warnings: environment.warnings,
        })
    }

    /// Loads like [`JobSettings::load`], with the variables of this process.
    pub fn from_process(
        args: impl IntoIterator<Item = OsString>,
        job: Option<OsString>,
    ) -> Result<JobSettings, SettingsError> {
        JobSettings::load(args, job, std::env::vars_os())
    }

    /// Returns the prefix of the job's objects.
    pub fn prefix(&self) -> &str {
        self.job.expose_secret()
    }
}

/// Returns true if a variable's name says that its value is a secret.
fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let says_so = SECRET_WORDS.iter().any(|word| name.contains(word)) || name.ends_with(KEY);
    says_so && !PLACES.iter().any(|ending| name.ends_with(ending)) && value.trim().len() >= SHORTEST
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "jobs/plans/0123456789abcdef0123456789abcdef";

    fn loaded(job: Option<&str>, env: &[(&str, &str)]) -> Result<JobSettings, SettingsError> {
        let env = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        JobSettings::load([], job.map(OsString::from), env)
    }

    #[test]
    fn the_job_is_a_secret_that_no_step_gets() {
        let bucket = ("TIDELOCK_BUCKET", "file:///bucket");
        let settings = loaded(None, &[bucket, ("TIDELOCK_JOB", PREFIX), ("LANG", "C")]).unwrap();
        assert_eq!(settings.prefix(), PREFIX);
        assert_eq!(settings.bucket, BucketAddress::Directory("/bucket".into()));
        assert!(!settings.env.iter().any(|(_, value)| value.contains("0123456789abcdef")), "{:?}", settings.env);
        assert!(settings.env.contains(&("LANG".into(), "C".into())));
        assert!(settings.secrets.iter().any(|secret| secret.expose_secret() == &PREFIX["jobs/plans/".len()..]));
        assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
        let other = PREFIX.replace("plans", "prod");
        assert_eq!(loaded(Some(&other), &[bucket, ("TIDELOCK_JOB", PREFIX)]).unwrap().prefix(), other);
    }

    #[test]
    fn bucket_and_job_are_required() {
        for (env, missing) in [
            ([("TIDELOCK_BUCKET", "file:///bucket"), ("TIDELOCK_JOB", "")], "--job or TIDELOCK_JOB is required"),
            ([("TIDELOCK_BUCKET", ""), ("TIDELOCK_JOB", PREFIX)], "--bucket is required"),
        ] {
            let SettingsError::Invalid(text) = loaded(None, &env).err().unwrap() else { panic!("{missing}") };
            assert_eq!(text, missing);
        }
    }

    #[test]
    fn values_are_masked_by_the_settings_and_by_the_names_of_variables() {
        let env = [
            ("TIDELOCK_BUCKET", "file:///bucket"),
            ("TIDELOCK_MASKED_VARIABLES", "HIDDEN"),
            ("HIDDEN", "of-nobody"),
            ("ATLANTIS_GH_TOKEN", "of-server"),
            ("TF_TOKEN_app_terraform_io", "of-registry"),
            ("AWS_SECRET_ACCESS_KEY", "of-cloud"),
            ("TF_VAR_db_password", "of-database"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token"),
            ("USE_TOKEN", "true"),
            ("MONKEY", "is-no-key"),
        ];
        let settings = loaded(Some(PREFIX), &env).unwrap();
        let masked = |value: &str| settings.secrets.iter().any(|secret| secret.expose_secret() == value);
        for secret in ["of-nobody", "of-server", "of-registry", "of-cloud", "of-database"] {
            assert!(masked(secret), "{secret}");
        }
        for plain in ["/var/run/token", "true", "is-no-key"] {
            assert!(!masked(plain), "{plain}");
        }
        let steps_get = |name: &str| settings.env.iter().any(|(known, _)| known == name);
        assert!(steps_get("TF_TOKEN_app_terraform_io") && steps_get("AWS_SECRET_ACCESS_KEY"));
        assert!(!steps_get("HIDDEN") && !steps_get("ATLANTIS_GH_TOKEN"));
    }
}
