//! Digest of a plan's changes, from `show -json`: two plans of the same code that change the same have the same digest. Pure.
//!
//! The digest covers all changes of resources and outputs, and the actions that an apply invokes. It also covers the values of all
//! variables, which determine values known only at apply, and the configuration of providers, since the same change elsewhere is a
//! different one. It does not cover unchanged resources, the state before, versions, times, and the order of keys and of changes. Other
//! things also determine an apply, so the caller has to bind the code too (`runner/local/code.rs`). A plan's values may be secret and easy
//! to guess, so the digest is keyed, with a key that is made for the comparison only.

use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Most levels of lists and objects within a value. Each level is parsed once more.
const MAX_DEPTH: usize = 64;
/// Prefixes of `format_version` whose parts are known.
const FORMATS: [&str; 2] = ["0.", "1."];
/// Separates this digest from any other use of its key.
const LABEL: &[u8] = b"tidelock plan changes 2";
/// Bytes of each part of a digest, enough to prevent a second text with the same digest, as long as the key is secret.
const PART: usize = 16;

/// Parts of a plan in JSON. Other parts do not determine an apply.
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

/// A resource's change, reduced to the fields that show if anything happens.
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

/// Returns the digest of a plan, in hex with dots between its parts. One part covers the plan's changes, one the values of its variables,
/// and one each member of `bound`, which also has to be the same. Fails if the text is not the output of `show -json` for a plan. The error
/// contains no values.
pub fn digest(shown: &str, key: &str, bound: &[String]) -> Result<String, String> {
    let plan: ShownPlan<'_> = serde_json::from_str(shown).map_err(|error| problem(&error))?;
    if !FORMATS.iter().any(|known| plan.format_version.starts_with(known)) {
        return Err("its format is a newer one".to_owned());
    }
    // Code may read a file of that name, and the digest of its own files does not cover it.
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

/// Returns a part of a digest.
fn keyed(key: &str, texts: &[impl AsRef<[u8]>]) -> Result<String, String> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key.as_bytes()).map_err(|error| error.to_string())?;
    mac.update(LABEL);
    texts.iter().for_each(|text| mac.update(&tagged(b'b', text.as_ref())));
    Ok(hex::encode(&mac.finalize().into_bytes()[..PART]))
}

/// Returns an error with the place of the problem. serde's own text may quote a value.
fn problem(error: &serde_json::Error) -> String {
    format!("it is no plan in JSON (line {}, column {})", error.line(), error.column())
}

/// Digests of the members of a part of a plan, without their order.
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

/// Returns the digest of the configuration of providers.
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

/// Prefixes bytes with a kind and their length, so that adjacent parts stay distinct.
fn tagged(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u64).to_be_bytes();
    [&[kind], length.as_slice(), bytes].concat()
}

/// Writes a value in canonical form: sorted keys, strings without escapes, numbers digit by digit as they are.
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
