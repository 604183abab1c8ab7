//! The environment of steps and hooks: the server's without secrets, then Atlantis' variables.

use super::{Context, Work};
use crate::config::ProjectConfig;
use crate::domain::command::CommandName;
use crate::process::RunAs;
use crate::terraform::install::Tool;
use std::path::Path;

/// Name and value pairs; later ones win.
pub(super) type Environment = Vec<(String, String)>;

/// Sets a variable, replacing an earlier one of that name.
pub(super) fn set(env: &mut Environment, name: &str, value: impl Into<String>) {
    env.retain(|(known, _)| known != name);
    env.push((name.to_owned(), value.into()));
}

/// The value of a variable.
pub(super) fn get<'a>(env: &'a Environment, name: &str) -> Option<&'a str> {
    env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// What hooks and steps have in common.
fn common(ctx: &Context, work: &Work, dir: &Path) -> Environment {
    let (pull, command) = (&work.pull, &work.command);
    let mut env = ctx.settings.child_env.clone();
    if let Some(user) = ctx.settings.run_as_user
        && !get(&env, "HOME").is_some_and(|home| belongs_to(home, user))
    {
        // git and Terraform look for their configuration there, and stop at one they may not enter.
        set(&mut env, "HOME", ctx.settings.data_dir.join("home").to_string_lossy());
    }
    for (name, value) in [
        ("BASE_BRANCH_NAME", pull.base.branch.as_str()),
        ("BASE_REPO_NAME", &pull.id.repo.name),
        ("BASE_REPO_OWNER", &pull.id.repo.owner),
        ("COMMENT_ARGS", &comment_args(&command.extra_args)),
        ("DIR", &dir.to_string_lossy()),
        ("HEAD_BRANCH_NAME", &pull.head.branch),
        ("HEAD_COMMIT", &pull.head.commit),
        ("HEAD_REPO_NAME", &pull.head.repo_name),
        ("HEAD_REPO_OWNER", &pull.head.repo_owner),
        ("PULL_AUTHOR", &pull.author),
        ("PULL_NUM", &pull.id.number.to_string()),
        ("PULL_URL", &pull.url),
        ("USER_NAME", &command.user),
    ] {
        set(&mut env, name, value);
    }
    env
}

fn belongs_to(path: &str, user: RunAs) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.uid() == user.uid)
}

/// Every character backslash-escaped, joined by commas, as Atlantis does.
fn comment_args(args: &[String]) -> String {
    let escaped = args.iter().map(|arg| arg.chars().flat_map(|letter| ['\\', letter]).collect::<String>());
    escaped.collect::<Vec<_>>().join(",")
}

/// For a workflow hook.
pub(super) fn for_hook(ctx: &Context, work: &Work, root: &Path) -> Environment {
    let mut env = common(ctx, work, root);
    let name = match work.command.name {
        CommandName::StateRm => "state",
        other => other.as_str(),
    };
    set(&mut env, "COMMAND_NAME", name);
    set(&mut env, "PROJECT_NAME", work.command.target.project.clone().unwrap_or_default());
    set(&mut env, "OUTPUT_STATUS_FILE", root.join("OUTPUT_STATUS_FILE").to_string_lossy());
    env
}

/// Paths that steps are told.
pub(super) struct Files<'a> {
    /// Project directory.
    pub(super) dir: &'a Path,
    /// `PLANFILE`.
    pub(super) plan: &'a Path,
}

/// For the steps of one project.
pub(super) fn for_steps(
    ctx: &Context,
    work: &Work,
    config: &ProjectConfig,
    tool: &Tool,
    files: &Files<'_>,
) -> Environment {
    let mut env = common(ctx, work, files.dir);
    let stem = files.plan.with_extension("");
    let beside = |ending: &str| format!("{}{ending}", stem.to_string_lossy());
    set(&mut env, "TF_IN_AUTOMATION", "true");
    set(&mut env, "WORKSPACE", &config.id.workspace);
    set(&mut env, "ATLANTIS_TERRAFORM_VERSION", tool.version.to_string());
    set(&mut env, "ATLANTIS_TERRAFORM_DISTRIBUTION", tool.distribution.binary());
    set(&mut env, "PLANFILE", files.plan.to_string_lossy());
    set(&mut env, "SHOWFILE", beside(".json"));
    set(&mut env, "POLICYCHECKFILE", beside("-policyout.json"));
    set(&mut env, "PROJECT_NAME", config.id.name.clone().unwrap_or_default());
    set(&mut env, "REPO_REL_DIR", &config.id.dir);
    if let Some(bin) = tool.path.parent().map(|dir| dir.to_string_lossy().into_owned()) {
        let path = get(&env, "PATH").unwrap_or_default().to_owned();
        if !path.split(':').any(|known| known == bin) {
            set(&mut env, "PATH", format!("{path}:{bin}"));
        }
    }
    if ctx.settings.use_tf_plugin_cache && get(&env, "TF_PLUGIN_CACHE_DIR").is_none() {
        set(&mut env, "TF_PLUGIN_CACHE_DIR", ctx.settings.data_dir.join("plugin-cache").to_string_lossy());
    }
    env
}

/// `$NAME` and `${NAME}` replaced by the environment's values, unknown ones by nothing (Go's os.Expand).
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
    fn comment_args_are_escaped_letter_by_letter() {
        assert_eq!(comment_args(&["-var".into(), "v=x".into()]), r"\-\v\a\r,\v\=\x");
    }
}
