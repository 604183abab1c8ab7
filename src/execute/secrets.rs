//! Secrets of projects: which are read for a job, in the audit log, and the message if one of them cannot be read. No value gets here.

use super::command_run::{CommandRun, audit_entry};
use super::context::Context;
use super::not_run::NotRun;
use crate::comment::command_for;
use crate::config::ProjectConfig;
use crate::domain::command::CommandName;
use crate::domain::state::{AuditEntry, Job};
use crate::store::Tx;

/// Most secrets that an entry of the audit log names.
const MAX_NAMED: usize = 20;
/// Longest word of a job that a message quotes, in characters.
const QUOTED: usize = 400;

/// Returns the change of a job's beginning, with the audit entry of the secrets that the job reads, if there are any.
pub(super) fn audited<C, F>(
    work: &CommandRun,
    config: &ProjectConfig,
    change: F,
) -> impl FnOnce(&Tx<'_>, &Job) -> Result<C, NotRun> + Send + 'static + use<C, F>
where
    C: 'static,
    F: FnOnce(&Tx<'_>, &Job) -> Result<C, NotRun> + Send + 'static,
{
    let audit = audit(work, config);
    move |tx: &Tx<'_>, job: &Job| {
        audit.iter().try_for_each(|entry| tx.audit(entry))?;
        change(tx, job)
    }
}

/// Returns the audit entry of a job that reads secrets; `None` if it reads none.
fn audit(work: &CommandRun, config: &ProjectConfig) -> Option<AuditEntry> {
    let wanted = config.secrets.for_command(work.command.name);
    if wanted.is_empty() {
        return None;
    }
    let named = wanted.iter().take(MAX_NAMED).map(|(variable, reference)| format!("{variable} from {reference}"));
    let more = wanted.len().saturating_sub(MAX_NAMED);
    let more = (more > 0).then(|| format!("{more} more"));
    let named: Vec<String> = named.chain(more).collect();
    let entry = audit_entry(work, &config.id, "begun".to_owned());
    Some(AuditEntry {
        act: "read secrets".to_owned(),
        subject: format!("{} for {}", named.join(", "), entry.subject),
        ..entry
    })
}

/// Returns the message of a job without the value of a variable. The words are those of the job, which may run elsewhere.
pub(super) fn not_read(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
    variable: &str,
    (reference, why): (&str, &str),
) -> String {
    let shown = |text: &str| text.chars().filter(|c| !c.is_control() && *c != '`').take(QUOTED).collect::<String>();
    let (variable, reference, why) = (shown(variable), shown(reference), shown(why));
    let (name, used) = match work.command.name {
        CommandName::Apply => (CommandName::Plan, " Its plan is used up."),
        CommandName::PolicyCheck => (CommandName::Plan, ""),
        name => (name, ""),
    };
    let again = command_for(&ctx.rendering.executable, name, &config.id, &[]);
    format!(
        "The variable `{variable}` has no value: the secret `{reference}` could not be read, because {why}. No step has run.{used} \
         Once the operator has put that right: `{again}`"
    )
}
