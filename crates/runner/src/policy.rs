//! The built-in policy engine, `tidelock policy-check`: evaluates policies in Rego on one JSON file, with the flags and the output of
//! `conftest test`. It is a separate process, so that the time, memory and stack that a policy uses end with it.

mod evaluate;
mod input;
mod load;
mod print;
mod regex_match;
#[cfg(test)]
mod tests;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};
use evaluate::{Evaluation, evaluate};
use load::PolicyReader;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Name of the command.
pub const COMMAND: &str = "policy-check";
/// Limit of the process's address space, in bytes.
const MEMORY: u64 = 2 << 30;
/// Limit of processor time, in seconds. The evaluation's own time limit is shorter.
const PROCESSOR_TIME: u64 = 60;
/// The limits of memory, stack and processor time, in words.
pub const LIMITS: &str = "2 GiB of memory, 64 MiB of stack and 60 s of processor time";
/// Stack of the evaluation, in bytes. It is large because policies call each other.
const STACK: usize = 64 << 20;
/// Exit code if the command line is refused or the policies cannot be evaluated.
const NOT_EVALUATED: u8 = 1;
/// Part of an error message that names the other engine.
const OTHER_ENGINE: &str = "Start the server with `--policy-engine=conftest` for all of conftest";

/// Parsed arguments of the command.
struct PolicyArguments {
    policies: Vec<String>,
    data: Vec<String>,
    namespaces: Vec<String>,
    all_namespaces: bool,
    rego_v0: bool,
    no_fail: bool,
    fail_on_warn: bool,
    json: bool,
    with_exceptions: bool,
    /// Root of an untrusted tree: links below it are not followed.
    tree: Option<PathBuf>,
    input: String,
}

/// Returns the command line parser, with conftest's flags.
pub fn command() -> Command {
    let list = |name: &'static str, short: char, value: &'static str, help: &'static str| {
        let arg = Arg::new(name).long(name).short(short).value_name(value).help(help);
        arg.action(ArgAction::Append).value_delimiter(',')
    };
    let switch =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    Command::new(COMMAND)
        .about("Checks a plan, as JSON, against policies in Rego, as policy checks of the server do")
        .after_help(
            "To try policies: terraform show -json PLANFILE > plan.json && tidelock policy-check -p policies plan.json",
        )
        .arg(list("policy", 'p', "PATH", "File or directory with policies").default_value("policy"))
        .arg(list("data", 'd', "PATH", "File or directory with documents for `data`, in JSON or YAML"))
        .arg(list("namespace", 'n', "NAME", "Package whose rules are evaluated").default_value("main"))
        .arg(switch("all-namespaces", "Evaluate the rules of all packages"))
        .arg(switch("no-fail", "Exit with 0 even if a policy fails"))
        .arg(switch("fail-on-warn", "Exit with 1 where there are warnings, and with 2 where there are failures"))
        .arg(switch("no-color", "For compatibility: there is no colour"))
        .arg(switch("quiet", "For compatibility: successes are only counted"))
        .arg(switch("suppress-exceptions", "Leave exceptions out of the output"))
        .arg(Arg::new("output").long("output").short('o').value_parser(["stdout", "json"]).default_value("stdout"))
        .arg(Arg::new("rego-version").long("rego-version").value_parser(["v0", "v1"]).default_value("v1"))
        .arg(Arg::new("tree").long("tree").value_name("DIR").hide(true).help("Follow no link below this directory"))
        .arg(Arg::new("input").value_name("FILE").required(true).help("The plan, as JSON"))
}

/// Runs `tidelock policy-check` with the arguments after its name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let name = std::iter::once(OsString::from("tidelock policy-check"));
    let asked = match command().try_get_matches_from(name.chain(args)) {
        Ok(matches) => PolicyArguments::from_matches(&matches),
        Err(error) => return answer_bad_usage(&error),
    };
    // A kernel without such a limit leaves only the server's time limit.
    let limit = |most| Rlimit { current: Some(most), maximum: Some(most) };
    let _ = setrlimit(Resource::As, limit(MEMORY));
    let _ = setrlimit(Resource::Cpu, limit(PROCESSOR_TIME));
    let evaluating = std::thread::Builder::new().stack_size(STACK).spawn(move || checked(&asked));
    let checked = match evaluating.map(std::thread::JoinHandle::join) {
        Ok(Ok(checked)) => checked,
        Ok(Err(_)) => return print_result("", "Error: the evaluation broke off\n", NOT_EVALUATED),
        Err(error) => return print_result("", &format!("Error: {error}\n"), NOT_EVALUATED),
    };
    match checked {
        Ok((output, code)) => print_result(&output, "", code),
        Err(error) => print_result("", &format!("Error: {error:#}\n"), NOT_EVALUATED),
    }
}

/// Returns the text to print and the exit code.
fn checked(asked: &PolicyArguments) -> anyhow::Result<(String, u8)> {
    let mut reader = PolicyReader::new(asked.tree.as_deref())?;
    let evaluation = Evaluation {
        policies: reader.policies(&asked.policies)?,
        data: reader.data(&asked.data)?,
        input: reader.input(&asked.input)?,
        namespaces: (!asked.all_namespaces).then(|| asked.namespaces.clone()),
        rego_v0: asked.rego_v0,
    };
    let results = evaluate(evaluation)?;
    let output = match asked.json {
        true => print::json(&results, &asked.input)?,
        false => print::lines(&results, asked),
    };
    let failures = results.iter().any(|result| !result.failures.is_empty());
    let warnings = results.iter().any(|result| !result.warnings.is_empty());
    let code = match (asked.no_fail, asked.fail_on_warn) {
        (true, _) => 0,
        (false, true) if failures => 2,
        (false, true) => u8::from(warnings),
        (false, false) => u8::from(failures),
    };
    Ok((output, code))
}

impl PolicyArguments {
    fn from_matches(matches: &ArgMatches) -> PolicyArguments {
        let all = |name: &str| matches.get_many::<String>(name).into_iter().flatten().cloned().collect();
        let one = |name: &str| matches.get_one::<String>(name).cloned();
        PolicyArguments {
            policies: all("policy"),
            data: all("data"),
            namespaces: all("namespace"),
            all_namespaces: matches.get_flag("all-namespaces"),
            rego_v0: one("rego-version").as_deref() == Some("v0"),
            no_fail: matches.get_flag("no-fail"),
            fail_on_warn: matches.get_flag("fail-on-warn"),
            json: one("output").as_deref() == Some("json"),
            with_exceptions: !matches.get_flag("suppress-exceptions"),
            tree: one("tree").map(PathBuf::from),
            input: one("input").unwrap_or_default(),
        }
    }
}

/// Answers a command line that is not accepted: prints the help, or names what the engine does not support.
fn answer_bad_usage(error: &clap::Error) -> ExitCode {
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let text = match error.kind() {
        ErrorKind::DisplayHelp => return print_result(&error.to_string(), "", 0),
        ErrorKind::UnknownArgument => {
            format!(
                "Error: the built-in policy engine does not know `{}`. {OTHER_ENGINE}\n",
                named(ContextKind::InvalidArg)
            )
        }
        ErrorKind::InvalidValue => {
            let (flag, value) = (named(ContextKind::InvalidArg), named(ContextKind::InvalidValue));
            format!("Error: the built-in policy engine does not know `{value}` for {flag}. {OTHER_ENGINE}\n")
        }
        _ => error.to_string(),
    };
    print_result("", &text, NOT_EVALUATED)
}

fn print_result(output: &str, error: &str, code: u8) -> ExitCode {
    // Output that nobody reads does not change the exit code.
    let _ = std::io::stdout().write_all(output.as_bytes());
    let _ = std::io::stderr().write_all(error.as_bytes());
    ExitCode::from(code)
}
