//! Makes the executors of `repos.yaml`.

use super::module_origins;
use super::services::{hidden_files, kept_files};
use crate::config::executors::{CloudRunJob, ExecutorKind};
use crate::config::global::GlobalConfig;
use crate::execute::random_id;
use crate::executors::spec::{RemoteBounds, ToolSources};
use crate::executors::{
    CloudRunSettings, ExecutorSettings, Executors, JobTemplate, KubernetesEngine, KubernetesSettings, ProcessSettings,
};
use crate::settings::{BucketAddress, JOB_VARIABLE, Settings};
use crate::vault::bucket::Bucket;
use crate::vault::clock::Boottime;
use crate::vcs::Hosts;
use anyhow::{Context as _, Result, bail, ensure};
use std::path::{Path, absolute};
use std::sync::Arc;

/// Returns the executors that the configuration names.
///
/// # Errors
///
/// If a template or the way to a cluster cannot be used.
pub(super) async fn executors(
    settings: &Settings,
    global: &GlobalConfig,
    hosts: &Hosts,
    bucket: Arc<dyn Bucket>,
) -> Result<Executors> {
    let data_dir = absolute(&settings.data_dir)?;
    let mut hidden = hidden_files(settings);
    hidden.push(data_dir.clone());
    let mut executors = Executors::new(ExecutorSettings {
        bucket,
        clock: Arc::new(Boottime),
        leader: random_id(),
        tools: ToolSources {
            download: settings.tf_download,
            terraform_url: settings.tf_download_url.clone(),
            opentofu_url: settings.tofu_download_url.clone(),
            allow_unsigned: settings.tf_download_allow_unsigned,
            default_distribution: settings.default_tf_distribution,
        },
        use_plugin_cache: settings.use_tf_plugin_cache,
        bounds: RemoteBounds {
            confinement: settings.steps.confinement,
            writable: settings.steps.writable.clone(),
            hidden,
            kept: kept_files(settings),
        },
        data_dir,
        module_origins: module_origins::of_executors(settings, hosts),
    });
    for (name, executor) in &global.executors {
        match &executor.kind {
            ExecutorKind::Local => continue,
            ExecutorKind::Process => executors.add_process(name, executor.limit, process(settings)?),
            ExecutorKind::CloudRun(job) => {
                executors.add_cloud_run(name, executor.limit, cloud_run(settings, job.clone())?);
            }
            ExecutorKind::Kubernetes { template } => {
                let engine = KubernetesEngine::new(name, kubernetes(settings, name, template)?).await;
                let engine = engine.with_context(|| format!("executor `{name}`"))?;
                executors.add_kubernetes(name, executor.limit, engine);
            }
        }
    }
    Ok(executors)
}

/// Checks what can be known of executors without reaching them.
///
/// # Errors
///
/// If a setting rules one out, or a template cannot be used.
pub(super) fn check(settings: &Settings, global: &GlobalConfig) -> Result<()> {
    for (name, executor) in global.executors.iter().filter(|(_, executor)| executor.kind != ExecutorKind::Local) {
        ensure!(
            settings.run_as_user.is_none(),
            "--run-as-user cannot be used with the executor `{name}`: its jobs run as one user. Take the setting away, or the executor"
        );
        if let Some(address) = settings.without_reading_token() {
            bail!(
                "--module-credentials cannot name {address} with the executor `{name}`: jobs on executors only get tokens that can do \
                 nothing but read code, and the host issues none to this server (docs/executors.md names the way). Give the executor's own \
                 environment what git needs, or take the address away"
            );
        }
        if let ExecutorKind::Kubernetes { template } = &executor.kind {
            kubernetes(settings, name, template)?;
        }
    }
    Ok(())
}

/// Returns the first executor whose jobs cannot read this server's bucket, which is a directory, in words.
pub(super) fn out_of_reach(settings: &Settings, global: &GlobalConfig) -> Option<String> {
    let BucketAddress::Directory(path) = &settings.vault.bucket else { return None };
    let is_elsewhere =
        |kind: &ExecutorKind| matches!(kind, ExecutorKind::Kubernetes { .. } | ExecutorKind::CloudRun(_));
    let (name, executor) = global.executors.iter().find(|(_, executor)| is_elsewhere(&executor.kind))?;
    Some(format!(
        "the executor `{name}` of kind `{}` needs a bucket of Cloud Storage: its jobs cannot read {} of the server. Set --bucket=gs://NAME",
        executor.kind.name(),
        path.display()
    ))
}

/// Blocks.
fn kubernetes(settings: &Settings, name: &str, template: &Path) -> Result<KubernetesSettings> {
    let is_label = |name: &str| !name.starts_with(['-', '_']) && !name.ends_with(['-', '_']);
    ensure!(
        is_label(name),
        "executor `{name}`: the name is a label in Kubernetes, so it must begin and end with a letter or digit"
    );
    // Relative to the file that names it, or to the working directory where the configuration is no file.
    let file = settings.repo_config.as_ref().map(|(origin, _)| Path::new(origin));
    let path = file.and_then(Path::parent).unwrap_or(Path::new("")).join(template);
    let template = JobTemplate::read(&path, JOB_VARIABLE).with_context(|| format!("executor `{name}`"))?;
    Ok(KubernetesSettings { template, env: bucket_variables(&settings.vault.bucket)?, job_variable: JOB_VARIABLE })
}

fn process(settings: &Settings) -> Result<ProcessSettings> {
    let mut env = settings.child_env.clone();
    env.extend(bucket_variables(&settings.vault.bucket)?);
    let program = std::env::current_exe().context("the path of this program is not known")?;
    Ok(ProcessSettings { program, env, job_variable: JOB_VARIABLE })
}

fn cloud_run(settings: &Settings, job: CloudRunJob) -> Result<CloudRunSettings> {
    let env = bucket_variables(&settings.vault.bucket)?;
    Ok(CloudRunSettings { job, endpoint: settings.cloud_run_endpoint.clone(), env, job_variable: JOB_VARIABLE })
}

/// Returns the variables that tell a job where the bucket is.
fn bucket_variables(bucket: &BucketAddress) -> Result<Vec<(String, String)>> {
    let address = |name: &str, value: String| (name.to_owned(), value);
    Ok(match bucket {
        BucketAddress::Directory(path) => {
            vec![address("TIDELOCK_BUCKET", format!("file://{}", absolute(path)?.display()))]
        }
        BucketAddress::CloudStorage { name, prefix, endpoint } => {
            let endpoint = endpoint.iter().map(|endpoint| address("TIDELOCK_BUCKET_ENDPOINT", endpoint.clone()));
            [address("TIDELOCK_BUCKET", format!("gs://{name}/{prefix}"))].into_iter().chain(endpoint).collect()
        }
    })
}
