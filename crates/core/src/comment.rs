//! Parses comments: text → [`Command`], help, or an error message. One table has all commands and flags; the help text is made from it.
//!
//! ```text
//! EXECUTABLE COMMAND [flags] [-- Terraform arguments]
//! ```
//!
//! EXECUTABLE is one of the configured names, `run`, or `@` and the server's login. Only a comment of one line is a
//! command.

mod flags;
mod grammar;
mod help;
mod target;
#[cfg(test)]
mod tests;
mod words;

use crate::domain::automerge::MERGE_METHODS;
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::{Login, ProjectId};
use flags::{FlagError, Typed};
use grammar::{COMMANDS, CommandGrammar, Flag, Positional};
pub use target::{checked as checked_target, narrowing as checked_narrowing};
pub use words::quote;
use words::{clip, join};

/// Settings of the parser.
#[derive(Debug, Clone)]
pub struct ParserSettings {
    /// Accepted first words, in lower case; suggestions use the first.
    pub executables: Vec<String>,
    /// True if `executables` is the default, so that misspelt names are answered.
    pub is_default: bool,
    /// The server's login, for `@login plan`.
    pub bot_login: Login,
    /// Allowed commands.
    pub allowed: Vec<CommandName>,
    /// `--blocked-extra-args`.
    pub blocked_extra_args: Vec<String>,
    /// Character that the host writes before numbers of pull requests, such as `#`.
    pub pull_mark: char,
    /// True if no apply is possible, for the help text.
    pub apply_disabled: bool,
}

impl ParserSettings {
    /// Returns the executable name for suggestions.
    fn executable(&self) -> &str {
        self.executables.first().map_or("atlantis", String::as_str)
    }

    /// Returns true if an argument for Terraform is blocked, with one dash or two, alone or with `=value`.
    fn blocks(&self, arg: &str) -> bool {
        let name = |arg: &str| arg.strip_prefix('-').map(|rest| rest.strip_prefix('-').unwrap_or(rest).to_owned());
        let flag = name(arg.split('=').next().unwrap_or(arg));
        self.blocked_extra_args.iter().any(|blocked| blocked == arg || (flag.is_some() && name(blocked) == flag))
    }
}

/// A parsed comment. Texts are plain (no Markdown) for a code fence; they quote the comment, shortened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// Not a command.
    NotForUs,
    /// A command.
    Command(Box<Command>),
    /// A request for help, with its text.
    Help(String),
    /// Wrong flags or arguments: the error, and the usage.
    Usage(String),
    /// An unknown command, by its word.
    Unknown(String),
    /// A command that is not allowed here.
    SwitchedOff(CommandName),
    /// A misspelt executable name, with the corrected command.
    DidYouMean(String),
}

/// Longest first word that is compared with the names, in bytes.
const MAX_NAME: usize = 255;
/// Longest quotation of a comment, in characters.
const QUOTED: usize = 120;
/// Most pull requests that one `unlock` names.
const MAX_PULLS: usize = 20;
/// Longest reason after `-m`, in characters.
const MAX_WHY: usize = 300;
/// Most edits (insert, delete, substitute) of a misspelt name.
const NEAR: usize = 2;

/// Parses a comment of `user`. Of prose, only the first word is examined.
pub fn parse(text: &str, user: &Login, names: &ParserSettings) -> Parsed {
    let text = text.trim().trim_matches('`');
    let Some(first) = text.split_whitespace().next().filter(|first| first.len() <= MAX_NAME) else {
        return Parsed::NotForUs;
    };
    let word = first.to_lowercase();
    let instead = near_miss(&word, names);
    if (instead.is_none() && !is_ours(&word, names)) || has_second_line(text) {
        return Parsed::NotForUs;
    }
    if let Some(executable) = instead {
        let words = [executable].into_iter().chain(text.split_whitespace().skip(1)).collect::<Vec<_>>().join(" ");
        return Parsed::DidYouMean(if words.len() > QUOTED { executable.to_owned() } else { clip(&words, QUOTED) });
    }
    // Only `unlock` takes numbers: after any other command `#` begins a comment, as in Atlantis.
    let grammar = text.split_whitespace().nth(1).and_then(|word| find(&word.to_lowercase()));
    let words = match words::split(text, grammar.map_or(Positional::None, |grammar| grammar.positional)) {
        Ok(words) => words,
        Err(error) => return Parsed::Usage(format!("Error: {error}.\n\nType: {} help", names.executable())),
    };
    let Some(second) = words.get(1).map(|word| word.to_lowercase()) else { return Parsed::Help(help::help(names)) };
    if ["help", "-h", "--help"].contains(&second.as_str()) {
        return match words.get(2).and_then(|word| find(&word.to_lowercase())) {
            None => Parsed::Help(help::help(names)),
            Some(grammar) if names.allowed.contains(&grammar.name) => Parsed::Help(help::usage(grammar, names)),
            Some(grammar) => Parsed::SwitchedOff(grammar.name),
        };
    }
    match find(&second) {
        None => Parsed::Unknown(clip(&words[1], QUOTED)),
        Some(grammar) if names.allowed.contains(&grammar.name) => read_command(grammar, &words[2..], user, names),
        Some(grammar) => Parsed::SwitchedOff(grammar.name),
    }
}

fn is_ours(word: &str, names: &ParserSettings) -> bool {
    let bot = names.bot_login.as_str().to_lowercase();
    // Hosts without login names write a mention as `@{id}`.
    let is_mention = |name: &str| !bot.is_empty() && (name == bot || name == format!("{{{bot}}}"));
    word == "run" || names.executables.iter().any(|name| name == word) || word.strip_prefix('@').is_some_and(is_mention)
}

/// Returns the executable name for which a word is a likely typo.
fn near_miss<'a>(word: &str, names: &'a ParserSettings) -> Option<&'a str> {
    if is_ours(word, names) {
        return None;
    }
    if word == "terraform" {
        return Some(names.executable());
    }
    let is_near =
        |name: &&String| word.len().abs_diff(name.len()) <= 4 * NEAR && strsim::levenshtein(word, name) <= NEAR;
    names.executables.iter().filter(|_| names.is_default).find(is_near).map(String::as_str)
}

/// Returns true if a line after the first has text; empty ones come from copying.
fn has_second_line(text: &str) -> bool {
    text.as_bytes().windows(2).any(|pair| pair[0] == b'\n' && !matches!(pair[1], b'\r' | b'\n'))
}

fn find(word: &str) -> Option<&'static CommandGrammar> {
    COMMANDS.iter().find(|grammar| grammar.word() == word)
}

/// An error message: the error, and a corrected command without the executable name.
struct Mistake {
    what: String,
    type_this: String,
}

fn read_command(grammar: &CommandGrammar, args: &[String], user: &Login, names: &ParserSettings) -> Parsed {
    let mistake = |what: String| Mistake { what, type_this: grammar.example.to_owned() };
    let outcome = match flags::read(grammar, args) {
        Err(FlagError::Help) => return Parsed::Help(help::usage(grammar, names)),
        Err(FlagError::Wrong(what)) => Err(mistake(clip(&what, QUOTED))),
        Err(FlagError::Unknown { what, at }) => Err(unknown_flag(grammar, names, &what, args, at)),
        Ok(typed) => build(grammar, typed, user, names),
    };
    match outcome {
        Ok(command) => Parsed::Command(Box::new(command)),
        Err(Mistake { what, type_this }) => {
            let type_this = if is_understood(grammar, &type_this, user, names) { &type_this } else { grammar.example };
            Parsed::Usage(help::mistake(grammar, names, &what, type_this))
        }
    }
}

/// Returns true if a command without its executable name is valid and fits on one line.
fn is_understood(grammar: &CommandGrammar, line: &str, user: &Login, names: &ParserSettings) -> bool {
    let words = words::split(line, grammar.positional).unwrap_or_default();
    let typed = words.get(1..).and_then(|args| flags::read(grammar, args).ok());
    !line.contains(char::is_control) && typed.is_some_and(|typed| build(grammar, typed, user, names).is_ok())
}

/// Explains an unknown flag, which usually is one for Terraform without a `--` before it.
fn unknown_flag(grammar: &CommandGrammar, names: &ParserSettings, what: &str, args: &[String], at: usize) -> Mistake {
    let what = clip(what, QUOTED);
    let (ours, theirs) = args.split_at(at);
    let theirs: Vec<_> = theirs.iter().map(String::as_str).filter(|&arg| arg != "--").collect();
    let line =
        join([grammar.word()].into_iter().chain(ours.iter().map(String::as_str)).chain(["--"]).chain(theirs.clone()));
    let typed = theirs.first().and_then(|arg| arg.split('=').next()).map_or("", |arg| arg.trim_start_matches('-'));
    let near = grammar.flags.iter().find(|flag| 3 * strsim::damerau_levenshtein(flag.long, typed) <= typed.len());
    if let Some(near) = near {
        let value =
            theirs.first().and_then(|arg| arg.split_once('=')).map_or(String::new(), |(_, value)| format!("={value}"));
        let meant = format!("--{}{value}", near.long);
        let rest = args.iter().skip(at + 1).map(String::as_str);
        let line = join(
            [grammar.word()].into_iter().chain(ours.iter().map(String::as_str)).chain([meant.as_str()]).chain(rest),
        );
        let type_this = if line.chars().count() > QUOTED { grammar.example.to_owned() } else { line };
        return Mistake { what: format!("{what}; did you mean --{}?", near.long), type_this };
    }
    if !grammar.passes_extra_args || theirs.iter().any(|arg| names.blocks(arg)) || line.chars().count() > QUOTED {
        return Mistake { what, type_this: grammar.example.to_owned() };
    }
    Mistake { what: format!("{what}; arguments for Terraform go after --"), type_this: line }
}

fn build(grammar: &CommandGrammar, typed: Typed, user: &Login, names: &ParserSettings) -> Result<Command, Mistake> {
    let mistake = |what: String| Mistake { what, type_this: grammar.example.to_owned() };
    let positional = read_positional(grammar, &typed.positional)?;
    if let Some(arg) = typed.extra.iter().chain(&positional).find(|arg| names.blocks(arg)) {
        return Err(mistake(format!("{} is not allowed for Terraform here (--blocked-extra-args)", clip(arg, QUOTED))));
    }
    if let Some(what) = typed.contradiction(grammar) {
        return Err(mistake(what));
    }
    let target = target::read(grammar, &typed).map_err(|what| {
        let named = typed.value(Flag::Project).filter(|name| name.len() <= QUOTED && !what.contains("no valid"));
        let type_this = named.map(|name| format!("{} -p {}", grammar.form, quote(name)));
        Mistake { what, type_this: type_this.unwrap_or_else(|| grammar.example.to_owned()) }
    })?;
    let method = typed.value(Flag::AutoMergeMethod);
    if method.is_some() && typed.is_on(Flag::AutoMergeDisabled) {
        return Err(mistake("--auto-merge-method and --auto-merge-disabled contradict each other".to_owned()));
    }
    if method.is_some_and(|method| !MERGE_METHODS.contains(&method)) {
        return Err(mistake("--auto-merge-method is merge, rebase or squash".to_owned()));
    }
    let why = reason(grammar, &typed)?;
    let (positional, pulls) = match grammar.positional {
        Positional::Pulls => (Vec::new(), pull_numbers(grammar, &positional, names)?),
        _ => (positional, Vec::new()),
    };
    if !pulls.is_empty() && target.tag.is_some() {
        return Err(mistake("--tag is for projects of this pull request: name others with -p or -d".to_owned()));
    }
    Ok(Command {
        accept_drift: typed.is_on(Flag::AcceptDrift),
        target,
        positional,
        pulls,
        why,
        force: typed.is_on(Flag::Force),
        only: typed.is_on(Flag::Only),
        overrides: typed.values(Flag::Override).into_iter().map(str::to_owned).collect(),
        verbose: typed.is_on(Flag::Verbose),
        interrupt_apply: typed.is_on(Flag::InterruptApply),
        auto_merge_disabled: typed.is_on(Flag::AutoMergeDisabled),
        auto_merge_method: method.map(str::to_owned),
        policy_set: typed.value(Flag::PolicySet).map(str::to_owned),
        clear_policy_approval: typed.is_on(Flag::ClearPolicyApproval),
        extra_args: typed.extra,
        ..Command::new(grammar.name, Trigger::Comment, user.clone())
    })
}

/// Returns the text after `-m` on one line, or an error if the command requires it.
fn reason(grammar: &CommandGrammar, typed: &Typed) -> Result<Option<String>, Mistake> {
    let why = typed.value(Flag::Why).map_or(Ok(None), checked_reason);
    let (forced, overrides) = (typed.is_on(Flag::Force), !typed.values(Flag::Override).is_empty());
    let (what, example) = match grammar.name {
        CommandName::Apply if forced => ("--force", "apply --force -m 'why'"),
        CommandName::Apply | CommandName::Plan if overrides => ("--override", grammar.example),
        CommandName::Unlock if typed.is_on(Flag::AcceptDrift) => ("--accept-drift", "unlock --accept-drift -m 'why'"),
        CommandName::Freeze | CommandName::Lock => (grammar.word(), grammar.example),
        _ => ("", grammar.example),
    };
    let mistake = |what: String| Err(Mistake { what, type_this: example.to_owned() });
    match why {
        Ok(None) if !what.is_empty() => mistake(format!("{what} needs a reason: -m 'why'")),
        Ok(Some(_)) | Err(_) if grammar.name == CommandName::Apply && !forced && !overrides => {
            mistake("-m goes with --force or --override".to_owned())
        }
        Ok(Some(_)) | Err(_) if grammar.name == CommandName::Plan && !overrides => {
            mistake("-m goes with --override".to_owned())
        }
        Ok(why) => Ok(why),
        Err(problem) => mistake(format!("the reason after -m {problem}")),
    }
}

/// Returns a reason on one line; `None` if the text is blank. The error is for people, after the name of the reason.
pub fn checked_reason(text: &str) -> Result<Option<String>, String> {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let why: String = text.trim().chars().map(printable).collect();
    match why.chars().count() {
        0 => Ok(None),
        1..=MAX_WHY => Ok(Some(why)),
        _ => Err(format!("has more than {MAX_WHY} characters")),
    }
}

/// Parses numbers of pull requests, with the host's mark or without it.
fn pull_numbers(grammar: &CommandGrammar, typed: &[String], names: &ParserSettings) -> Result<Vec<u64>, Mistake> {
    let mark = names.pull_mark;
    let mistake = |what: String| Mistake { what, type_this: format!("{} {mark}12", grammar.form) };
    let words = typed.iter().flat_map(|word| word.split(',')).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.take(MAX_PULLS + 1).collect();
    if words.len() > MAX_PULLS {
        return Err(mistake(format!("it takes {MAX_PULLS} pull requests at most")));
    }
    let mut numbers = Vec::new();
    for word in words {
        let digits = word.strip_prefix(mark).unwrap_or(word);
        let number =
            digits.parse::<u64>().ok().filter(|number| *number > 0 && digits.starts_with(|c: char| c.is_ascii_digit()));
        let number = number.ok_or_else(|| mistake(format!("{} is no number of a pull request", clip(word, QUOTED))))?;
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// Parses positional arguments, without the sub-command.
fn read_positional(grammar: &CommandGrammar, typed: &[String]) -> Result<Vec<String>, Mistake> {
    let listed = || clip(&typed.join(" "), QUOTED);
    let mistake = |what: String| Mistake { what, type_this: grammar.example.to_owned() };
    match (grammar.positional, typed) {
        (Positional::None, []) => Ok(Vec::new()),
        (Positional::None, [dir]) if dir.len() <= QUOTED && grammar.flags.iter().any(|flag| flag.flag == Flag::Dir) => {
            let what = format!("unknown argument {}; a directory goes after -d", listed());
            Err(Mistake { what, type_this: format!("{} -d {}", grammar.form, quote(dir)) })
        }
        (Positional::None, _) => Err(mistake(format!("unknown arguments {}", listed()))),
        (Positional::Pulls, _) => Ok(typed.to_vec()),
        (Positional::LockId, [id]) if is_lock_id(id) => Ok(typed.to_vec()),
        (Positional::LockId, []) => Err(mistake("the ID of the state lock is missing".to_owned())),
        (Positional::LockId, [_]) => Err(mistake(format!("{} is no ID of a state lock", listed()))),
        (Positional::LockId, _) => Err(mistake(format!("it takes one ID, not {}", listed()))),
        (Positional::AddressAndId, [_, _]) => Ok(typed.to_vec()),
        (Positional::AddressAndId, []) => Err(mistake("ADDRESS and ID are missing".to_owned())),
        (Positional::AddressAndId, _) => Err(mistake(format!("it takes ADDRESS and ID, not {}", listed()))),
        (Positional::RmAddresses, []) => Err(mistake("the sub-command rm is missing".to_owned())),
        (Positional::RmAddresses, [rm]) if rm == "rm" => Err(mistake("an ADDRESS is missing after rm".to_owned())),
        (Positional::RmAddresses, [rm, addresses @ ..]) if rm == "rm" => Ok(addresses.to_vec()),
        (Positional::RmAddresses, [other, ..]) => {
            Err(mistake(format!("unknown sub-command {}; there is rm only", clip(other, QUOTED))))
        }
    }
}

/// Returns true for a lock ID as backends create them, such as UUIDs, numbers and names of objects. It never begins like a flag.
fn is_lock_id(id: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_./:+=".contains(c);
    id.len() <= QUOTED && id.chars().all(fits) && id.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Returns the command that plans a project again: `atlantis plan -p name`, with `extra` after ` -- `.
pub fn command_for(executable: &str, name: CommandName, project: &ProjectId, extra: &[String]) -> String {
    let mut line = format!("{executable} {}", name.spoken());
    let takes_target =
        COMMANDS.iter().any(|grammar| grammar.name == name && grammar.flags.iter().any(|f| f.flag == Flag::Dir));
    if takes_target {
        let (dir, workspace) = (quote(&project.dir), quote(&project.workspace));
        line += &match (&project.name, project.dir.as_str(), project.workspace.as_str()) {
            (Some(name), _, _) => format!(" -p {}", quote(name)),
            (None, ".", "default") => " -d .".to_owned(),
            (None, ".", _) => format!(" -w {workspace}"),
            (None, _, "default") => format!(" -d {dir}"),
            (None, _, _) => format!(" -d {dir} -w {workspace}"),
        };
    }
    if !extra.is_empty() {
        line += &format!(" -- {}", join(extra.iter().map(String::as_str)));
    }
    line
}
