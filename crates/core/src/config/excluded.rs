//! A value of `--except`.

use super::paths::{Glob, clean, is_glob};
use crate::domain::ProjectId;

/// A name or directory that is left out, with all below the directory, or a glob of them. A glob stays one if a directory has the very name: a
/// pull request that adds such a directory must not bring back what a person leaves out.
pub struct Excluded {
    name: String,
    /// The directory that is named, and the one to which it leads if it is a link.
    dirs: Vec<String>,
    glob: Option<Glob>,
}

impl Excluded {
    /// Reads a value. `real_dir` returns the path to which a directory leads.
    ///
    /// # Errors
    ///
    /// The glob is not valid, as text for people.
    pub fn new(text: &str, real_dir: impl Fn(&str) -> Option<String>) -> Result<Excluded, String> {
        let from_root = text.trim_start_matches('/').trim_start_matches("./");
        let glob = is_glob(text).then(|| Glob::new(from_root)).transpose().map_err(|error| error.to_string())?;
        let dir = clean(from_root);
        let dirs = real_dir(&dir).into_iter().chain([dir]).collect();
        Ok(Excluded { name: text.to_owned(), dirs, glob })
    }

    /// Returns true if it leaves out this project. `link`: the path for it in the repo config, if that leads through a link.
    pub fn means(&self, project: &ProjectId, link: Option<&str>) -> bool {
        let is_name = |name: &str| name == self.name || self.glob.as_ref().is_some_and(|glob| glob.matches(name));
        project.name.as_deref().is_some_and(is_name)
            || self.covers(&project.dir)
            || link.is_some_and(|l| self.covers(l))
    }

    /// Returns true if it means a directory or one of those above it.
    pub fn covers(&self, dir: &str) -> bool {
        let mut above = dir.match_indices('/').map(|(end, _)| &dir[..end]).chain([dir]);
        above.any(|dir| {
            self.dirs.iter().any(|named| named == dir) || self.glob.as_ref().is_some_and(|glob| glob.matches(dir))
        })
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn a_directory_leaves_out_what_lies_below_it() {
        let link = |dir: &str| (dir == "live").then(|| "envs/live".to_owned());
        for (text, left_out, others) in [
            ("prod", &["prod", "prod/net", "prod/eu/app"][..], &["production", "a/prod", "."][..]),
            ("prod/*", &["prod/net", "prod/eu/app"], &["prod", "other/net"]),
            ("./prod/", &["prod/net"], &["."]),
            (".", &["."], &["prod"]),
            ("live", &["envs/live", "envs/live/net"], &["envs/other"]),
            ("**/net", &["net", "prod/net", "prod/net/core"], &["prod/app"]),
        ] {
            let excluded = Excluded::new(text, link).unwrap();
            left_out.iter().for_each(|dir| assert!(excluded.covers(dir), "{text} {dir}"));
            others.iter().for_each(|dir| assert!(!excluded.covers(dir), "{text} {dir}"));
        }
    }
}
