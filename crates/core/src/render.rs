//! Text of replies. A reply becomes Markdown through the templates in `templates/comments`, split at the host's limit, each part with its
//! [`marker`]. [`statuses`] words commit statuses.

mod diff;
pub mod markdown;
pub mod marker;
mod message;
mod own;
mod split;
pub mod statuses;
mod templates;
mod view;

pub use own::{TemplateFile, with_own};
pub use templates::CommentTemplates;

use crate::domain::CommitAddress;
use crate::domain::language::CommentLanguage;
use crate::domain::reply::{Reply, ReplyBody};
use jiff::Timestamp;
use markdown::Folding;
use minijinja::value::Serde;
use minijinja::{Value, context};
use std::sync::Arc;

/// Maximum number of comments of one reply (Atlantis' default). The operator's limit can only lower it.
const MAX_COMMENTS: usize = 100;
/// Maximum number of times that output is halved until a reply fits the allowed number of comments.
const HALVINGS: u32 = 16;

/// Settings that the text depends on.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    /// Executable name in offered commands.
    pub executable: String,
    /// Server's own address, for links; no trailing slash.
    pub url: String,
    /// Address of commits on the host; absent if they are not linked.
    pub commit_address: Option<CommitAddress>,
    /// The host's comment limit, in characters.
    pub comment_limit: usize,
    /// Mark in front of a pull request's number: `#` or `!`.
    pub pull_mark: char,
    /// `--max-comments-per-command`; 0 means `MAX_COMMENTS`.
    pub max_comments: u32,
    /// `--disable-markdown-folding`.
    pub disable_folding: bool,
    /// `--enable-diff-markdown-format`.
    pub diff_format: bool,
    /// `--hide-unchanged-plan-comments`.
    pub hide_unchanged: bool,
    /// `--hide-prev-plan-comments`: a result hides older ones that it replaces.
    pub hide_replaced: bool,
    /// True if `apply` is offered, because it is an allowed command.
    pub offer_apply: bool,
    /// True if `apply` without a target is offered.
    pub offer_apply_all: bool,
    /// False with `--disable-repo-locking`: locks are not mentioned then.
    pub locking: bool,
    /// Current time, for ages.
    pub now: Timestamp,
    /// The built-in templates, or an operator's own over them.
    pub templates: CommentTemplates,
    /// Titles of commands.
    pub language: Arc<CommentLanguage>,
}

impl RenderOptions {
    /// Returns the folding of long output.
    fn folding(&self) -> Folding {
        if self.disable_folding { Folding::Never } else { Folding::IfLong }
    }
}

/// Returns the comments in order; none if all results are silenced.
pub fn render(reply: &Reply, options: &RenderOptions) -> Vec<String> {
    if let ReplyBody::Results(results) = &reply.body
        && results.outcomes.iter().all(|job| job.silenced)
    {
        return Vec::new();
    }
    let most = match options.max_comments {
        0 => MAX_COMMENTS,
        n => MAX_COMMENTS.min(usize::try_from(n).unwrap_or(MAX_COMMENTS)),
    };
    let marker_limit = marker::MAX_MARKER.min(options.comment_limit / 2);
    let reserve = marker::line(reply, &options.executable, most, most, marker_limit).len() + 2;
    let limit = options.comment_limit.saturating_sub(reserve);
    let command = reply.command_name().map_or("the", |name| name.spoken());

    let mut budget = limit.saturating_mul(most);
    let mut parts = split::split(&body(reply, options, budget), limit, command);
    for _ in 0..HALVINGS {
        if parts.len() <= most {
            break;
        }
        budget /= 2;
        parts = split::split(&body(reply, options, budget), limit, command);
    }
    if parts.len() > most {
        let notice = "\n**This comment is cut: it has more parts than `--max-comments-per-command` allows.**";
        parts.truncate(most);
        if let Some(last) = parts.last_mut() {
            let whole = format!("{last}{notice}");
            *last = if whole.chars().count() <= limit { whole } else { std::mem::take(last) };
        }
    }
    let count = parts.len();
    let numbered = parts.into_iter().enumerate();
    numbered
        .map(|(i, part)| format!("{part}\n\n{}", marker::line(reply, &options.executable, i + 1, count, marker_limit)))
        .collect()
}

/// Cuts a comment that the host rejected as too long to half of `limit`, with its marker.
pub fn shortened(comment: &str, limit: usize) -> String {
    let marker = marker::last_line(comment).unwrap_or_default();
    let text = comment.trim_end().strip_suffix(marker).unwrap_or(comment);
    let first = split::split(text, limit / 2, "this").into_iter().next().unwrap_or_default();
    let first = first.replace("*Continued in the next comment.*", "**The host refused the whole of it as too long.**");
    format!("{}\n\n{marker}", first.trim_end())
}

/// Renders the whole text without markers. Cuts the output of each job in its middle to `budget` characters.
fn body(reply: &Reply, options: &RenderOptions, budget: usize) -> String {
    let (template, context) = context_of(reply, options, budget);
    markdown::tidy(&options.templates.render(template, context))
}

/// Returns the template of a reply, and its context.
fn context_of(reply: &Reply, options: &RenderOptions, budget: usize) -> (&'static str, Value) {
    match &reply.body {
        ReplyBody::Results(results) => {
            let maker = view::Maker { reply, options, budget };
            let views = maker.results(results);
            let template = if views.len() == 1 { "one.md" } else { "several.md" };
            (
                template,
                context! { results => Serde(views), totals => Serde(maker.totals(results)), ..common(reply, options) },
            )
        }
        ReplyBody::CommandError(fault) => {
            let maker = view::Maker { reply, options, budget };
            ("command_error.md", context! { error => Serde(maker.command_error(fault)), ..common(reply, options) })
        }
        ReplyBody::Message(message) => {
            let (template, fields) = message::template(message, reply, options, budget);
            (template, context! { ..fields, ..common(reply, options) })
        }
    }
}

/// Returns the common part of every context: [`templates::COMMON`].
fn common(reply: &Reply, options: &RenderOptions) -> Value {
    let words = &options.language;
    let pull_label = if options.pull_mark == '!' { &words.merge_request_label } else { &words.pull_request_label };
    context! {
        pull_label,
        command_title => reply.command_name().and_then(|name| words.title(name)),
        executable => options.executable.as_str(),
        number => reply.pull.number,
        mark => Value::from_safe_string(options.pull_mark.to_string()),
        command => reply.command_name().map(|name| name.spoken()),
        locking => options.locking,
    }
}

#[cfg(test)]
mod tests;
