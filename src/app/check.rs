//! `tidelock check`: the effective configuration of a repository's projects, the origin of each value, errors, and differences from
//! Atlantis. It reads with the server's own code, starts nothing, and makes no network request.

mod differences;
mod formats;
mod origins;
mod project;
mod report;
mod repository;

use super::{comment_templates, executors, hosts, not_taken, policies, say};
use crate::checkout::disk::DiskTree;
use crate::config::drift::DriftSchedule;
use crate::config::global::{GlobalConfig, RepoRules};
use crate::config::paths::join;
use crate::config::repo::{self, RepoConfig};
use crate::config::{ConfigErrors, ProjectConfig};
use crate::dispatch::Allowlist;
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::{Login, RepoId};
use crate::execute::{read_repo_config, schedule_options};
use crate::inputs::Tree;
use crate::schedule::{self, Facts, NoSchedule, ScheduleOptions};
use crate::settings::{self, Settings, SettingsDraft, SettingsError};
use clap::Arg;
use formats::{FORMATS, ReportRoots};
use origins::Origins;
use report::CheckReport;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "Prints the effective configuration of a repository's projects, and where each value comes from\n\n\
    Usage: tidelock check [--repos-config FILE] [--repo HOST/OWNER/NAME] [--base-branch NAME] [--server] [--format FORMAT] \
    [flags of `tidelock server`] [DIR]\n\n\
    DIR is a checkout of the repository; by default the current directory. Settings are read as by the server: flags,\n\
    ATLANTIS_* and TIDELOCK_* variables, the --config file. None is required. Nothing is started, and nobody is asked.\n\n  \
    --repos-config FILE     the server-side configuration, repos.yaml; the same as --repo-config\n  \
    --repo HOST/OWNER/NAME  which repository DIR is; by default the remote `origin` says so\n  \
    --base-branch NAME      the branch that pull requests are for; by default that of the remote, else main\n  \
    --server                check the settings as those of a server: what it needs has to be set\n  \
    --format FORMAT         one of {formats}; see docs/check.md\n  \
    --json                  the same as --format json\n\n\
    Exit code 1 when something is wrong.\n";
/// Flags of its own; all others are settings.
const OWN: [&str; 7] = ["repos-config", "repo", "base-branch", "server", "format", "json", "dir"];
/// Maximum number of files that are listed to find the project of each.
const MOST_FILES: usize = 500_000;

/// Returns its command for completions and the manual: its own flags and those of the server.
pub(super) fn command(server: clap::Command) -> clap::Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let switch =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).action(clap::ArgAction::SetTrue).help(help);
    server
        .name("check")
        .about("Prints the effective configuration of a repository's projects, and where each value comes from")
        .arg(text("repos-config", "FILE", "The server-side configuration, repos.yaml; the same as --repo-config"))
        .arg(text("repo", "HOST/OWNER/NAME", "Which repository DIR is; by default the remote `origin` says so"))
        .arg(text("base-branch", "NAME", "The branch that pull requests are for"))
        .arg(switch("server", "Check the settings as those of a server: what it needs has to be set"))
        .arg(text("format", "FORMAT", "Format of the report; the default is text").value_parser(FORMATS))
        .arg(switch("json", "The same as --format json").conflicts_with("format"))
        .arg(Arg::new("dir").value_name("DIR").help("A checkout of the repository; by default the current directory"))
}

/// Arguments other than settings.
#[derive(Debug, Default)]
struct CheckArguments {
    dir: PathBuf,
    repo: Option<String>,
    base_branch: Option<String>,
    /// True if the settings are those of a server.
    server: bool,
}

/// Runs `tidelock check` with the arguments after its name.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        return say(&USAGE.replace("{formats}", &FORMATS.join(", ")));
    }
    let matches = match command(settings::command_line()).try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) => return not_taken(&error),
    };
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let names = matches.ids().map(|id| id.as_str()).filter(|name| !OWN.contains(name));
    let mut flags: Vec<String> = names.filter_map(|name| Some(format!("--{name}={}", text(name)?))).collect();
    flags.extend(text("repos-config").map(|file| format!("--repo-config={file}")));
    let dir = PathBuf::from(text("dir").unwrap_or_else(|| ".".to_owned()));
    let asked = CheckArguments {
        dir: dir.canonicalize().unwrap_or(dir),
        repo: text("repo"),
        base_branch: text("base-branch"),
        server: matches.get_flag("server"),
    };
    let report = examine(&asked, Settings::draft_of_process(flags.into_iter().map(OsString::from)));
    let format = if matches.get_flag("json") { "json".to_owned() } else { text("format").unwrap_or_default() };
    let working = env::current_dir().and_then(|dir| dir.canonicalize()).unwrap_or_default();
    let printed = say(&formats::print(&report, &format, &ReportRoots { checkout: asked.dir, working }));
    if report.errors.is_empty() { printed } else { ExitCode::FAILURE }
}

/// Everything that is known of the repository.
struct CheckedRepository {
    /// True if the settings are those of a server.
    is_server: bool,
    settings: Settings,
    rules: RepoRules,
    drift: Option<DriftSchedule>,
    repo_config: Option<RepoConfig>,
    origins: Origins,
    options: ScheduleOptions,
    tree: DiskTree,
    /// Projects, each with the index of its entry in the repo config.
    projects: Vec<(ProjectConfig, Option<usize>)>,
}

fn examine(asked: &CheckArguments, draft: Result<SettingsDraft, SettingsError>) -> CheckReport {
    let mut report = CheckReport::default();
    let SettingsDraft { settings, problems, given } = match draft {
        Ok(draft) => draft,
        Err(error) => {
            error.to_string().lines().for_each(|line| report.error(line));
            return report;
        }
    };
    let problems = problems.into_iter().filter(|problem| asked.server || !problem.is_missing);
    problems.for_each(|problem| report.error(problem.text));
    report.warnings.extend(settings.warnings.iter().cloned());
    if asked.server
        && let Err(error) = comment_templates::read(settings.markdown_template_overrides_dir.as_deref())
    {
        report.error(format!("{error:#}"));
    }
    let mut origins = Origins::new(given);
    let global = read_global(asked, &settings, &mut origins, &mut report);
    let Some((repo, branch)) = repository(asked, &mut report) else { return report };
    if !settings.repo_allowlist.is_empty() && !Allowlist::new(&settings.repo_allowlist).allows(&repo) {
        report.warnings.push(format!("{repo} is not in --repo-allowlist: nothing is done for it"));
    }
    report.repository = repo.to_string();
    report.base_branch.clone_from(&branch);
    let rules = match &global {
        Some(global) => global.rules(&repo, &branch),
        None => GlobalConfig::without_file().rules(&repo, &branch).allowing_everything(),
    };
    check_merge_method(&rules, &repo, &settings, &mut report);
    let tree = DiskTree { root: asked.dir.clone() };
    let repo_config = read_repo(&rules, &tree, &mut origins, &mut report);
    let Some(global) = global else { return report };
    origins.choose(global.entries_for(&repo));
    report.entries = origins.entries();
    if !rules.branch_allowed {
        let from = origins.last_entry("branch").unwrap_or_default();
        report.error(format!("pull requests for {branch} are not served: `branch` does not match it ({from})"));
    }
    let Some(repo_config) = repo_config else { return report };
    let executable = settings.executable_names.first().cloned().unwrap_or_default();
    let options = schedule_options(&settings, &executable);
    let drift = global.drift_schedule(&repo).cloned();
    let is_server = asked.server;
    let mut found = CheckedRepository {
        is_server,
        settings,
        rules,
        drift,
        repo_config,
        origins,
        options,
        tree,
        projects: Vec::new(),
    };
    found.projects = projects(&found, &mut report);
    project::describe(&found, &mut report);
    report.differences = differences::describe(&found);
    report
}

/// Reads `repos.yaml`; returns none if it is invalid.
fn read_global(
    asked: &CheckArguments,
    settings: &Settings,
    origins: &mut Origins,
    report: &mut CheckReport,
) -> Option<GlobalConfig> {
    let Some((file, text)) = &settings.repo_config else { return Some(GlobalConfig::without_file()) };
    report.global_file.clone_from(file);
    match GlobalConfig::parse(text, file) {
        Ok(global) => {
            report.warnings.extend(global.warnings.iter().cloned());
            if let Err(error) = executors::check(settings, &global) {
                report.error(format!("{error:#}"));
            }
            // Without hosts, the settings are not those of the server.
            if let Ok(joined) = hosts::join(settings, &[]) {
                let checks = [hosts::check_people(&global, &joined), hosts::check_merge_methods(&global, &joined)];
                checks
                    .into_iter()
                    .filter_map(Result::err)
                    .for_each(|error| report.errors_in(file, text, &error.into()));
            }
            if asked.server {
                report.warnings.extend(policies::warnings(settings, &global));
            }
            if asked.server || origins.is_given("bucket") {
                report.warnings.extend(executors::out_of_reach(settings, &global));
            }
            origins.read_global(file, text);
            Some(global)
        }
        Err(errors) => {
            report.errors_in(file, text, &all_errors(GlobalConfig::schema_errors(text, file), errors));
            report.warnings.push(
                "the server-side configuration has errors, so the repository's own file is checked without the server's \
                 rules. The server may refuse keys that this check accepts, or lack workflows that the file names"
                    .to_owned(),
            );
            None
        }
    }
}

/// Checks that the repository's `merge_method`, of an entry with a pattern, is possible on its host.
fn check_merge_method(rules: &RepoRules, repo: &RepoId, settings: &Settings, report: &mut CheckReport) {
    let (Some((file, text)), Ok(joined)) = (&settings.repo_config, hosts::join(settings, &[])) else { return };
    if report.errors.is_empty()
        && let Err(error) = hosts::check_merge_method(rules, repo, &joined)
    {
        report.errors_in(file, text, &error.into());
    }
}

/// Returns the repository and the base branch of its pull requests.
fn repository(asked: &CheckArguments, report: &mut CheckReport) -> Option<(RepoId, String)> {
    if !asked.dir.is_dir() {
        report.error(format!("{}: there is no such directory", asked.dir.display()));
        return None;
    }
    let found = match &asked.repo {
        Some(text) => repository::parse(text).ok_or_else(|| format!("--repo={text}: this is not HOST/OWNER/NAME")),
        None => repository::from_checkout(&asked.dir).ok_or_else(|| {
            format!("{} has no remote `origin` that names it: say --repo=HOST/OWNER/NAME", asked.dir.display())
        }),
    };
    let repo = found.map_err(|problem| report.error(problem)).ok()?;
    let branch = asked.base_branch.clone().or_else(|| repository::default_branch(&asked.dir));
    Some((repo, branch.unwrap_or_else(|| "main".to_owned())))
}

/// Reads the repository's own file; returns none if it is invalid.
fn read_repo(
    rules: &RepoRules,
    tree: &DiskTree,
    origins: &mut Origins,
    report: &mut CheckReport,
) -> Option<Option<RepoConfig>> {
    let exists = |file: &str| tree.read(file).is_some();
    let found = repo::find(rules, &exists).ok().flatten().and_then(|file| Some((tree.read(&file)?, file)));
    let (text, file) = found.unwrap_or_default();
    report.repo_file.clone_from(&file);
    match read_repo_config(rules, &report.base_branch, tree) {
        Ok(config) => {
            origins.read_repo(&file, &text);
            Some(config)
        }
        Err(errors) => {
            report.errors_in(&file, &text, &all_errors(repo::schema_errors(&text, &file), errors));
            None
        }
    }
}

/// Returns all errors of a file's keys and types if there are any, since a parser tells the first one only.
fn all_errors(of_schema: ConfigErrors, of_parser: ConfigErrors) -> ConfigErrors {
    if of_schema.is_empty() { of_parser } else { of_schema }
}

/// Returns the projects of the repository's file, then those that a plan of every file discovers.
fn projects(found: &CheckedRepository, report: &mut CheckReport) -> Vec<(ProjectConfig, Option<usize>)> {
    let files = files(&found.tree);
    if files.len() == MOST_FILES {
        report.warnings.push(format!("only the first {MOST_FILES} files were looked at"));
    }
    let facts = Facts {
        rules: &found.rules,
        repo_config: found.repo_config.as_ref(),
        modified: &files,
        tree: &found.tree,
        options: &found.options,
        config_change: None,
        applied: &[],
        deletions: None,
    };
    let everything = Command::new(CommandName::Plan, Trigger::Comment, Login::unknown());
    let planned = match schedule::for_plan(&everything, &facts) {
        Ok(schedule) => schedule.groups.into_iter().flatten().collect(),
        Err(NoSchedule::Silent) => Vec::new(),
        Err(refused) => {
            report.error(refused.to_string());
            Vec::new()
        }
    };
    let mut projects = Vec::new();
    if let Some(config) = &found.repo_config {
        for (listed, entry) in config.projects.iter().zip(&config.entries) {
            let as_planned: Option<&ProjectConfig> = planned.iter().find(|planned| planned.id == listed.id);
            if as_planned.is_none() && report.errors.is_empty() {
                let why = if found.tree.is_dir(&listed.id.dir) {
                    "no file here matches its when_modified"
                } else {
                    "there is no such directory"
                };
                let from = found.origins.entry(*entry);
                report.warnings.push(format!("{from}: project `{}` is planned by no push: {why}", listed.id.label()));
            }
            projects.push((as_planned.unwrap_or(listed).clone(), Some(*entry)));
        }
    }
    let mut discovered: Vec<ProjectConfig> =
        planned.into_iter().filter(|planned| projects.iter().all(|(listed, _)| listed.id != planned.id)).collect();
    discovered.sort_by(|one, other| one.id.cmp(&other.id));
    projects.extend(discovered.into_iter().map(|project| (project, None)));
    projects
}

/// Returns the paths of the files in the tree, at most [`MOST_FILES`].
fn files(tree: &dyn Tree) -> Vec<String> {
    let in_dir = |dir: String| tree.files(&dir).into_iter().map(move |file| join(&dir, &file));
    tree.dirs().into_iter().flat_map(in_dir).take(MOST_FILES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the errors of a check with these templates, with or without `--server`.
    fn errors_of(templates: &str, server: bool) -> Vec<String> {
        let checkout = tempfile::tempdir().unwrap();
        std::fs::write(checkout.path().join("main.tf"), "").unwrap();
        let repo = Some("github.com/acme/infra".to_owned());
        let asked = CheckArguments { dir: checkout.path().to_owned(), repo, base_branch: None, server };
        let flags = [
            "--gh-user=bot",
            "--gh-token=t",
            "--gh-webhook-secret=s",
            "--repo-allowlist=github.com/acme/*",
            &format!("--markdown-template-overrides-dir={templates}"),
        ];
        let draft = Settings::draft(flags.iter().map(OsString::from), [("HOME".into(), "/nowhere".into())]);
        examine(&asked, draft).errors.iter().map(|error| error.text.clone()).collect()
    }

    #[test]
    fn templates_that_stop_a_server_are_errors_of_a_server() {
        let templates = tempfile::tempdir().unwrap();
        let place = templates.path().to_str().unwrap();
        assert_eq!(errors_of(place, true), Vec::<String>::new());
        std::fs::write(templates.path().join("plan.tmpl"), "{{ define \"x\" }}").unwrap();
        let told = errors_of(place, true);
        assert!(told.len() == 1 && told[0].contains("plan.tmpl:1: this is a template of Go"), "{told:?}");
        assert_eq!(errors_of(place, false), Vec::<String>::new());
    }
}
