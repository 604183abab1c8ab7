//! The environment of steps and hooks: the server's without secrets, then Atlantis' variables.

use super::{Local, Place, RunFolder};
use crate::checkout::trust_certificates;
use crate::process::RunAs;
use crate::runner::spec::JobSpec;
use std::path::{Path, PathBuf};
use tidelock_core::domain::PullRequest;
use tidelock_core::domain::command::Command;

/// Pairs of name and value. [`set`] replaces an earlier one of the same name.
pub type Environment = Vec<(String, String)>;

/// Sets a variable, replacing an earlier one of that name.
pub fn set(env: &mut Environment, name: &str, value: impl Into<String>) {
    env.retain(|(known, _)| known != name);
    env.push((name.to_owned(), value.into()));
}

/// Returns the value of a variable.
pub(super) fn get<'a>(env: &'a Environment, name: &str) -> Option<&'a str> {
    env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Names of the variables that describe a pull request.
pub const OF_PULL: [&str; 12] = [
    "BASE_BRANCH_NAME",
    "BASE_REPO_NAME",
    "BASE_REPO_OWNER",
    "COMMENT_ARGS",
    "HEAD_BRANCH_NAME",
    "HEAD_COMMIT",
    "HEAD_REPO_NAME",
    "HEAD_REPO_OWNER",
    "PULL_AUTHOR",
    "PULL_NUM",
    "PULL_URL",
    "USER_NAME",
];

/// Sets the variables that describe a pull request and the command on it.
pub fn set_pull(env: &mut Environment, pull: &PullRequest, command: &Command) {
    let (args, number) = (comment_args(&command.extra_args), pull.id.number.to_string());
    let values = [
        pull.base.branch.as_str(),
        &pull.id.repo.name,
        &pull.id.repo.owner,
        &args,
        &pull.head.branch,
        pull.head.commit.as_str(),
        &pull.head.repo_name,
        &pull.head.repo_owner,
        pull.author.as_str(),
        &number,
        &pull.url,
        command.user.as_str(),
    ];
    for (name, value) in OF_PULL.into_iter().zip(values) {
        set(env, name, value);
    }
}

/// Returns the environment that hooks and steps share.
fn common(local: &Local, pull: &PullRequest, command: &Command, dir: &Path, folder: Option<&RunFolder>) -> Environment {
    let mut env = local.env.clone();
    trust_certificates(&mut env);
    if let Some(folder) = folder {
        set(&mut env, "HOME", folder.home().to_string_lossy());
        set(&mut env, "TMPDIR", folder.temporary().to_string_lossy());
    } else if let Some(user) = local.checkouts.owner(&pull.id)
        && !get(&env, "HOME").is_some_and(|home| belongs_to(home, user))
    {
        // git and Terraform read their configuration there, and fail if they may not enter the directory.
        set(&mut env, "HOME", local.data_dir.join("home").to_string_lossy());
    }
    set_pull(&mut env, pull, command);
    set(&mut env, "DIR", dir.to_string_lossy());
    env
}

fn belongs_to(path: &str, user: RunAs) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.uid() == user.uid)
}

/// Escapes every character with a backslash, and joins the arguments by commas, as Atlantis does.
fn comment_args(args: &[String]) -> String {
    let escaped = args.iter().map(|arg| arg.chars().flat_map(|letter| ['\\', letter]).collect::<String>());
    escaped.collect::<Vec<_>>().join(",")
}

/// Returns the environment of a workflow hook.
pub fn for_hook(
    local: &Local,
    pull: &PullRequest,
    command: &Command,
    root: &Path,
    folder: Option<&RunFolder>,
) -> Environment {
    let mut env = common(local, pull, command, root, folder);
    set(&mut env, "COMMAND_NAME", command.name.spec().hook_word);
    set(&mut env, "PROJECT_NAME", command.target.projects.join(","));
    set(&mut env, "OUTPUT_STATUS_FILE", root.join("OUTPUT_STATUS_FILE").to_string_lossy());
    env
}

/// Returns the environment of the steps of one job.
pub(super) fn for_steps(local: &Local, spec: &JobSpec, place: &Place, folder: Option<&RunFolder>) -> Environment {
    let (project, tool) = (&spec.project.id, &place.tool);
    let mut env = common(local, &spec.tree.pull, &spec.command, &place.dir, folder);
    env.retain(|(name, _)| !spec.secrets.contains(name));
    set(&mut env, "TF_IN_AUTOMATION", "true");
    set(&mut env, "WORKSPACE", &project.workspace);
    set(&mut env, "ATLANTIS_TERRAFORM_VERSION", tool.version.to_string());
    set(&mut env, "ATLANTIS_TERRAFORM_DISTRIBUTION", tool.distribution.binary());
    set(&mut env, "PLANFILE", place.plan_file.to_string_lossy());
    set(&mut env, "SHOWFILE", show_file(place).to_string_lossy());
    set(&mut env, "POLICYCHECKFILE", beside_plan(place, "-policyout.json").to_string_lossy());
    set(&mut env, "PROJECT_NAME", project.name.clone().unwrap_or_default());
    set(&mut env, "REPO_REL_DIR", &project.dir);
    if let Some(bin) = tool.path.parent().map(|dir| dir.to_string_lossy().into_owned()) {
        let path = get(&env, "PATH").unwrap_or_default().to_owned();
        if !path.split(':').any(|known| known == bin) {
            set(&mut env, "PATH", format!("{path}:{bin}"));
        }
    }
    if !local.installer.downloads() && get(&env, "CHECKPOINT_DISABLE").is_none_or(str::is_empty) {
        // Terraform would ask HashiCorp for newer versions.
        set(&mut env, "CHECKPOINT_DISABLE", "1");
    }
    if let Some(terragrunt) = &tool.terragrunt {
        for (name, value) in terragrunt.variables(&tool.path) {
            set(&mut env, name, value);
        }
        set(&mut env, "ATLANTIS_TERRAGRUNT_VERSION", terragrunt.version.to_string());
    }
    if local.use_plugin_cache && get(&env, "TF_PLUGIN_CACHE_DIR").is_none() {
        set(&mut env, "TF_PLUGIN_CACHE_DIR", local.plugin_cache(&spec.tree.pull.id).to_string_lossy());
    }
    for (name, answer) in
        [("ATLANTIS_PR_APPROVED", spec.answers.approved), ("ATLANTIS_PR_MERGEABLE", spec.answers.mergeable)]
    {
        if let Some(answer) = answer {
            set(&mut env, name, answer.to_string());
        }
    }
    env
}

/// Returns the path of a file beside the plan file.
fn beside_plan(place: &Place, ending: &str) -> PathBuf {
    let mut file = place.plan_file.with_extension("").into_os_string();
    file.push(ending);
    file.into()
}

/// Returns the path of `SHOWFILE`, unless a step sets another.
pub(super) fn show_file(place: &Place) -> PathBuf {
    beside_plan(place, ".json")
}

/// Replaces `$NAME` and `${NAME}` by the environment's values, unknown ones by nothing (Go's os.Expand).
pub(super) fn expand(text: &str, env: &Environment) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (name, end) = if let Some(braced) = after.strip_prefix('{') {
            match braced.find('}') {
                Some(close) => (&braced[..close], close + 2),
                None => ("", 0),
            }
        } else {
            let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
            (&after[..end], end)
        };
        if name.is_empty() {
            out.push('$');
        } else {
            out.push_str(get(env, name).unwrap_or_default());
        }
        rest = &after[end..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_expanded_and_a_lone_dollar_stays() {
        let env = vec![("A".to_owned(), "1".to_owned()), ("AB".to_owned(), "2".to_owned())];
        for (text, want) in
            [("$A-${AB}x", "1-2x"), ("$ABC", ""), ("cost: 5$", "cost: 5$"), ("${A", "${A"), ("plain", "plain")]
        {
            assert_eq!(expand(text, &env), want, "{text}");
        }
    }

    #[test]
    fn no_secret_replaces_a_variable_of_the_pull_request() {
        for name in OF_PULL {
            assert!(tidelock_core::config::secrets::is_reserved(name), "{name}");
        }
    }

    #[test]
    fn comment_args_are_escaped_letter_by_letter() {
        assert_eq!(comment_args(&["-var".into(), "v=x".into()]), r"\-\v\a\r,\v\=\x");
    }
}
