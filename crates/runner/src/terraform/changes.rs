//! What a plan changes, as a digest of `show -json`: two plans of the same code have the same one where they change the same.
//! Pure.
//!
//! In it are all changes of resources and outputs, the actions that an apply invokes, the values of all variables, which decide what the
//! apply alone knows, and how providers are configured, since the same change elsewhere is another one. Not in it are what stays as it is, the state before, versions, times, and the order of keys and of
//! changes. It does not tell everything that decides what an apply does: whoever compares binds the code too (`runner/local/code.rs`).
//! A plan's values may be secret and easy to guess: the digest is keyed, with a key that is made for the comparison alone.

use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Levels of lists and objects within a value. Each level is read once more.
const MAX_DEPTH: usize = 64;
/// Beginnings of `format_version` whose parts are known.
const FORMATS: [&str; 2] = ["0.", "1."];
/// Separates this digest from any other use of its key.
const LABEL: &[u8] = b"tidelock plan changes 2";
/// Bytes of each part of a digest: nobody finds a second text for one without its key.
const PART: usize = 16;

/// Parts of a plan in JSON. What is not named here says nothing of what an apply does.
#[derive(Deserialize)]
struct ShownPlan<'a> {
    format_version: String,
    #[serde(borrow, default)]
    resource_changes: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    output_changes: BTreeMap<String, &'a RawValue>,
    #[serde(borrow, default)]
    action_invocations: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    deferred_changes: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    deferred_action_invocations: Vec<&'a RawValue>,
    #[serde(borrow)]
    configuration: &'a RawValue,
    #[serde(borrow, default)]
    variables: BTreeMap<String, &'a RawValue>,
}

#[derive(Deserialize)]
struct ShownConfiguration<'a> {
    #[serde(borrow, default)]
    provider_config: Option<&'a RawValue>,
}

/// A resource's change, as far as it says whether anything happens.
#[derive(Deserialize)]
struct ShownChange {
    previous_address: Option<IgnoredAny>,
    change: ChangeActions,
}

#[derive(Deserialize)]
struct ChangeActions {
    actions: Vec<String>,
    importing: Option<IgnoredAny>,
}

impl ChangeActions {
    fn does_nothing(&self) -> bool {
        self.importing.is_none() && self.actions.iter().all(|action| action == "no-op")
    }
}

/// The digest of a plan: a part for what it changes, one for the values of its variables, and one for each of `bound`, which is what else
/// has to be the same; hex, with dots between. An error where the text is not what `show -json` prints of a plan. The error says nothing of
/// values.
pub fn digest(shown: &str, key: &str, bound: &[String]) -> Result<String, String> {
    let plan: ShownPlan<'_> = serde_json::from_str(shown).map_err(|error| problem(&error))?;
    if !FORMATS.iter().any(|known| plan.format_version.starts_with(known)) {
        return Err("its format is a newer one".to_owned());
    }
    // Code may read a file of that name, and its own files tell nothing of it.
    if let Some((name, _)) = plan.variables.iter().find(|(_, value)| value.get().contains("../")) {
        return Err(format!("the value of its variable `{name}` names files of other directories"));
    }
    let [invoked, deferred, deferred_actions] =
        [&plan.action_invocations, &plan.deferred_changes, &plan.deferred_action_invocations].map(|list| all(list));
    let (resources, outputs) = (resources(&plan.resource_changes)?, outputs(&plan.output_changes)?);
    let changes = [resources, outputs, providers(&plan)?, invoked?, deferred?, deferred_actions?];
    let variables: Digests = plan.variables.iter().map(|(name, value)| named(name, value)).collect::<Result<_, _>>()?;
    let mut parts = vec![keyed(key, &changes.map(|part| part.concat()))?, keyed(key, &[variables.concat()])?];
    for part in bound {
        parts.push(keyed(key, &[part.as_bytes()])?);
    }
    Ok(parts.join("."))
}

/// A part of a digest.
fn keyed(key: &str, texts: &[impl AsRef<[u8]>]) -> Result<String, String> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key.as_bytes()).map_err(|error| error.to_string())?;
    mac.update(LABEL);
    texts.iter().for_each(|text| mac.update(&tagged(b'b', text.as_ref())));
    Ok(hex::encode(&mac.finalize().into_bytes()[..PART]))
}

/// Where it is not what it should be; serde's own words may quote a value.
fn problem(error: &serde_json::Error) -> String {
    format!("it is no plan in JSON (line {}, column {})", error.line(), error.column())
}

/// A part of a plan, without its order.
type Digests = Vec<[u8; 32]>;

fn resources(changes: &[&RawValue]) -> Result<Digests, String> {
    let mut part = Vec::with_capacity(changes.len());
    for change in changes {
        let read: ShownChange = serde_json::from_str(change.get()).map_err(|error| problem(&error))?;
        if read.previous_address.is_some() || !read.change.does_nothing() {
            part.push(of_value(change)?);
        }
    }
    part.sort_unstable();
    Ok(part)
}

fn outputs(changes: &BTreeMap<String, &RawValue>) -> Result<Digests, String> {
    let mut part = Vec::with_capacity(changes.len());
    for (name, change) in changes {
        let read: ChangeActions = serde_json::from_str(change.get()).map_err(|error| problem(&error))?;
        if !read.does_nothing() {
            part.push(named(name, change)?);
        }
    }
    Ok(part)
}

/// How providers are configured.
fn providers(plan: &ShownPlan<'_>) -> Result<Digests, String> {
    let configuration = plan.configuration.get();
    let configuration: ShownConfiguration<'_> = serde_json::from_str(configuration).map_err(|error| problem(&error))?;
    configuration.provider_config.into_iter().map(of_value).collect()
}

fn all(list: &[&RawValue]) -> Result<Digests, String> {
    let mut part = list.iter().map(|value| of_value(value)).collect::<Result<Digests, String>>()?;
    part.sort_unstable();
    Ok(part)
}

fn named(name: &str, value: &RawValue) -> Result<[u8; 32], String> {
    let mut text = tagged(b's', name.as_bytes());
    write(value, 0, &mut text)?;
    Ok(Sha256::digest(&text).into())
}

fn of_value(value: &RawValue) -> Result<[u8; 32], String> {
    let mut text = Vec::with_capacity(value.get().len());
    write(value, 0, &mut text)?;
    Ok(Sha256::digest(&text).into())
}

/// A kind, a length, and that many bytes: parts cannot run into each other.
fn tagged(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u64).to_be_bytes();
    [&[kind], length.as_slice(), bytes].concat()
}

/// Writes a value in its one form: keys in their order, strings without escapes, numbers digit by digit as they are.
fn write(value: &RawValue, depth: usize, out: &mut Vec<u8>) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("it has values of more than {MAX_DEPTH} levels"));
    }
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'{') => {
            let object: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(|error| problem(&error))?;
            out.push(b'o');
            out.extend((object.len() as u64).to_be_bytes());
            for (key, value) in object {
                out.extend(tagged(b's', key.as_bytes()));
                write(value, depth + 1, out)?;
            }
        }
        Some(b'[') => {
            let list: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| problem(&error))?;
            out.push(b'a');
            out.extend((list.len() as u64).to_be_bytes());
            list.into_iter().try_for_each(|value| write(value, depth + 1, out))?;
        }
        Some(b'"') => {
            let string: String = serde_json::from_str(text).map_err(|error| problem(&error))?;
            out.extend(tagged(b's', string.as_bytes()));
        }
        _ => out.extend(tagged(b'v', text.as_bytes())),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
