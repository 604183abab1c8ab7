//! The projects of a pull request that the target of `unlock` selects.

use super::super::inner::Inner;
use crate::config::excluded::Excluded;
use crate::config::paths::{Glob, is_glob};
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
    except: Vec<(String, Excluded)>,
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
        // A value of `--except` that is a link also covers where it leads.
        let real: Vec<String> = real_dirs(&inner.ctx, pull, &target.except).await?;
        let except = target.except.iter().zip(real).map(|(text, real)| {
            let excluded = Excluded::new(text, |_| Some(real.clone()));
            // A glob that cannot be read leaves out everything, not nothing.
            let excluded = excluded.or_else(|_| Excluded::new("**", |_| None));
            Ok((text.clone(), excluded.map_err(anyhow::Error::msg)?))
        });
        Ok(UnlockSelection {
            is_all: target.is_all(),
            dirs: real_dirs(&inner.ctx, pull, &target.dirs).await?.iter().map(|dir| as_dir(dir)).collect(),
            workspace: target.workspace.clone(),
            names: target.projects.iter().map(|name| as_name(name)).collect(),
            except: except.collect::<Result<_>>()?,
            tag: None,
        })
    }

    /// Adds `--tag`, with the tags of the projects in the tree of the last plan. False if they are not known.
    pub(super) async fn read_tags(&mut self, inner: &Inner, pull: &PullRequest, query: &TagQuery) -> Result<bool> {
        self.tag = tags(&inner.ctx, pull).await?.map(|tags| (query.clone(), tags));
        Ok(self.tag.is_some())
    }

    /// Returns the values of `--except` that leave out none of these projects. Each may be a typing error.
    pub(super) fn idle_exceptions(&self, held: &[ProjectId]) -> Vec<&str> {
        let is_idle = |excluded: &Excluded| !held.iter().any(|project| excluded.means(project, None));
        self.except.iter().filter(|(_, excluded)| is_idle(excluded)).map(|(text, _)| text.as_str()).collect()
    }

    /// Returns a tag of `--tag` that no project has, which may be a typing error.
    pub(super) fn unknown_tag(&self) -> Option<&str> {
        let (query, tags) = self.tag.as_ref()?;
        query.tags().into_iter().find(|tag| !tags.values().flatten().any(|known| known == tag))
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
            && !self.except.iter().any(|(_, excluded)| excluded.means(project, None))
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
