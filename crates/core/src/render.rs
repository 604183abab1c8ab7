//! Text of replies. A reply becomes Markdown through the templates in `templates/comments`, split at the host's limit, each part with its
//! [`marker`]. [`statuses`] words commit statuses.

mod diff;
pub mod drift_issue;
pub mod markdown;
pub mod marker;
mod message;
mod own;
mod plain;
mod room;
mod split;
mod status_details;
pub mod statuses;
mod templates;
mod view;

pub use own::{TemplateFile, with_own};
pub use templates::CommentTemplates;

use crate::domain::CommitAddress;
use crate::domain::command::CommandName;
use crate::domain::language::CommentLanguage;
use crate::domain::reply::{CommentStyle, Reply, ReplyBody, Results};
use jiff::Timestamp;
use markdown::Folding;
use minijinja::value::Serde;
use minijinja::{Value, context};
use room::CommentRoom;
use std::sync::Arc;

/// Maximum number of comments of one reply (Atlantis' default). The operator's limit can only lower it.
const MAX_COMMENTS: usize = 100;
/// Maximum number of comments of a single result in [`CommentStyle::Short`]: most plans that do not fit one comment fit two.
const MAX_SHORT: usize = 2;
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
    /// True if the host's Markdown hides HTML comments and renders tags. Otherwise it shows both as text.
    pub html_comments: bool,
    /// Mark in front of a pull request's number: `#` or `!`.
    pub pull_mark: char,
    /// `--comment-style`.
    pub style: CommentStyle,
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
    /// `--update-plan-comments`: plans that nobody asked for are written over earlier comments that they replace.
    pub update_plans: bool,
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
    let several = match &reply.body {
        ReplyBody::Results(results) if results.shown().count() > 1 => Some(results),
        _ => None,
    };
    let allowed = match options.max_comments {
        0 => MAX_COMMENTS,
        n => MAX_COMMENTS.min(usize::try_from(n).unwrap_or(MAX_COMMENTS)),
    };
    let most = match options.style {
        CommentStyle::Short if several.is_some() => 1,
        CommentStyle::Short => allowed.min(MAX_SHORT),
        CommentStyle::Full => allowed,
    };
    let marker_limit = marker::MAX_MARKER.min(options.comment_limit / 2);
    let longest = marker::line(reply, options, most, most, marker_limit);
    // A shortened one of a part with a shorter number may have space for one more result.
    let is_shortened = marker::parse(&longest).is_some_and(|marker| marker["truncated"] == true);
    let reserve = if is_shortened { marker_limit } else { longest.len() } + 2;
    let limit = options.comment_limit.saturating_sub(reserve);
    let parts = match several.filter(|_| options.style == CommentStyle::Short) {
        Some(results) => vec![short(results, reply, options, limit)],
        None => full(reply, options, limit, most),
    };
    let count = parts.len();
    let numbered = parts.into_iter().enumerate();
    numbered
        .map(|(i, part)| format!("{part}\n\n{}", marker::line(reply, options, i + 1, count, marker_limit)))
        .collect()
}

/// Returns as much of several results as fits one comment.
fn short(results: &Results, reply: &Reply, options: &RenderOptions, limit: usize) -> String {
    let rooms = CommentRoom::tightened(limit, view::wanted(results, options));
    let mut fitting = None;
    let mut is_too_long = |room: &CommentRoom| {
        let text = body(reply, options, *room);
        let fits = text.chars().count() <= limit;
        if fits {
            fitting = Some(text);
        }
        !fits
    };
    // Most replies fit at once. Otherwise the last text that fits is that of the widest bounds.
    if rooms.first().is_none_or(&mut is_too_long) {
        let _ = rooms.partition_point(is_too_long);
    }
    if let Some(text) = fitting {
        return text;
    }
    let tightest = rooms.last().copied().unwrap_or(CommentRoom::of_output(0));
    let text = body(reply, options, tightest);
    let rest = run_address(reply, options).map_or("**The rest is too long for a comment.**".to_owned(), |run| {
        format!("**The rest is too long for a comment:** {}", markdown::link("the run", &run))
    });
    first_part(&text, limit, &rest)
}

/// Returns all of a reply in at most `most` parts. The outputs of jobs are cut if it has more.
fn full(reply: &Reply, options: &RenderOptions, limit: usize, most: usize) -> Vec<String> {
    let command = reply.command_name().map_or("the", |name| name.spoken());
    let mut budget = limit.saturating_mul(most);
    let mut parts = split::split(&body(reply, options, CommentRoom::of_output(budget)), limit, command);
    for _ in 0..HALVINGS {
        if parts.len() <= most {
            break;
        }
        budget /= 2;
        parts = split::split(&body(reply, options, CommentRoom::of_output(budget)), limit, command);
    }
    if parts.len() > most {
        let notice = "\n**This comment is cut: it has more parts than `--max-comments-per-command` allows.**";
        parts.truncate(most);
        if let Some(last) = parts.last_mut() {
            let whole = format!("{last}{notice}");
            *last = if whole.chars().count() <= limit { whole } else { std::mem::take(last) };
        }
    }
    parts
}

/// Returns the page of the run that a reply is about. Policy checks have no page of their own.
fn run_address(reply: &Reply, options: &RenderOptions) -> Option<String> {
    let has_run =
        !matches!(reply.body, ReplyBody::Message(_)) && reply.command_name() != Some(CommandName::PolicyCheck);
    has_run.then(|| format!("{}/runs/{}", options.url, reply.run))
}

/// Returns the beginning of a text of more than `limit` characters, with `notice` as its last line.
fn first_part(text: &str, limit: usize, notice: &str) -> String {
    let room = limit.saturating_sub(notice.chars().count());
    let first = split::split(text, room, "this").into_iter().next().unwrap_or_default();
    first.replace(split::CONTINUED.trim(), notice)
}

/// Cuts a comment that the host rejected as too long to half of `limit`, with its marker.
pub fn shortened(comment: &str, limit: usize) -> String {
    let marker = marker::last_line(comment).unwrap_or_default();
    let text = comment.trim_end().strip_suffix(marker).unwrap_or(comment);
    let first = match text.chars().count() <= limit / 2 {
        true => text.to_owned(),
        false => first_part(text, limit / 2, "**The host refused the whole of it as too long.**"),
    };
    format!("{}\n\n{marker}", first.trim_end())
}

/// Renders the text without markers, as much of it as there is room for.
fn body(reply: &Reply, options: &RenderOptions, room: CommentRoom) -> String {
    let (template, context) = context_of(reply, options, room);
    let text = options.templates.render(template, context);
    let text = match reply.command.as_ref().and_then(|command| command.person.as_ref()) {
        Some(person) => format!("Requested by {} on Tidelock's page.\n\n{text}", markdown::code(&person.name)),
        None => text,
    };
    if options.html_comments { markdown::tidy(&text) } else { markdown::tidy(&plain::without_html(&text)) }
}

/// Returns the template of a reply, and its context.
fn context_of(reply: &Reply, options: &RenderOptions, room: CommentRoom) -> (&'static str, Value) {
    match &reply.body {
        ReplyBody::Results(results) => {
            let maker = view::Maker { reply, options, room };
            let views = maker.results(results);
            let template = if maker.is_single() { "one.md" } else { "several.md" };
            (
                template,
                context! { results => Serde(views), totals => Serde(maker.totals(results)), ..common(reply, options) },
            )
        }
        ReplyBody::CommandError(fault) => {
            let maker = view::Maker { reply, options, room };
            ("command_error.md", context! { error => Serde(maker.command_error(fault)), ..common(reply, options) })
        }
        ReplyBody::Message(message) => {
            let (template, fields) = message::template(message, reply, options, room.output);
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
