//! `executors` and `executor`: where the jobs of a project run, by stage. Only `repos.yaml` has them: a pull request does not choose the
//! identity of its jobs.
//!
//! ```yaml
//! executors:
//!   plans: {kind: kubernetes, template: plan-job.yaml, limit: 20}
//!   prod:  {kind: cloud_run, job: projects/P/locations/R/jobs/tidelock-prod, limit: 5}
//! repos:
//!   - id: /.*/
//!     executor: [{plan: plans, apply: local}, {dirs: "prod/**", plan: plans, apply: prod}]
//! ```

use super::errors::all;
use super::paths::{Glob, clean};
use super::raw::{LocatedText, Named};
use super::workflow::raw::OneOrMany;
use super::yaml::{error_at, quoted};
use super::{ConfigError, ConfigErrors};
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

#[cfg(test)]
mod tests;

/// Name of the executor that is always there.
const LOCAL: &str = "local";
/// Most executors of the file.
const MAX_EXECUTORS: usize = 100;
/// Most rules of one list.
pub(super) const MAX_RULES: usize = 100;
/// Most globs of one rule.
pub(super) const MAX_GLOBS: usize = 100;
/// Longest name, in bytes: names are parts of object names (`vault::jobs`).
const MAX_NAME: usize = 40;
/// Default of `limit`.
const DEFAULT_LIMIT: usize = 20;
/// Highest `limit`.
pub(super) const MAX_LIMIT: i64 = 10_000;

/// An entry of `executors`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executor {
    /// `kind`.
    pub kind: ExecutorKind,
    /// `limit`: most jobs that run on it at once.
    pub limit: usize,
}

/// `kind` of an executor, with the keys of that kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutorKind {
    /// The server itself.
    Local,
    /// Processes of the server's machine that take their work from the bucket, and outlive the server.
    Process,
    /// Jobs of Kubernetes.
    Kubernetes {
        /// `template`: file with the manifest of a Job, as it is written.
        template: PathBuf,
    },
    /// Executions of a Cloud Run job.
    CloudRun(CloudRunJob),
}

/// Words of `kind`.
const KINDS: [&str; 4] = [LOCAL, "process", "kubernetes", "cloud_run"];

impl ExecutorKind {
    /// Returns its word in the configuration.
    pub fn name(&self) -> &'static str {
        let index = match self {
            ExecutorKind::Local => 0,
            ExecutorKind::Process => 1,
            ExecutorKind::Kubernetes { .. } => 2,
            ExecutorKind::CloudRun(_) => 3,
        };
        KINDS[index]
    }
}

/// Name of a Cloud Run job: `projects/PROJECT/locations/REGION/jobs/JOB`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudRunJob {
    /// Project ID or number.
    pub project: String,
    /// Region.
    pub region: String,
    /// Name within the region.
    pub job: String,
}

impl CloudRunJob {
    fn parse(text: &str) -> Option<CloudRunJob> {
        let parts: Vec<&str> = text.split('/').collect();
        let ["projects", project, "locations", region, "jobs", job] = parts[..] else { return None };
        let fits = |part: &str| {
            let of_names = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:".contains(&byte);
            (1..=63).contains(&part.len()) && part.bytes().all(of_names)
        };
        [project, region, job].into_iter().all(fits).then(|| CloudRunJob {
            project: project.to_owned(),
            region: region.to_owned(),
            job: job.to_owned(),
        })
    }
}

impl fmt::Display for CloudRunJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CloudRunJob { project, region, job } = self;
        write!(f, "projects/{project}/locations/{region}/jobs/{job}")
    }
}

/// The executor of a stage. Its text is its name, or `local`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ExecutorName {
    /// The one that is always there: the server itself.
    #[default]
    Local,
    /// An entry of `executors`, of any kind.
    Named(String),
}

impl From<String> for ExecutorName {
    fn from(text: String) -> ExecutorName {
        if text == LOCAL { ExecutorName::Local } else { ExecutorName::Named(text) }
    }
}

impl From<ExecutorName> for String {
    fn from(name: ExecutorName) -> String {
        name.to_string()
    }
}

impl fmt::Display for ExecutorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExecutorName::Local => LOCAL,
            ExecutorName::Named(name) => name,
        })
    }
}

/// The executors of a project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageExecutors {
    /// Executor of plans, policy checks and drift detection.
    pub plan: ExecutorName,
    /// Executor of applies, imports, `state rm` and `force-unlock`.
    pub apply: ExecutorName,
}

impl StageExecutors {
    /// Returns true if no stage names an executor.
    pub fn are_local(&self) -> bool {
        *self == StageExecutors::default()
    }
}

/// A rule of `executor`.
#[derive(Debug, Clone)]
pub struct ExecutorRule {
    /// Globs of the directories that it fits; all if absent.
    dirs: Option<Vec<Glob>>,
    executors: StageExecutors,
}

/// The rules of `executor` that count for a repository, in the order of the file.
#[derive(Debug, Clone, Default)]
pub struct ExecutorRules(Vec<ExecutorRule>);

impl ExecutorRules {
    /// Returns the executors of a project by its directory, which is a path without links: the last rule that fits counts, as a whole.
    pub fn of_project(&self, dir: &str) -> StageExecutors {
        self.last_fit(dir).map(|(_, rule)| rule.executors.clone()).unwrap_or_default()
    }

    /// Returns the index of the rule that counts for a directory, from 0; absent if none fits.
    pub fn index_for(&self, dir: &str) -> Option<usize> {
        self.last_fit(dir).map(|(index, _)| index)
    }

    fn last_fit(&self, dir: &str) -> Option<(usize, &ExecutorRule)> {
        let fits =
            |rule: &ExecutorRule| rule.dirs.as_ref().is_none_or(|globs| globs.iter().any(|glob| glob.matches(dir)));
        self.0.iter().enumerate().rfind(|(_, rule)| fits(rule))
    }
}

/// `executors`, with the positions of its names.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct RawExecutors(Named<RawExecutor>);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExecutor {
    kind: Option<LocatedText>,
    limit: Option<Spanned<i64>>,
    template: Option<LocatedText>,
    job: Option<LocatedText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawExecutorRule {
    dirs: Option<Spanned<OneOrMany<String>>>,
    plan: Option<LocatedText>,
    apply: Option<LocatedText>,
}

impl RawExecutors {
    /// Checks the values in the file.
    pub(super) fn checked(&self, file: &str) -> Result<BTreeMap<String, Executor>, ConfigErrors> {
        if let Some((last, _)) = self.0.0.last().filter(|_| self.0.0.len() > MAX_EXECUTORS) {
            return Err(error_at(file, last, format!("executors: more than {MAX_EXECUTORS} entries")).into());
        }
        let checked = self.0.0.iter().map(|(name, raw)| {
            let nothing = RawExecutor::default();
            Ok::<_, ConfigError>((executor_name(name, file)?, executor(name, raw.as_ref().unwrap_or(&nothing), file)?))
        });
        Ok(all(checked)?.into_iter().collect())
    }

    /// Returns a warning for each executor that no rule names.
    pub(super) fn unused<'a>(&self, rules: impl Iterator<Item = &'a ExecutorRules>, file: &str) -> Vec<String> {
        let stages = rules.flat_map(|rules| &rules.0).flat_map(|rule| [&rule.executors.plan, &rule.executors.apply]);
        let named: BTreeSet<String> = stages.map(ToString::to_string).collect();
        let unused = self.0.0.iter().filter(|(name, _)| !named.contains(&name.value));
        let warning = |name: &LocatedText| {
            let message =
                format!("executors: no rule of `executor` names `{}`: nothing runs on it", quoted(&name.value));
            error_at(file, name, message).to_string()
        };
        unused.map(|(name, _)| warning(name)).collect()
    }
}

fn executor_name(name: &LocatedText, file: &str) -> Result<String, ConfigError> {
    let text = name.value.as_str();
    if text == LOCAL {
        let message = "executors: `local` is always there, for jobs in the server itself; choose another name";
        return Err(error_at(file, name, message));
    }
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    if !(1..=MAX_NAME).contains(&text.len()) || !text.bytes().all(fits) {
        let message = format!(
            "executors: `{}` is not a valid name: it has 1 to {MAX_NAME} characters of a-z, 0-9, `-` and `_`",
            quoted(text)
        );
        return Err(error_at(file, name, message));
    }
    Ok(text.to_owned())
}

fn executor(name: &LocatedText, raw: &RawExecutor, file: &str) -> Result<Executor, ConfigError> {
    let limit = match &raw.limit {
        None => DEFAULT_LIMIT,
        Some(limit) => usize::try_from(limit.value)
            .ok()
            .filter(|_| (1..=MAX_LIMIT).contains(&limit.value))
            .ok_or_else(|| error_at(file, limit, format!("executors.limit: it is a number from 1 to {MAX_LIMIT}")))?,
    };
    Ok(Executor { kind: kind(name, raw, file)?, limit })
}

fn kind(name: &LocatedText, raw: &RawExecutor, file: &str) -> Result<ExecutorKind, ConfigError> {
    let known = KINDS.join(", ");
    let Some(kind) = &raw.kind else {
        let message = format!("executors: `{}` needs `kind`; there are: {known}", quoted(&name.value));
        return Err(error_at(file, name, message));
    };
    let needed = |value: &'_ Option<LocatedText>, key: &str, what: &str| {
        let given = value.as_ref().filter(|text| !text.value.is_empty()).cloned();
        given.ok_or_else(|| error_at(file, kind, format!("executors: kind `{}` needs `{key}`: {what}", kind.value)))
    };
    let found = match kind.value.as_str() {
        LOCAL => ExecutorKind::Local,
        "process" => ExecutorKind::Process,
        "kubernetes" => {
            let template = needed(&raw.template, "template", "the file with the manifest of a Job")?;
            ExecutorKind::Kubernetes { template: PathBuf::from(template.value) }
        }
        "cloud_run" => {
            let what = "the name of a Cloud Run job, `projects/PROJECT/locations/REGION/jobs/JOB`";
            let job = needed(&raw.job, "job", what)?;
            let wrong = || error_at(file, &job, format!("executors.job: `{}` is not {what}", quoted(&job.value)));
            ExecutorKind::CloudRun(CloudRunJob::parse(&job.value).ok_or_else(wrong)?)
        }
        other => {
            let message = format!("\"{}\" is not a valid executor kind; there are: {known}", quoted(other));
            return Err(error_at(file, kind, message));
        }
    };
    let is_of_kind = [
        (&raw.template, "template", matches!(found, ExecutorKind::Kubernetes { .. })),
        (&raw.job, "job", matches!(found, ExecutorKind::CloudRun(_))),
    ];
    match is_of_kind
        .into_iter()
        .find_map(|(text, key, is_of_kind)| text.as_ref().filter(|_| !is_of_kind).zip(Some(key)))
    {
        Some((text, key)) => {
            Err(error_at(file, text, format!("executors: an executor of kind `{}` has no `{key}`", found.name())))
        }
        None => Ok(found),
    }
}

/// Checks the rules of an entry of `repos`. `known` are the checked `executors`.
pub(super) fn rules(
    list: &Spanned<Vec<Spanned<RawExecutorRule>>>,
    known: &BTreeMap<String, Executor>,
    file: &str,
) -> Result<ExecutorRules, ConfigErrors> {
    if list.value.is_empty() {
        let message = "executor: the list is empty; write `[{plan: local}]` for jobs in the server, or drop the key";
        return Err(error_at(file, list, message).into());
    }
    if let Some(last) = list.value.last().filter(|_| list.value.len() > MAX_RULES) {
        return Err(error_at(file, last, format!("executor: more than {MAX_RULES} rules")).into());
    }
    all(list.value.iter().map(|raw| rule(raw, known, file))).map(ExecutorRules)
}

fn rule(
    raw: &Spanned<RawExecutorRule>,
    known: &BTreeMap<String, Executor>,
    file: &str,
) -> Result<ExecutorRule, ConfigError> {
    let RawExecutorRule { dirs, plan, apply } = &raw.value;
    if dirs.is_none() && plan.is_none() && apply.is_none() {
        return Err(error_at(file, raw, "executor: the rule says nothing; known here: dirs, plan, apply"));
    }
    let of_stage = |text: &Option<LocatedText>, key: &str| match text {
        Some(text) => defined(text, key, known, file),
        None => Ok(ExecutorName::Local),
    };
    let executors = StageExecutors { plan: of_stage(plan, "plan")?, apply: of_stage(apply, "apply")? };
    if let Some(text) = apply.as_ref().filter(|_| is_here(&executors.plan, known) && !is_here(&executors.apply, known))
    {
        let message = format!(
            "executor.apply: the executor `{}` cannot apply plans that the server makes, because a plan contains absolute paths of the place where it was made; \
             name an executor for `plan` too, or write `apply: local`",
            executors.apply
        );
        return Err(error_at(file, text, message));
    }
    Ok(ExecutorRule { dirs: dirs.as_ref().map(|dirs| dir_globs(dirs, "executor.dirs", file)).transpose()?, executors })
}

/// Returns true if jobs of an executor run in the server itself.
fn is_here(name: &ExecutorName, known: &BTreeMap<String, Executor>) -> bool {
    match name {
        ExecutorName::Local => true,
        ExecutorName::Named(name) => known.get(name).is_some_and(|executor| executor.kind == ExecutorKind::Local),
    }
}

fn defined(
    text: &LocatedText,
    key: &str,
    known: &BTreeMap<String, Executor>,
    file: &str,
) -> Result<ExecutorName, ConfigError> {
    let name = ExecutorName::from(text.value.clone());
    if name != ExecutorName::Local && !known.contains_key(&text.value) {
        let names: Vec<&str> = std::iter::once(LOCAL).chain(known.keys().map(String::as_str)).collect();
        let message = format!(
            "executor.{key}: the executor `{}` is not defined under `executors`; there are: {}",
            quoted(&text.value),
            names.join(", ")
        );
        return Err(error_at(file, text, message));
    }
    Ok(name)
}

/// Compiles the globs of a key for directories of projects.
pub(super) fn dir_globs(dirs: &Spanned<OneOrMany<String>>, key: &str, file: &str) -> Result<Vec<Glob>, ConfigError> {
    let wrong = |problem: String| error_at(file, dirs, format!("{key}: {problem}"));
    let texts = &dirs.value.0;
    if texts.len() > MAX_GLOBS {
        return Err(wrong(format!("more than {MAX_GLOBS} globs; use `{{a,b}}`, or several rules")));
    }
    if texts.is_empty() || texts.iter().any(String::is_empty) {
        return Err(wrong(
            "it names no directory; write a glob such as `prod/**`, or drop `dirs` for all of them".into(),
        ));
    }
    texts.iter().map(|text| dir_glob(text).map_err(wrong)).collect()
}

/// Compiles a glob of directories of a repository; the error is for users.
pub(super) fn dir_glob(text: &str) -> Result<Glob, String> {
    if text.starts_with('/') || text.contains("..") {
        let shown = quoted(text);
        return Err(format!("`{shown}` must be relative to the repository's root, without a leading slash and `..`"));
    }
    Glob::new(&clean(text))
}
