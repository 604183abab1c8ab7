//! Rules for `-d`, `-w`, `-p`, `--tag` and `--except`.

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

/// `--tag` and `--except` in messages.
const TAG: &str = "--tag QUERY";
const EXCEPT: &str = "--except GLOB";

/// Returns the target, or an error message.
pub(super) fn read(grammar: &CommandGrammar, typed: &Typed) -> Result<Target, String> {
    let (dirs, projects) = (typed.values(Flag::Dir), typed.values(Flag::Project));
    let mut target = several(&dirs, typed.value(Flag::Workspace), &projects)?;
    for (flag, spoken) in [(Flag::Tag, TAG), (Flag::Except, EXCEPT)] {
        if typed.has_empty(flag) {
            return Err(empty(spoken));
        }
    }
    let Target { tag, except, .. } = narrowing(typed.value(Flag::Tag), &typed.values(Flag::Except))?;
    (target.tag, target.except) = (tag, except);
    for (named, flag) in [(target.dirs.len(), "-d/--dir"), (target.projects.len(), "-p/--project")] {
        if named > 1 && grammar.one_target {
            return Err(format!("{} takes {flag} once", grammar.name.spoken()));
        }
        check_number(named, flag)?;
    }
    Ok(target)
}

/// Returns the target that names nothing and leaves out what these values of `--tag` and `--except` do, or an error message.
pub fn narrowing(tag: Option<&str>, except: &[impl AsRef<str>]) -> Result<Target, String> {
    // Otherwise an unset variable of a script would mean everything.
    if tag.is_some_and(str::is_empty) {
        return Err(empty(TAG));
    }
    if except.iter().any(|except| except.as_ref().is_empty()) {
        return Err(empty(EXCEPT));
    }
    let tag = tag.map(str::parse).transpose().map_err(|error| format!("--tag {error}"))?;
    check_number(except.len(), "--except")?;
    let except = except.iter().map(|except| check_except(except.as_ref())).collect::<Result<_, _>>()?;
    Ok(Target { tag, except, ..Target::default() })
}

fn empty(spoken: &str) -> String {
    format!("{spoken} has an empty value")
}

fn check_number(named: usize, flag: &str) -> Result<(), String> {
    match named > MAX_NAMED {
        true => Err(format!("it takes {MAX_NAMED} times {flag} at most: give a glob, or nothing for everything")),
        false => Ok(()),
    }
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
    Ok(Target { dirs: cleaned, workspace, projects, ..Target::default() })
}

fn clean_dir(dir: &str) -> Result<String, String> {
    check_path("-d/--dir", dir)?;
    if dir.contains(['*', '?', '[']) {
        if dir.contains("..") {
            return Err(format!("-d/--dir {}: a glob may not contain ..", clip(dir, QUOTED)));
        }
        // One that is no valid glob may still be the name of a directory.
        return Ok(dir.strip_prefix("./").or(dir.strip_prefix('/')).unwrap_or(dir).to_owned());
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

/// Returns a name or directory to leave out, or a glob of them, as it was typed.
fn check_except(except: &str) -> Result<String, String> {
    check_path("--except", except)?;
    let quoted = clip(except, QUOTED);
    if except.contains("..") {
        return Err(format!("--except {quoted}: a glob may not contain .."));
    }
    let parsed = globset::GlobBuilder::new(except).literal_separator(true).backslash_escape(true).build();
    let wrong = |error: globset::Error| {
        format!("--except {quoted} is no valid glob: {}", clip(&error.kind().to_string(), QUOTED))
    };
    parsed.map(|_| except.to_owned()).map_err(wrong)
}

fn check_path(flag: &str, path: &str) -> Result<(), String> {
    if path.contains(char::is_control) {
        return Err(format!("{flag} contains a control character"));
    }
    if path.len() > MAX_DIR {
        let shown = clip(path, QUOTED);
        return Err(format!("{flag} {shown} is longer than {MAX_DIR} bytes, the longest path there is"));
    }
    Ok(())
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
