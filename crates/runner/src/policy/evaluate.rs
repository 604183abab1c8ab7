//! Evaluates the rules to which conftest gives a meaning: `deny`, `violation` and `warn`, also with a suffix as in `deny_public`, and
//! `exception`.

use super::OTHER_ENGINE;
use super::input;
use super::load::PolicyText;
use super::regex_match::regex_match;
use anyhow::{Context as _, anyhow, bail, ensure};
use regorus::unstable::{Module, Rule, RuleHead};
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, Value};
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

/// Time limit of all rules together.
const TIME: Duration = Duration::from_secs(30);
/// Steps of the evaluation between two checks of the time limit.
const STEPS: NonZeroU32 = NonZeroU32::MIN.saturating_add(255);

/// Input of an evaluation.
pub(super) struct Evaluation {
    pub(super) policies: Vec<PolicyText>,
    pub(super) data: serde_json::Value,
    /// The plan, as JSON.
    pub(super) input: String,
    /// Packages to evaluate; absent for all.
    pub(super) namespaces: Option<Vec<String>>,
    pub(super) rego_v0: bool,
}

/// Message of a rule, with its metadata.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RuleFinding {
    pub(super) message: String,
    /// Other keys of an object that has `msg`, and the query.
    pub(super) metadata: serde_json::Map<String, serde_json::Value>,
}

/// Results of the rules of a package.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NamespaceResult {
    pub(super) namespace: String,
    pub(super) successes: usize,
    pub(super) warnings: Vec<RuleFinding>,
    pub(super) failures: Vec<RuleFinding>,
    pub(super) exceptions: Vec<RuleFinding>,
}

impl NamespaceResult {
    /// Number of tests, as conftest counts them.
    pub(super) fn tests(&self) -> usize {
        self.successes + self.warnings.len() + self.failures.len() + self.exceptions.len()
    }
}

pub(super) fn evaluate(evaluation: Evaluation) -> anyhow::Result<Vec<NamespaceResult>> {
    let mut engine = Engine::new();
    engine.set_rego_v0(evaluation.rego_v0);
    // A builtin that fails leaves its rule undefined, as in OPA.
    engine.set_strict_builtin_errors(false);
    engine.set_execution_timer_config(ExecutionTimerConfig { limit: TIME, check_interval: STEPS });
    engine.add_extension("regex.match".to_owned(), 2, regex_match())?;
    let keys = input::keys(&evaluation.policies);
    for PolicyText { path, text } in evaluation.policies {
        engine.add_policy(path.clone(), text).map_err(|error| explained(&error, &path))?;
    }
    let data = Value::from_json_str(&evaluation.data.to_string())?;
    engine.add_data(data).map_err(|error| explained(&error, "data"))?;
    let input = input::input(&evaluation.input, keys.as_ref())?;
    drop(evaluation.input);
    engine.set_input(input);
    let packages: Vec<(String, Vec<String>)> = engine.get_modules().iter().map(|module| rules(module)).collect();
    let namespaces: Vec<String> = match evaluation.namespaces {
        Some(named) => named,
        None => packages.iter().map(|(package, _)| package.clone()).collect::<BTreeSet<_>>().into_iter().collect(),
    };
    namespaces.into_iter().map(|namespace| of_namespace(&mut engine, namespace, &packages)).collect()
}

/// Returns the package of a module and the names of its rules that are evaluated, each as often as it is defined.
fn rules(module: &Module) -> (String, Vec<String>) {
    let package = module.package.refr.span().text().to_owned();
    let names = module.policy.iter().filter_map(|rule| {
        let refr = match rule.as_ref() {
            Rule::Spec { head: RuleHead::Compr { refr, .. } | RuleHead::Set { refr, .. }, .. } => refr,
            _ => return None,
        };
        let text = refr.span().text();
        let name = text.split(['.', '[', ' ']).next().unwrap_or(text);
        (is_named(name, &["deny", "violation"]) || is_named(name, &["warn"])).then(|| name.to_owned())
    });
    (package, names.collect())
}

/// Returns true if a rule's name is one of these, alone or followed by `_` and more.
fn is_named(name: &str, kinds: &[&str]) -> bool {
    kinds.iter().any(|kind| {
        name.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || (rest.len() > 1 && rest.starts_with('_')))
    })
}

fn of_namespace(
    engine: &mut Engine,
    namespace: String,
    packages: &[(String, Vec<String>)],
) -> anyhow::Result<NamespaceResult> {
    let all: Vec<&String> =
        packages.iter().filter(|(package, _)| *package == namespace).flat_map(|(_, names)| names).collect();
    let mut names: Vec<&String> = Vec::new();
    for name in &all {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let mut result = NamespaceResult { namespace, ..NamespaceResult::default() };
    let excepted = exceptions(engine, &result.namespace)?;
    for name in names {
        let kind = name.split('_').next().unwrap_or(name);
        let rule = name.strip_prefix(kind).unwrap_or_default().trim_start_matches('_');
        let found = findings(engine, &format!("data.{}.{name}", result.namespace))?;
        let times = excepted.iter().filter(|one| *one == rule).count();
        if times > 0 {
            let message = format!("data.{}.exception[_][_] == {rule:?}", result.namespace);
            let one = RuleFinding { message, metadata: serde_json::Map::new() };
            result.exceptions.extend(std::iter::repeat_n(one, times));
        } else if kind == "warn" {
            result.warnings.extend(found);
        } else {
            result.failures.extend(found);
        }
    }
    result.successes = all.len().saturating_sub(result.tests());
    Ok(result)
}

/// Returns the suffixes of rules that an `exception` names.
fn exceptions(engine: &mut Engine, namespace: &str) -> anyhow::Result<Vec<String>> {
    let Some(value) = value_of(engine, &format!("data.{namespace}.exception"))? else { return Ok(Vec::new()) };
    let values = members(&value).unwrap_or_default();
    let named = values.iter().filter_map(members).flatten();
    Ok(named.filter_map(|name| name.as_string().ok().map(|name| name.to_string())).collect())
}

/// Returns the value of a rule; absent if it is undefined, or there is no such rule.
fn value_of(engine: &mut Engine, rule: &str) -> anyhow::Result<Option<Value>> {
    match engine.eval_rule(rule.to_owned()) {
        Ok(Value::Undefined) => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(error) if error.to_string() == "not a valid rule path" => Ok(None),
        Err(error) => Err(explained(&error, rule)),
    }
}

/// Returns the members of a set or an array.
fn members(value: &Value) -> Option<Vec<Value>> {
    match value {
        Value::Set(set) => Some(set.iter().cloned().collect()),
        Value::Array(array) => Some(array.iter().cloned().collect()),
        _ => None,
    }
}

fn findings(engine: &mut Engine, rule: &str) -> anyhow::Result<Vec<RuleFinding>> {
    let Some(value) = value_of(engine, rule)? else { return Ok(Vec::new()) };
    let Some(members) = members(&value) else {
        // conftest takes every value that is not a list for passed. The author of `deny = true` or `deny[message] if …` does not mean that.
        let is_nothing = match &value {
            Value::Object(object) => object.is_empty(),
            other => matches!(other, Value::Bool(false) | Value::Null),
        };
        ensure!(
            is_nothing,
            "{rule} is {value}, which says nothing: make it a set of messages, such as `deny contains msg if {{ … }}`"
        );
        return Ok(Vec::new());
    };
    members.into_iter().map(|member| finding(member, rule)).collect()
}

fn finding(member: Value, rule: &str) -> anyhow::Result<RuleFinding> {
    let json: serde_json::Value =
        serde_json::to_value(&member).with_context(|| format!("{rule}: a message is no JSON"))?;
    let (message, mut metadata) = match json {
        serde_json::Value::String(message) => (message, serde_json::Map::new()),
        serde_json::Value::Object(mut object) => match object.remove("msg") {
            Some(serde_json::Value::String(message)) => (message, object),
            Some(_) => bail!("{rule}: `msg` of an object has to be a string"),
            None => bail!("{rule}: an object has no `msg`"),
        },
        other => bail!("{rule} has the member {other}: a message is a string, or an object with `msg`"),
    };
    metadata.insert("query".to_owned(), rule.into());
    Ok(RuleFinding { message, metadata })
}

/// Rewords an error of the engine for people. Names `about` if the engine gives no place.
fn explained(error: &anyhow::Error, about: &str) -> anyhow::Error {
    let text = format!("{error:#}").trim().to_owned();
    if text.contains("time limit") {
        return anyhow!("the policies took longer than {} s", TIME.as_secs());
    }
    let text = if text.contains("-->") { text } else { format!("{about}: {text}") };
    let lacks = ["could not find function", "unknown function", "undefined function", "builtin"];
    match lacks.iter().any(|words| text.contains(words)) {
        true => anyhow!("{text}\nThe built-in policy engine has no such function. {OTHER_ENGINE}"),
        false => anyhow!("{text}"),
    }
}
