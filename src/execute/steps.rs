//! The kinds of steps (atlantis.md §4.3): what each runs, and what of its output people read.

use super::environment::{self, expand};
use super::files;
use super::stage::{Broken, Stage};
use crate::config::workflow::{OutputFilter, ShellCommand};
use crate::domain::outcome::{Failure, Reason};
use crate::process::Finished;
use crate::terraform::summary::{plan_text, strip_ansi};
use regex::Regex;
use semver::Version;
use std::path::{Path, PathBuf};

/// First version whose `workspace select` knows `-or-create`.
const SELECT_OR_CREATE: Version = Version::new(1, 4, 0);

impl Stage<'_> {
    fn expanded(&self, args: &[String]) -> Vec<String> {
        args.iter().map(|arg| expand(arg, &self.env)).collect()
    }

    async fn terraform(&self, what: &str, args: Vec<String>) -> Result<Finished, Broken> {
        let tool = self.tool.path.clone();
        self.call(&format!("{} {what}", self.tool.distribution.binary()), &tool, args).await
    }

    /// `init`: its output is shown only when it fails. Defaults give way to extra arguments of the same flag.
    pub(super) async fn init(&mut self, extra: &[String]) -> Result<(), Broken> {
        let had_lock = self.in_dir(files::drop_generated_lock).await.unwrap_or(false);
        let extra = self.expanded(extra);
        let mut args = vec!["init".to_owned()];
        let defaults = ["-input=false", "-upgrade"].into_iter().take(if had_lock { 1 } else { 2 });
        for default in defaults {
            let flag = default.split('=').next().unwrap_or(default);
            let same = |arg: &String| arg == flag || arg.strip_prefix(flag).is_some_and(|tail| tail.starts_with('='));
            if !extra.iter().any(same) {
                args.push(default.to_owned());
            }
        }
        args.extend(extra);
        let guard = self.ctx.directories.plugin_cache(self.root, &self.config.id.dir, &self.env).await;
        let result = self.terraform("init", args).await;
        drop(guard);
        if let Err(Broken::Fault(mut fault)) = result {
            if fault.reason == self.reason() {
                fault.reason = Reason::Init;
            }
            return Err(Broken::Fault(fault));
        }
        result?;
        if !had_lock {
            // Without a note the lock file counts as somebody's.
            let _ = self.in_dir(files::note_generated_lock).await;
        }
        Ok(())
    }

    /// Switches to the project's workspace. Terraform keeps the present one in a file, so that no process has to be asked.
    async fn switch_workspace(&self) -> Result<(), Broken> {
        let wanted = &self.config.id.workspace;
        if environment::get(&self.env, "TF_WORKSPACE").is_some() {
            return Ok(());
        }
        let data = environment::get(&self.env, "TF_DATA_DIR").unwrap_or(".terraform").to_owned();
        let present = self.in_dir(move |dir| Ok(files::selected_workspace(dir, &data))).await.ok().flatten();
        if present.as_ref() == Some(wanted) {
            return Ok(());
        }
        let select = |flag: &[&str]| {
            let words = ["workspace", "select"].iter().chain(flag).map(|word| (*word).to_owned());
            words.chain([wanted.clone()]).collect::<Vec<_>>()
        };
        if self.tool.version >= SELECT_OR_CREATE {
            self.terraform("workspace select", select(&["-or-create=true"])).await?;
        } else if self.terraform("workspace select", select(&[])).await.is_err() {
            let new = vec!["workspace".to_owned(), "new".to_owned(), wanted.clone()];
            self.terraform("workspace new", new).await?;
        }
        Ok(())
    }

    /// `plan -out`, with `env/<workspace>.tfvars` if it is there.
    pub(super) async fn plan(&mut self, extra: &[String]) -> Result<(), Broken> {
        self.switch_workspace().await?;
        let mut args: Vec<String> = ["plan", "-input=false", "-refresh", "-out"].map(str::to_owned).into();
        args.push(self.plan_file.to_string_lossy().into_owned());
        args.extend(self.expanded(extra));
        args.extend(self.work.command.extra_args.iter().cloned());
        let vars = self.dir.join("env").join(format!("{}.tfvars", self.config.id.workspace));
        if tokio::fs::try_exists(&vars).await.unwrap_or(false) {
            args.extend(["-var-file".to_owned(), vars.to_string_lossy().into_owned()]);
        }
        let finished = self.terraform("plan", args).await?;
        self.shown.push(plan_text(&finished.output));
        Ok(())
    }

    /// `apply` of the plan file. What to target is decided when planning.
    pub(super) async fn apply(&mut self, extra: &[String]) -> Result<(), Broken> {
        let mut args: Vec<String> = ["apply", "-input=false"].map(str::to_owned).into();
        args.extend(self.expanded(extra));
        args.extend(self.work.command.extra_args.iter().cloned());
        if args.iter().any(|arg| {
            let flag = arg.trim_start_matches('-');
            arg.starts_with('-') && (flag == "target" || flag.starts_with("target="))
        }) {
            return Err(Broken::Refused(Failure::Refused {
                reason: Reason::NotPermitted,
                because: "`-target` is not taken by apply: what is applied is the plan. Target when planning, with `plan -- -target=ADDRESS`".into(),
            }));
        }
        let plan_file = PathBuf::from(self.plan_file.file_name().unwrap_or_default());
        if self.in_dir(move |dir| dir.kind(&plan_file)).await.ok().flatten().is_none() {
            return Err(self.fault(Reason::NoPlan, "the plan file is gone; plan again", ""));
        }
        self.switch_workspace().await?;
        // A flag that waits for its value takes the dashes, not the plan file.
        args.extend(["--".to_owned(), self.plan_file.to_string_lossy().into_owned()]);
        let finished = self.terraform("apply", args).await?;
        self.shown.push(strip_ansi(&finished.output));
        Ok(())
    }

    /// `show -json` into `SHOWFILE`; nothing of it is shown. The shell writes it, as the user that steps run as: it is one line,
    /// as long as the plan is large, and what we read of output has limits.
    pub(super) async fn show(&mut self, extra: &[String]) -> Result<(), Broken> {
        let tool = self.tool.path.to_string_lossy().into_owned();
        let mut args = vec!["-c".to_owned(), r#"exec "$0" "$@" > "$SHOWFILE""#.to_owned(), tool];
        args.extend(["show", "-json"].map(str::to_owned));
        args.extend(self.expanded(extra));
        args.push(self.plan_file.to_string_lossy().into_owned());
        self.call_logged("terraform show", Path::new("/bin/sh"), args, false).await.map(drop)
    }

    /// `import` or `state rm` with the comment's arguments.
    pub(super) async fn state_command(&mut self, words: &[&str], extra: &[String]) -> Result<(), Broken> {
        self.switch_workspace().await?;
        let mut args: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        args.extend(self.expanded(extra));
        args.extend(self.work.command.extra_args.iter().cloned());
        args.extend(self.work.command.positional.iter().cloned());
        let finished = self.terraform(&words.join(" "), args).await?;
        self.shown.push(strip_ansi(&finished.output));
        Ok(())
    }

    /// `force-unlock` of this lock, in the project's workspace.
    pub(super) async fn force_unlock(&mut self, id: &str) -> Result<(), Broken> {
        self.switch_workspace().await?;
        let args = ["force-unlock", "-force", id].map(str::to_owned).to_vec();
        let finished = self.terraform("force-unlock", args).await?;
        self.shown.push(strip_ansi(&finished.output));
        Ok(())
    }

    /// `version`.
    pub(super) async fn version(&mut self) -> Result<(), Broken> {
        let finished = self.terraform("version", vec!["version".to_owned()]).await?;
        self.shown.push(strip_ansi(&finished.output));
        Ok(())
    }

    pub(super) async fn shell(&self, command: &ShellCommand, logged: bool) -> Result<Finished, Broken> {
        let mut args = command.shell_args.clone();
        args.push(command.command.clone());
        let first = command.command.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
        let what = format!("run `{}`", first.chars().take(80).collect::<String>().replace('`', "'"));
        self.call_logged(&what, Path::new(&command.shell), args, logged).await
    }

    pub(super) async fn run_step(&mut self, command: &ShellCommand, filters: &[OutputFilter]) -> Result<(), Broken> {
        let finished = self.shell(command, true).await?;
        let text = filtered(strip_ansi(&finished.output), filters)
            .map_err(|error| self.fault(Reason::Config, &format!("run.output: {error}"), ""))?;
        self.shown.extend(text);
        Ok(())
    }

    pub(super) async fn multienv(&mut self, command: &ShellCommand, show: bool) -> Result<(), Broken> {
        let finished = self.shell(command, false).await?;
        let pairs = parse_pairs(&finished.stdout)
            .map_err(|error| self.fault(self.reason(), &format!("multienv: {error}"), &finished.output))?;
        let names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
        if show {
            self.shown.push(if names.is_empty() {
                "No dynamic environment variables added".to_owned()
            } else {
                format!("Dynamic environment variables added:\n{}", names.join("\n"))
            });
        }
        for (name, value) in pairs {
            environment::set(&mut self.env, &name, value);
        }
        Ok(())
    }
}

/// `run.output` filters in order; absent when hidden.
fn filtered(mut text: String, filters: &[OutputFilter]) -> Result<Option<String>, regex::Error> {
    for filter in filters {
        match filter {
            OutputFilter::Show => {}
            OutputFilter::Hide => return Ok(None),
            OutputFilter::StripRefreshing => text = plan_text(&text),
            OutputFilter::FilterRegex(expression) => {
                text = Regex::new(expression)?.replace_all(&text, "${1}<redacted>${2}").into_owned();
            }
        }
    }
    Ok(Some(text))
}

/// Comma-separated `NAME=value` pairs; values may be in single or double quotes, the latter with `\"`.
fn parse_pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, tail) =
            rest.split_once('=').ok_or_else(|| format!("`{rest}` has no `=`: print NAME=value,NAME2=value2"))?;
        let name = name.trim();
        if name.is_empty() || name.contains([',', ' ', '"', '\'']) {
            return Err(format!("`{name}` is not a variable's name"));
        }
        let (value, left) = match tail.chars().next() {
            Some(quote @ ('"' | '\'')) => quoted(&tail[1..], quote)?,
            _ => tail.split_once(',').map_or((tail.to_owned(), ""), |(value, left)| (value.to_owned(), left)),
        };
        pairs.push((name.to_owned(), value));
        rest = left.trim_start();
    }
    Ok(pairs)
}

/// The quoted value and what follows its comma.
fn quoted(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' if quote == '"' => value.extend(letters.next().map(|(_, escaped)| escaped)),
            _ if letter == quote => {
                let left = text[at + 1..].trim_start();
                return match left.strip_prefix(',') {
                    Some(left) => Ok((value, left)),
                    None if left.is_empty() => Ok((value, "")),
                    None => Err(format!("`{left}` follows a closing quote")),
                };
            }
            _ => value.push(letter),
        }
    }
    Err("a quote is not closed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_may_be_quoted() {
        let found = parse_pairs("A=1,B=\"x, \\\"y\\\"\",C='m b',D=\n").unwrap();
        let want = [("A", "1"), ("B", "x, \"y\""), ("C", "m b"), ("D", "")];
        assert_eq!(found, want.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(parse_pairs(" \n").unwrap(), []);
        for bad in ["A", "A=\"x", "=1", "A='x'y"] {
            assert!(parse_pairs(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn output_filters_apply_in_order() {
        let filter = |filters: &[OutputFilter]| filtered("password=hunter2;".into(), filters).unwrap();
        assert_eq!(filter(&[]).as_deref(), Some("password=hunter2;"));
        let mask = OutputFilter::FilterRegex("(password=)[^;]*(;)".into());
        assert_eq!(filter(&[mask]).as_deref(), Some("password=<redacted>;"));
        assert_eq!(filter(&[OutputFilter::Hide]), None);
    }
}
