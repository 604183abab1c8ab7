//! The projects of a pull request that the target of `unlock` selects.

use super::super::inner::Inner;
use crate::config::paths::{Glob, clean, is_glob};
use crate::domain::command::Target;
use crate::domain::tags::TagQuery;
use crate::domain::{ProjectId, PullId, PullRequest};
use crate::execute::last_tree::{real_dirs, tags};
use anyhow::Result;
use std::collections::HashMap;

/// What the flags select. It is decided once, so that a later change selects nothing that was not checked.
#[derive(Default)]
pub(super) struct UnlockSelection {
    /// True without any flag.
    pub(super) is_all: bool,
    dirs: Vec<TypedPath>,
    workspace: Option<String>,
    names: Vec<TypedPath>,
    except: Vec<Excepted>,
    tag: Option<(TagQuery, HashMap<ProjectId, Vec<String>>)>,
}

impl UnlockSelection {
    /// Creates the selection among these projects, which a pull request holds or waits for. `--tag` is left out.
    pub(super) async fn new(
        inner: &Inner,
        pull: &PullId,
        target: &Target,
        held: &[ProjectId],
    ) -> Result<UnlockSelection> {
        let as_dir = |dir: &str| TypedPath::new(dir, held.iter().map(|project| project.dir.as_str()));
        let as_name = |name: &str| TypedPath::new(name, held.iter().filter_map(|project| project.name.as_deref()));
        Ok(UnlockSelection {
            is_all: target.is_all(),
            dirs: real_dirs(&inner.ctx, pull, &target.dirs).await?.iter().map(|dir| as_dir(dir)).collect(),
            workspace: target.workspace.clone(),
            names: target.projects.iter().map(|name| as_name(name)).collect(),
            except: target.except.iter().map(|text| Excepted::new(text)).collect(),
            tag: None,
        })
    }

    /// Adds `--tag`, with the tags of the projects in the tree of the last plan. False if they are not known.
    pub(super) async fn read_tags(&mut self, inner: &Inner, pull: &PullRequest, query: &TagQuery) -> Result<bool> {
        self.tag = tags(&inner.ctx, pull).await?.map(|tags| (query.clone(), tags));
        Ok(self.tag.is_some())
    }

    /// Returns true if the flags select this project.
    pub(super) fn means(&self, project: &ProjectId) -> bool {
        let (dir, name) = (project.dir.as_str(), project.name.as_deref());
        let is_name = |typed: &TypedPath| name.is_some_and(|name| typed.matches(name));
        let has_tags = |(query, tags): &(TagQuery, HashMap<ProjectId, Vec<String>>)| {
            query.holds(tags.get(project).map(Vec::as_slice).unwrap_or_default())
        };
        (self.dirs.is_empty() || self.dirs.iter().any(|typed| typed.matches(dir)))
            && self.workspace.as_ref().is_none_or(|workspace| *workspace == project.workspace)
            && (self.names.is_empty() || self.names.iter().any(is_name))
            && !self.except.iter().any(|excepted| excepted.means(project))
            && self.tag.as_ref().is_none_or(has_tags)
    }
}

/// A directory or name as it is typed: the one of that very name, or else a glob. A glob that is not valid stands for itself.
enum TypedPath {
    Exact(String),
    Glob(Glob),
}

impl TypedPath {
    fn new<'a>(typed: &str, mut there: impl Iterator<Item = &'a str>) -> TypedPath {
        let glob = (is_glob(typed) && !there.any(|known| known == typed)).then(|| Glob::new(typed));
        glob.and_then(Result::ok).map_or_else(|| TypedPath::Exact(typed.to_owned()), TypedPath::Glob)
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            TypedPath::Exact(exact) => exact == path,
            TypedPath::Glob(glob) => glob.matches(path),
        }
    }
}

/// A value of `--except`: a name or directory, and a glob of them.
struct Excepted {
    name: String,
    dir: String,
    glob: Option<Glob>,
}

impl Excepted {
    fn new(text: &str) -> Excepted {
        let from_root = text.trim_start_matches('/').trim_start_matches("./");
        // One that is too large to be compiled leaves out everything, not nothing.
        let glob = is_glob(text).then(|| Glob::new(from_root).or_else(|_| Glob::new("**")).ok()).flatten();
        Excepted { name: text.to_owned(), dir: clean(from_root), glob }
    }

    fn means(&self, project: &ProjectId) -> bool {
        let name = project.name.as_deref();
        let is_matched = |glob: &Glob| name.is_some_and(|name| glob.matches(name)) || glob.matches(&project.dir);
        name == Some(&self.name) || project.dir == self.dir || self.glob.as_ref().is_some_and(is_matched)
    }
}
