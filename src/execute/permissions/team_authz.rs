//! Asks the command of `team_authz` whether somebody may use a command. Its arguments, environment and answers are those of Atlantis.
//!
//! ```text
//! COMMAND ARGS… <command> <owner>/<repository> <owner>/<team>…
//! ```
//!
//! It permits the command if it exits with 0 and the last line of its output is `pass`, ignoring case.

use super::super::context::Context;
use super::{Asker, Gatekeeper};
use crate::config::permissions::Act;
use crate::config::team_authz::TeamAuthz;
use crate::domain::command::{Command, CommandName};
use crate::domain::{ProjectId, PullRequest, RepoId};
use crate::process::{Invocation, run};
use crate::render::markdown::code;
use crate::runner::local::environment::{self, Environment};
use crate::vcs::HostError;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time limit of one answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time between SIGINT and SIGKILL after that limit.
const GRACE: Duration = Duration::from_secs(2);
/// Maximum size of its output that is kept, in bytes.
const OUTPUT_LIMIT: usize = 64 << 10;
/// Maximum number of characters of its last line that a refusal shows.
const SHOWN: usize = 200;
/// Workspace of the checkout that it gets as `REPO_ROOT`: every pull request that is checked out has one.
const WORKSPACE: &str = "default";

impl Gatekeeper<'_> {
    /// Returns the reason for which the command of `team_authz` refuses this; `None` if it permits it or is not configured.
    pub(super) async fn refusal_by_authz(&mut self, act: Act<'_>) -> Result<Option<String>, HostError> {
        let Some(authz) = &self.ctx.global.team_authz else { return Ok(None) };
        if self.all_teams.is_none() {
            self.all_teams = Some(match self.person {
                Asker::OfHost(login) if !login.is_empty() => {
                    self.ctx.hosts.for_repo(self.repo)?.teams_of(self.repo, login).await?.unwrap_or_default()
                }
                _ => Vec::new(),
            });
        }
        let (Asker::OfHost(person) | Asker::OfPage(person)) = self.person;
        let answer = if self.authz_is_silent {
            AuthzAnswer::TooLong
        } else {
            let teams = self.all_teams.as_deref().unwrap_or_default();
            let Act { command, project } = act;
            let question = Question { repo: self.repo, command, project, person, teams, about: self.about };
            run_command(self.ctx, authz, &question).await
        };
        let did = match answer {
            AuthzAnswer::Pass => return Ok(None),
            AuthzAnswer::No(did) => did,
            AuthzAnswer::TooLong => {
                self.authz_is_silent = true;
                "did not answer in time".to_owned()
            }
        };
        let project = act.project.map(|project| format!(" on `{}`", project.label())).unwrap_or_default();
        let (command, say) = (act.command.spoken(), self.typed(act));
        let who = if person.is_empty() { "Somebody unknown" } else { person };
        Ok(Some(format!(
            "{who} may not use `{command}`{project}: the `team_authz` command in `repos.yaml` must print `pass`, and {did}. \
             Somebody whom it permits can comment `{say}`"
        )))
    }
}

/// Question to the command of `team_authz`.
struct Question<'q> {
    repo: &'q RepoId,
    command: CommandName,
    /// Absent if the question is about the whole repository.
    project: Option<&'q ProjectId>,
    /// Login, or name on a page; empty if unknown.
    person: &'q str,
    /// The person's teams, of the repository's owner.
    teams: &'q [String],
    /// The pull request and the command on it, if they are known.
    about: Option<(&'q PullRequest, &'q Command)>,
}

/// Answer of the command of `team_authz`.
#[derive(Debug, PartialEq, Eq)]
enum AuthzAnswer {
    /// The person may.
    Pass,
    /// The person may not; the text for people describes the answer.
    No(String),
    /// It took too long.
    TooLong,
}

/// Runs the command for one question.
async fn run_command(ctx: &Context, authz: &TeamAuthz, question: &Question<'_>) -> AuthzAnswer {
    // It runs as the server's user: the user of steps could influence its answer.
    let invocation = Invocation::new("/bin/sh", arguments(authz, question), &ctx.settings.data_dir)
        .env(variables(ctx, question))
        .timeout(TIMEOUT)
        .grace(GRACE)
        .output_limit(OUTPUT_LIMIT);
    let finished = run(invocation, &ctx.redactor, &CancellationToken::new(), None).await;
    let answer = match finished {
        Ok(finished) if finished.timed_out => AuthzAnswer::TooLong,
        Ok(finished) => judged(&finished.output, (!finished.success()).then(|| finished.ending())),
        Err(error) => AuthzAnswer::No(format!("could not be asked: {error:#}")),
    };
    if answer != AuthzAnswer::Pass {
        let (person, command) = (question.person, question.command.as_str());
        tracing::info!(repo = %question.repo, person, command, ?answer, "team_authz did not answer `pass`");
    }
    answer
}

/// Returns the shell's arguments. The question follows the script as separate words, so the shell interprets none of it.
fn arguments(authz: &TeamAuthz, question: &Question<'_>) -> Vec<String> {
    let (command, owner) = (question.command.spec().hook_word, &question.repo.owner);
    let text = [&authz.command].into_iter().chain(&authz.args).cloned().collect::<Vec<_>>().join(" ");
    // On one stream, so that the last line is the one that was printed last.
    let mut args = vec!["-c".to_owned(), format!("exec 2>&1\n{text} \"$@\""), "sh".to_owned(), command.to_owned()];
    args.push(format!("{owner}/{}", question.repo.name));
    args.extend(question.teams.iter().map(|team| format!("{owner}/{team}")));
    args
}

fn variables(ctx: &Context, question: &Question<'_>) -> Environment {
    let mut env = ctx.runner.env.clone();
    crate::checkout::trust_certificates(&mut env);
    // Unknown variables are empty, as in Atlantis.
    for name in environment::OF_PULL {
        environment::set(&mut env, name, "");
    }
    let root = match (question.about, question.project) {
        (Some((pull, _)), Some(_)) => ctx.checkouts.tree_path(&pull.id, WORKSPACE).to_string_lossy().into_owned(),
        _ => String::new(),
    };
    if let Some((pull, command)) = question.about {
        environment::set_pull(&mut env, pull, command);
    }
    let project = question.project;
    for (name, value) in [
        ("BASE_REPO_NAME", question.repo.name.as_str()),
        ("BASE_REPO_OWNER", &question.repo.owner),
        ("USER_NAME", question.person),
        ("COMMAND_NAME", question.command.spec().hook_word),
        ("PROJECT_NAME", project.and_then(|project| project.name.as_deref()).unwrap_or_default()),
        ("REPO_ROOT", &root),
        ("REPO_REL_PATH", project.map_or("", |project| &project.dir)),
    ] {
        environment::set(&mut env, name, value);
    }
    env
}

/// Parses the answer from the whole output; `failed` describes the end of a command that did not succeed.
fn judged(output: &str, failed: Option<String>) -> AuthzAnswer {
    let last = output.trim().lines().last().unwrap_or_default().trim();
    if failed.is_none() && last.eq_ignore_ascii_case("pass") {
        return AuthzAnswer::Pass;
    }
    let shown: String = last.chars().take(SHOWN).collect();
    let said = if shown.is_empty() { "said nothing".to_owned() } else { format!("said {}", code(&shown)) };
    AuthzAnswer::No(failed.map_or(said.clone(), |ending| format!("{said} ({ending})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pass_as_the_last_line_of_a_success_lets_somebody() {
        for (failed, output, passes) in [
            (false, "pass\n", true),
            (false, "asked the directory\nPASS\n\n", true),
            (true, "pass\n", false),
            (false, "pass\nbut not today\n", false),
            (false, "bypass", false),
            (false, "", false),
        ] {
            let failed = failed.then(|| "exit status 1".to_owned());
            assert_eq!(judged(output, failed) == AuthzAnswer::Pass, passes, "{output:?}");
        }
        let no = judged("no\nbecause `x`", Some("exit status 2".into()));
        assert_eq!(no, AuthzAnswer::No("said <code>because &#96;x&#96;</code> (exit status 2)".into()));
    }

    #[test]
    fn what_is_asked_is_no_text_for_the_shell() {
        let repo = RepoId { host: "localhost".into(), owner: "acme".into(), name: "infra; id".into() };
        let authz = TeamAuthz { command: "/bin/authz".into(), args: vec!["--in".into(), "a b".into()] };
        let teams = ["sre $(id)".to_owned()];
        let command = CommandName::StateRm;
        let question = Question { repo: &repo, command, project: None, person: "", teams: &teams, about: None };
        let expected =
            ["-c", "exec 2>&1\n/bin/authz --in a b \"$@\"", "sh", "state", "acme/infra; id", "acme/sre $(id)"];
        assert_eq!(arguments(&authz, &question), expected);
    }
}
