//! Makes the executors of `repos.yaml`.

use super::services::{hidden_files, kept_files};
use crate::config::executors::ExecutorKind;
use crate::config::global::GlobalConfig;
use crate::execute::random_id;
use crate::executors::spec::{RemoteBounds, ToolSources};
use crate::executors::{ExecutorSettings, Executors, ProcessSettings};
use crate::settings::{BucketAddress, JOB_VARIABLE, Settings};
use crate::vault::bucket::Bucket;
use crate::vault::clock::Boottime;
use anyhow::{Context as _, Result, bail, ensure};
use std::path::absolute;
use std::sync::Arc;

/// Returns the executors that the configuration names.
///
/// # Errors
///
/// If a setting rules out jobs on executors.
pub(super) fn executors(settings: &Settings, global: &GlobalConfig, bucket: Arc<dyn Bucket>) -> Result<Executors> {
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
    });
    for (name, executor) in &global.executors {
        match &executor.kind {
            ExecutorKind::Local => continue,
            ExecutorKind::Process => executors.add_process(name, executor.limit, process(settings)?),
            ExecutorKind::Kubernetes { .. } | ExecutorKind::CloudRun(_) => {
                bail!("executor `{name}`: the kind `{}` is not part of this version", executor.kind.name())
            }
        }
        ensure!(
            settings.run_as_user.is_none(),
            "--run-as-user cannot be used with the executor `{name}`: its jobs run as one user. Take the setting away, or the executor"
        );
        ensure!(
            settings.module_credentials.is_empty(),
            "--module-credentials cannot be used with the executor `{name}`: jobs on executors get no token of the server. Give the \
             executor's own environment what git needs, or take the setting away"
        );
    }
    Ok(executors)
}

fn process(settings: &Settings) -> Result<ProcessSettings> {
    let mut env = settings.child_env.clone();
    let address = |name: &str, value: String| (name.to_owned(), value);
    match &settings.vault.bucket {
        BucketAddress::Directory(path) => {
            let path = absolute(path)?;
            env.push(address("TIDELOCK_BUCKET", format!("file://{}", path.display())));
        }
        BucketAddress::CloudStorage { name, prefix, endpoint } => {
            env.push(address("TIDELOCK_BUCKET", format!("gs://{name}/{prefix}")));
            env.extend(endpoint.iter().map(|endpoint| address("TIDELOCK_BUCKET_ENDPOINT", endpoint.to_string())));
        }
    }
    let program = std::env::current_exe().context("the path of this program is not known")?;
    Ok(ProcessSettings { program, env, job_variable: JOB_VARIABLE })
}
