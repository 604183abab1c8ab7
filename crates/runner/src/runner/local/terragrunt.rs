//! Directories in which Terraform actually ran: a unit's own, or a copy of its source below `.terragrunt-cache`.

use super::files;
use crate::checkout::folder::Folder;
use rustix::fs::FileType;
use std::path::{Path, PathBuf};

/// Terragrunt's folder for copies of sources.
const CACHE: &str = ".terragrunt-cache";
/// Most entries of that folder that are examined.
const MAX_ENTRIES: usize = 50_000;
/// Most directories that are returned.
const MAX_DIRS: usize = 100;

/// Returns the directories in which Terraform ran, relative to the unit's directory: that directory first, as an empty path, then those of
/// its cache. No link is followed.
pub(super) fn working_dirs(unit: &Folder) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    let Ok(cache) = unit.folder(Path::new(CACHE)) else { return found };
    let mut entries = 0;
    // A walk that fails keeps the directories found so far.
    let _ = cache.walk(&mut |entry| {
        entries += 1;
        let is_mark = entry.name == ".terraform" && entry.kind == FileType::Directory;
        if is_mark && found.len() < MAX_DIRS {
            found.push(Path::new(CACHE).join(entry.path.parent().unwrap_or(Path::new(""))));
        }
        Ok(!is_mark && entry.name != ".git" && entries < MAX_ENTRIES)
    });
    found
}

/// Returns the selected workspaces of the directories in which Terraform ran; `None` for one that cannot be determined.
pub(super) fn selected_workspaces(unit: &Folder, data: &str) -> Vec<Option<String>> {
    let places = working_dirs(unit);
    let select = |place: &PathBuf| match place.as_os_str().is_empty() {
        true => files::selected_workspace(unit, data),
        false => unit.folder(place).ok().and_then(|folder| files::selected_workspace(&folder, data)),
    };
    // A unit whose Terraform runs in its cache has no workspace selected in its own directory.
    let skipped = usize::from(places.len() > 1);
    places.iter().skip(skipped).map(select).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terraform_ran_where_its_own_folder_is_and_no_link_leads_there() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let make = |path: &str| std::fs::create_dir_all(dir.path().join(path)).unwrap();
        make(".terraform");
        let unit = Folder::open(dir.path()).unwrap();
        assert_eq!(working_dirs(&unit), [Path::new("")]);
        assert_eq!(selected_workspaces(&unit, ".terraform"), [Some("default".to_owned())]);
        make(".terragrunt-cache/a/b/modules/vpc/.terraform/providers/.terraform");
        make(".terragrunt-cache/a/c/.git/.terraform");
        std::fs::create_dir_all(elsewhere.path().join(".terraform")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join(".terragrunt-cache/linked")).unwrap();
        let ran = ".terragrunt-cache/a/b/modules/vpc";
        assert_eq!(working_dirs(&unit), [Path::new(""), Path::new(ran)]);
        std::fs::write(dir.path().join(ran).join(".terraform/environment"), "prod").unwrap();
        assert_eq!(selected_workspaces(&unit, ".terraform"), [Some("prod".to_owned())]);
    }
}
