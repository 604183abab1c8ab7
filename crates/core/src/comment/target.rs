//! Rules for `-d`, `-w` and `-p`.

use super::flags::Typed;
use super::grammar::{CommandGrammar, Flag};
use super::words::clip;
use crate::domain::command::Target;

/// Longest quotation in a message, in characters.
const QUOTED: usize = 120;

/// Longest `-d`, in bytes: `PATH_MAX` of Linux.
const MAX_DIR: usize = 4096;

/// Most directories, and most names, of one command.
const MAX_NAMED: usize = 50;

/// Returns the target, or an error message.
pub(super) fn read(grammar: &CommandGrammar, typed: &Typed) -> Result<Target, String> {
    let (dirs, projects) = (typed.values(Flag::Dir), typed.values(Flag::Project));
    let target = several(&dirs, typed.value(Flag::Workspace), &projects)?;
    for (named, flag) in [(target.dirs.len(), "-d/--dir"), (target.projects.len(), "-p/--project")] {
        if named > 1 && grammar.one_target {
            return Err(format!("{} takes {flag} once", grammar.name.spoken()));
        }
        if named > MAX_NAMED {
            return Err(format!("it takes {MAX_NAMED} times {flag} at most: give a glob, or nothing for everything"));
        }
    }
    Ok(target)
}

/// Returns the target for these values of `-d`, `-w` and `-p`, or an error message.
pub fn checked(dir: Option<&str>, workspace: Option<&str>, project: Option<&str>) -> Result<Target, String> {
    several(dir.as_slice(), workspace, project.as_slice())
}

fn several(dirs: &[&str], workspace: Option<&str>, projects: &[&str]) -> Result<Target, String> {
    let mut cleaned = Vec::new();
    for dir in dirs {
        let dir = clean_dir(dir)?;
        if !cleaned.contains(&dir) {
            cleaned.push(dir);
        }
    }
    let workspace = workspace.map(check_workspace).transpose()?;
    if !projects.is_empty() && (!dirs.is_empty() || workspace.is_some()) {
        return Err(
            "-p/--project names directory and workspace already: leave -d/--dir and -w/--workspace out".to_owned()
        );
    }
    let projects = projects.iter().map(|&name| name.to_owned()).collect();
    Ok(Target { dirs: cleaned, workspace, projects, exactly: Vec::new() })
}

fn clean_dir(dir: &str) -> Result<String, String> {
    if dir.contains(char::is_control) {
        return Err("-d/--dir contains a control character".to_owned());
    }
    if dir.len() > MAX_DIR {
        return Err(format!(
            "-d/--dir {} is longer than {MAX_DIR} bytes, the longest path there is",
            clip(dir, QUOTED)
        ));
    }
    if dir.contains(['*', '?', '[']) {
        return check_glob(dir);
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in dir.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|&last| last != "..") => {
                parts.pop();
            }
            ".." if dir.starts_with('/') => {}
            part => parts.push(part),
        }
    }
    if parts.first().is_some_and(|first| first.starts_with("..")) {
        return Err(format!("-d/--dir {} leads out of the repository: give a path from its root", clip(dir, QUOTED)));
    }
    Ok(if parts.is_empty() { ".".to_owned() } else { parts.join("/") })
}

fn check_glob(glob: &str) -> Result<String, String> {
    let quoted = || clip(glob, QUOTED);
    if glob.contains("..") {
        return Err(format!("-d/--dir {}: a glob may not contain ..", quoted()));
    }
    let stripped = glob.strip_prefix("./").or(glob.strip_prefix('/')).unwrap_or(glob);
    let parsed = globset::GlobBuilder::new(stripped).literal_separator(true).backslash_escape(true).build();
    match parsed {
        Ok(_) => Ok(stripped.to_owned()),
        Err(error) => {
            Err(format!("-d/--dir {} is no valid glob: {}", quoted(), clip(&error.kind().to_string(), QUOTED)))
        }
    }
}

/// Checks a workspace name by Atlantis' rules; it becomes part of paths.
fn check_workspace(name: &str) -> Result<String, String> {
    let why = if name.contains(['/', '\\']) {
        "contains a slash"
    } else if name.contains("..") || name == "." {
        "contains dots that mean a directory"
    } else if name.starts_with(['-', '~']) {
        "begins with - or ~"
    } else if name.contains('$') {
        "contains a $"
    } else if name.contains(|char: char| char.is_whitespace() || char.is_control()) {
        "contains white space"
    } else {
        return Ok(name.to_owned());
    };
    Err(format!("-w/--workspace {} is no valid workspace: it {why}", clip(name, QUOTED)))
}
