//! Checks if the attributes of a tree name the filter of Git LFS, from git's index and the files themselves.

use super::super::folder::Folder;
use std::path::Path;

/// Name of git's files with attributes.
const NAME: &str = ".gitattributes";
/// Text in every attribute, also of a macro, that makes a file one of Git LFS.
const FILTER: &str = "filter=lfs";
/// Largest file with attributes that is read, in bytes. A larger one is assumed to name the filter.
const MAX_ATTRIBUTES: u64 = 1 << 20;
/// Bytes of an entry of the index before its path, without and with extended flags (gitformat-index(5)).
const ENTRY: [usize; 2] = [62, 64];
/// Bit of an entry's flags that stands for extended flags.
const EXTENDED: u8 = 0x40;

/// Returns true if the attributes name the filter, or if that cannot be determined.
pub(super) fn name_the_filter(top: &Folder, index: &[u8]) -> bool {
    let Some(files) = files_of(index) else { return true };
    files.iter().any(|file| match top.read(Path::new(file), MAX_ATTRIBUTES) {
        Ok(text) => text.is_some_and(|text| text.windows(FILTER.len()).any(|part| part == FILTER.as_bytes())),
        Err(_) => true,
    })
}

/// Returns the files with attributes in a git index; `None` if it has another format.
fn files_of(index: &[u8]) -> Option<Vec<String>> {
    let number = |at: usize| Some(u32::from_be_bytes(index.get(at..at + 4)?.try_into().ok()?));
    if index.get(..4)? != b"DIRC" || !matches!(number(4)?, 2 | 3) {
        return None;
    }
    let (mut at, mut found) = (12, Vec::new());
    for _ in 0..number(8)? {
        let flags = *index.get(at + 60)?;
        let start = ENTRY[usize::from(flags & EXTENDED != 0)];
        let rest = index.get(at + start..)?;
        let length = rest.iter().position(|byte| *byte == 0)?;
        let path = rest.get(..length)?;
        if path.ends_with(NAME.as_bytes()) {
            found.push(String::from_utf8(path.to_vec()).ok()?);
        }
        // An entry ends with one to eight zeros, at a multiple of eight bytes.
        at += (start + length + 8) & !7;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn attributes_are_found_in_an_index_that_git_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            assert!(Command::new("git").args(args).current_dir(&dir).output().unwrap().status.success(), "{args:?}");
        };
        let looked = || {
            let index = fs::read(dir.path().join(".git/index")).unwrap();
            (files_of(&index), name_the_filter(&Folder::open(dir.path()).unwrap(), &index))
        };
        git(&["init", "-q"]);
        for at in 0..20 {
            fs::write(dir.path().join("x".repeat(at + 1)), "").unwrap();
        }
        git(&["add", "."]);
        assert_eq!(looked(), (Some(vec![]), false));
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join(NAME), "* text=auto\n").unwrap();
        fs::write(dir.path().join("a/.gitattributes"), "*.txt eol=lf\n").unwrap();
        git(&["add", "."]);
        let both = Some(vec![NAME.to_owned(), "a/.gitattributes".to_owned()]);
        assert_eq!(looked(), (both.clone(), false));
        // An entry with extended flags.
        fs::write(dir.path().join("new"), "").unwrap();
        git(&["add", "--intent-to-add", "new"]);
        assert_eq!(looked(), (both, false));
        fs::write(dir.path().join("a/.gitattributes"), "[attr]large filter=lfs -text\n").unwrap();
        assert!(looked().1);
        git(&["update-index", "--index-version", "4"]);
        assert_eq!(looked(), (None, true));
    }

    #[test]
    fn a_cut_index_is_none() {
        assert_eq!(files_of(b""), None);
        assert_eq!(files_of(b"DIRC\0\0\0\x02\0\0\0\x01short"), None);
        assert_eq!(files_of(b"DIRC\0\0\0\x02\0\0\0\0"), Some(vec![]));
    }
}
