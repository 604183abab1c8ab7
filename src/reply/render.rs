//! Reply → Markdown, through the templates in `templates/comments`, split at the host's limit, each part with its marker. Pure.

use crate::domain::reply::Reply;

/// What wording depends on.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    /// Executable name in offered commands.
    pub executable: String,
    /// Server's own address, for links; no trailing slash.
    pub url: String,
    /// The host's comment limit, in characters.
    pub comment_limit: usize,
    /// `--max-comments-per-command`; 0: no limit.
    pub max_comments: u32,
    /// `--disable-markdown-folding`.
    pub disable_folding: bool,
    /// `--enable-diff-markdown-format`.
    pub diff_format: bool,
    /// `--hide-unchanged-plan-comments`.
    pub hide_unchanged: bool,
    /// Offer `apply` at all (it is an allowed command).
    pub offer_apply: bool,
    /// Offer `apply` of everything.
    pub offer_apply_all: bool,
    /// `--disable-repo-locking`: don't speak of locks.
    pub locking: bool,
}

/// The comments, in order; empty when all of it is silenced.
pub fn render(_reply: &Reply, _options: &RenderOptions) -> Vec<String> {
    todo!()
}
