//! Checks the operator's own templates before the first comment: their language, names, filters, and the rendering of made-up results.

use super::room::CommentRoom;
use super::templates::{CommentTemplates, FILTERS, TEMPLATES, names_of, rendered, worded};
use super::{RenderOptions, context_of};
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::outcome::{
    Applied, Failure, Fault, JobOutcome, Outcome, PlanSummary, Planned, Reason, RequirementCheck, ResourceAction,
    ResourceChange,
};
use crate::domain::reply::{CommentStyle, Reply, ReplyBody, Results};
use crate::domain::{CommitSha, JobId, Login, ProjectId, PullId, RepoId, RunId};
use jiff::Timestamp;
use regex::Regex;

/// Page on how to convert one's own templates.
const PAGE: &str = "docs/templates.md";
/// File ending of Atlantis' templates.
const GO_ENDING: &str = ".tmpl";
/// Syntax that only Go's templates have.
const GO: &str = r"\{\{-?\s*(\.|\$|/\*|(define|template|block|if|else|end|range|with)\b)";
/// Places where no filter makes a value safe, and what to do.
const UNSAFE_PLACES: [(&str, &str); 3] = [
    (r"<[A-Za-z/][^<>]*\{\{", "prints a value inside of an HTML tag, where it cannot be escaped"),
    (r"\]\([^)\n]*\{\{", "prints a value into a link's address; write {{ \"text\"|link(address) }}"),
    ("<!--", "has an HTML comment, which may hide what follows; write {# … #}"),
];

/// A file of the directory.
#[derive(Debug, Clone)]
pub struct TemplateFile {
    /// Path for messages.
    pub path: String,
    /// Its name in the directory.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// Builds the templates of a server with these files; the error names file and line.
pub fn with_own(files: Vec<TemplateFile>) -> Result<CommentTemplates, String> {
    for file in &files {
        check_name(file)?;
        check_text(file)?;
    }
    let texts: Vec<_> = files.iter().map(|file| (file.name.clone(), file.text.clone())).collect();
    let placed = |error: String| match files.iter().find(|file| error.starts_with(&format!("{}:", file.name))) {
        Some(file) => format!("{}{}", file.path, &error[file.name.len()..]),
        None => error,
    };
    let templates = CommentTemplates::with_own(&texts).map_err(|error| placed(worded(&error)))?;
    check_names(&templates, &files)?;
    check_samples(&templates).map_err(placed)?;
    Ok(templates)
}

fn check_name(TemplateFile { path, name, .. }: &TemplateFile) -> Result<(), String> {
    if name.ends_with(GO_ENDING) {
        return Err(format!(
            "{path}:1: this is a template of Go, as Atlantis has them; templates are written in another language here: see {PAGE}"
        ));
    }
    if name.starts_with('_') || TEMPLATES.iter().any(|(known, _)| known == name) {
        return Ok(());
    }
    let near = TEMPLATES.iter().map(|(known, _)| *known).min_by_key(|known| strsim::levenshtein(known, name));
    let near = near.unwrap_or("one.md");
    Err(format!("{path}:1: no comment has a template of this name; the nearest is {near}, and {PAGE} lists all"))
}

fn check_text(TemplateFile { path, text, .. }: &TemplateFile) -> Result<(), String> {
    let line_of = |at: usize| 1 + text.get(..at).unwrap_or_default().matches('\n').count();
    let found = |pattern: &str| Regex::new(pattern).ok().and_then(|regex| regex.find(text).map(|found| found.start()));
    if let Some(at) = found(GO) {
        let line = line_of(at);
        return Err(format!(
            "{path}:{line}: this is the language of Go's templates; another one is used here: see {PAGE}"
        ));
    }
    for (pattern, what) in UNSAFE_PLACES {
        if let Some(at) = found(pattern) {
            return Err(format!("{path}:{}: it {what}", line_of(at)));
        }
    }
    let tags = Regex::new(r"(?s)\{[{%].*?[%}]\}").map_err(|error| error.to_string())?;
    let texts = Regex::new(r#""[^"]*"|'[^']*'"#).map_err(|error| error.to_string())?;
    let filters = Regex::new(r"\|\s*([A-Za-z_]\w*)").map_err(|error| error.to_string())?;
    for tag in tags.find_iter(text) {
        for filter in filters.captures_iter(&texts.replace_all(tag.as_str(), "''")) {
            let filter = filter.get(1).map_or("", |name| name.as_str());
            if !FILTERS.contains(&filter) {
                let known = FILTERS.join(", ");
                return Err(format!(
                    "{path}:{}: there is no filter `{filter}`; there are: {known}",
                    line_of(tag.start())
                ));
            }
        }
    }
    Ok(())
}

/// Rejects names that no context defines.
fn check_names(templates: &CommentTemplates, files: &[TemplateFile]) -> Result<(), String> {
    let Some(env) = templates.own() else { return Ok(()) };
    for TemplateFile { path, name, text } in files {
        let (Ok(template), Some(known)) = (env.get_template(name), names_of(name)) else { continue };
        let mut unknown: Vec<_> = template.undeclared_variables(false).into_iter().collect();
        unknown.retain(|name| !known.contains(name));
        unknown.sort();
        if let Some(unknown) = unknown.first() {
            let line = 1 + text.lines().position(|line| line.contains(unknown.as_str())).unwrap_or_default();
            let known: Vec<_> = known.into_iter().collect();
            return Err(format!("{path}:{line}: there is no `{unknown}` here; there are: {}", known.join(", ")));
        }
    }
    Ok(())
}

/// Renders results of every kind, alone and together.
fn check_samples(templates: &CommentTemplates) -> Result<(), String> {
    let Some(env) = templates.own() else { return Ok(()) };
    let options = RenderOptions { templates: templates.clone(), ..RenderOptions::sample() };
    for reply in samples() {
        for room in [CommentRoom::of_output(options.comment_limit), CommentRoom::few()] {
            let (template, context) = context_of(&reply, &options, room);
            rendered(env, template, context)?;
        }
    }
    Ok(())
}

fn samples() -> Vec<Reply> {
    let mut all: Vec<Reply> = outcomes().into_iter().map(|job| reply(job.command, vec![job])).collect();
    all.push(reply(CommandName::Plan, outcomes()));
    let fault = Fault { reason: Reason::Config, message: "atlantis.yaml:1:1: wrong".to_owned(), output: String::new() };
    all.push(Reply { body: ReplyBody::CommandError(fault), ..reply(CommandName::Plan, Vec::new()) });
    all
}

fn reply(command: CommandName, outcomes: Vec<JobOutcome>) -> Reply {
    let repo = RepoId { host: "host.example".into(), owner: "acme".into(), name: "infra".into() };
    Reply {
        run: RunId::from_bits(1),
        pull: PullId { repo, number: 1 },
        command: Some(Command::new(command, Trigger::Comment, Login::new("alice"))),
        head: commit(),
        body: ReplyBody::Results(Results {
            outcomes,
            base_branch: "main".to_owned(),
            remarks: vec!["A remark.".to_owned()],
        }),
    }
}

fn commit() -> Option<CommitSha> {
    CommitSha::parse("0123456789abcdef0123456789abcdef01234567").ok()
}

fn outcomes() -> Vec<JobOutcome> {
    let summary = PlanSummary { add: 1, destroy: 1, ..PlanSummary::default() };
    let resource = |action| ResourceChange { action, address: "a.b".to_owned(), attributes: vec!["c".to_owned()] };
    let planned = Planned {
        summary,
        resources: vec![resource(ResourceAction::Replace), resource(ResourceAction::Create)],
        output: "  + a line\n".repeat(20),
        saved: true,
        base_commit: commit(),
        ..Planned::default()
    };
    let same = PlanSummary { no_changes: true, ..PlanSummary::default() };
    let applied = Applied { added: 1, output: "Apply complete!\n".to_owned(), ..Applied::default() };
    let check = RequirementCheck { name: "approved".to_owned(), met: false, detail: "nobody has".to_owned() };
    let fault = Fault { reason: Reason::Plan, message: "it failed".to_owned(), output: "Error: no\n".repeat(20) };
    let of = |command, outcome| JobOutcome {
        command,
        project: ProjectId { dir: "a".to_owned(), workspace: "default".to_owned(), name: Some("one".to_owned()) },
        job: Some(JobId::from_bits(1)),
        millis: 1000,
        tool: Some("Terraform 1.11.4".to_owned()),
        silenced: false,
        outcome,
    };
    vec![
        // The second one says the same.
        of(CommandName::Plan, Outcome::Planned(planned.clone())),
        of(CommandName::Plan, Outcome::Planned(planned)),
        of(CommandName::Plan, Outcome::Planned(Planned { summary: same, saved: true, ..Planned::default() })),
        of(
            CommandName::Plan,
            Outcome::Deferred {
                on: vec![ProjectId { dir: "b".to_owned(), workspace: "default".to_owned(), name: None }],
            },
        ),
        of(CommandName::Apply, Outcome::Applied(applied)),
        of(CommandName::Import, Outcome::Ran { output: "done".to_owned() }),
        of(CommandName::Apply, Outcome::Failed(Failure::Requirements(vec![check]))),
        of(CommandName::Apply, Outcome::Failed(Failure::Dependency { missing: vec!["two".to_owned()] })),
        of(CommandName::Plan, Outcome::Errored(fault)),
    ]
}

impl RenderOptions {
    /// Returns the options that templates are tested with.
    fn sample() -> RenderOptions {
        RenderOptions {
            executable: "atlantis".to_owned(),
            url: "https://tidelock.example".to_owned(),
            commit_address: None,
            comment_limit: 65_536,
            html_comments: true,
            pull_mark: '#',
            style: CommentStyle::Short,
            max_comments: 0,
            disable_folding: false,
            diff_format: false,
            hide_unchanged: false,
            hide_replaced: false,
            update_plans: false,
            offer_apply: true,
            offer_apply_all: true,
            locking: true,
            now: Timestamp::UNIX_EPOCH,
            templates: CommentTemplates::default(),
            language: std::sync::Arc::default(),
        }
    }
}
