//! Workflows as they are written in YAML. A step has several forms, so its deserializer is written by hand.

use crate::config::quoted;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawWorkflow {
    pub(super) plan: Option<RawStage>,
    pub(super) apply: Option<RawStage>,
    pub(super) policy_check: Option<RawStage>,
    pub(super) import: Option<RawStage>,
    pub(super) state_rm: Option<RawStage>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStage {
    pub(super) steps: Option<Vec<Spanned<RawStep>>>,
}

#[derive(Debug, Clone)]
pub(super) enum RawStep {
    Bare(String),
    Builtin { name: String, extra_args: Vec<String> },
    Run(RawRun),
    Multienv(RawRun),
    Env(RawEnv),
}

#[derive(Debug, Clone, Default)]
pub(super) struct RawRun {
    pub(super) command: Option<String>,
    pub(super) shell: Option<String>,
    pub(super) shell_args: Option<Words>,
    pub(super) output: Option<OneOrMany<RawOutput>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEnv {
    pub(super) name: Option<String>,
    pub(super) value: Option<String>,
    pub(super) command: Option<String>,
    pub(super) shell: Option<String>,
    #[serde(rename = "shellArgs")]
    pub(super) shell_args: Option<Words>,
}

/// One entry of `run.output`.
#[derive(Debug, Clone)]
pub(super) enum RawOutput {
    Named(String),
    FilterRegex(Vec<String>),
}

/// One value, or a list of them.
#[derive(Debug, Clone)]
pub(in crate::config) struct OneOrMany<T>(pub(in crate::config) Vec<T>);

/// Text that is split on single spaces, or a list.
#[derive(Debug, Clone)]
pub(in crate::config) struct Words(pub(in crate::config) Vec<String>);

/// Scalars as seen by a visitor that accepts several types.
macro_rules! scalars {
    ($wrap:expr) => {
        fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
            Ok($wrap(value.to_owned()))
        }
        fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
            Ok($wrap(value.to_string()))
        }
        fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
            Ok($wrap(value.to_string()))
        }
        fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
            Ok($wrap(value.to_string()))
        }
        fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
            Ok($wrap(value.to_string()))
        }
    };
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Words, D::Error> {
        struct WordsVisitor;
        impl<'de> Visitor<'de> for WordsVisitor {
            type Value = Words;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or a list of texts")
            }
            scalars!(|text: String| Words(
                text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
            ));
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Words, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = seq.next_element()? {
                    words.push(word);
                }
                Ok(Words(words))
            }
        }
        deserializer.deserialize_any(WordsVisitor)
    }
}

impl<'de> Deserialize<'de> for RawOutput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawOutput, D::Error> {
        struct OutputVisitor;
        impl<'de> Visitor<'de> for OutputVisitor {
            type Value = RawOutput;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`show`, `hide`, `strip_refreshing` or `filter_regex: REGEX`")
            }
            scalars!(RawOutput::Named);
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawOutput, A::Error> {
                let Some(key) = map.next_key::<String>()? else {
                    return Err(A::Error::custom("an output filter needs the key `filter_regex`"));
                };
                if key != "filter_regex" {
                    return Err(A::Error::unknown_field(&key, &["filter_regex"]));
                }
                let OneOrMany(patterns) = map.next_value::<OneOrMany<String>>()?;
                match map.next_key::<String>()? {
                    Some(key) => Err(A::Error::unknown_field(&key, &["filter_regex"])),
                    None => Ok(RawOutput::FilterRegex(patterns)),
                }
            }
        }
        deserializer.deserialize_any(OutputVisitor)
    }
}

impl<'de> Deserialize<'de> for OneOrMany<String> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextsVisitor;
        impl<'de> Visitor<'de> for TextsVisitor {
            type Value = OneOrMany<String>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or a list of texts")
            }
            scalars!(|text: String| OneOrMany(vec![text]));
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = seq.next_element()? {
                    all.push(one);
                }
                Ok(OneOrMany(all))
            }
        }
        deserializer.deserialize_any(TextsVisitor)
    }
}

impl<'de> Deserialize<'de> for OneOrMany<RawOutput> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OutputsVisitor;
        impl<'de> Visitor<'de> for OutputsVisitor {
            type Value = OneOrMany<RawOutput>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`show`, `hide`, `strip_refreshing`, or a list of them and of `filter_regex: REGEX`")
            }
            scalars!(|text: String| OneOrMany(vec![RawOutput::Named(text)]));
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let one = RawOutput::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(OneOrMany(vec![one]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = seq.next_element()? {
                    all.push(one);
                }
                Ok(OneOrMany(all))
            }
        }
        deserializer.deserialize_any(OutputsVisitor)
    }
}

impl<'de> Deserialize<'de> for RawRun {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawRun, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Mapping {
            command: Option<String>,
            shell: Option<String>,
            #[serde(rename = "shellArgs")]
            shell_args: Option<Words>,
            output: Option<OneOrMany<RawOutput>>,
        }
        struct RunVisitor;
        impl<'de> Visitor<'de> for RunVisitor {
            type Value = RawRun;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a command, or a mapping with `command`")
            }
            scalars!(|text: String| RawRun { command: Some(text), ..RawRun::default() });
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawRun, A::Error> {
                let Mapping { command, shell, shell_args, output } =
                    Mapping::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(RawRun { command, shell, shell_args, output })
            }
        }
        deserializer.deserialize_any(RunVisitor)
    }
}

/// The value of a built-in step's key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    extra_args: Option<Vec<String>>,
}

impl<'de> Deserialize<'de> for RawStep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawStep, D::Error> {
        struct StepVisitor;
        impl<'de> Visitor<'de> for StepVisitor {
            type Value = RawStep;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a step: its name, or a mapping with exactly one key")
            }
            scalars!(RawStep::Bare);
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawStep, A::Error> {
                let Some(key) = map.next_key::<String>()? else {
                    return Err(A::Error::custom("a step has exactly one key, this one has none"));
                };
                let step = match key.as_str() {
                    "run" => RawStep::Run(map.next_value()?),
                    "multienv" => RawStep::Multienv(map.next_value()?),
                    "env" => RawStep::Env(map.next_value()?),
                    name if super::BUILTIN_STEPS.contains(&name) => {
                        let arguments = map.next_value::<Option<Arguments>>()?;
                        let extra_args = arguments.and_then(|arguments| arguments.extra_args).unwrap_or_default();
                        RawStep::Builtin { name: key.clone(), extra_args }
                    }
                    _ => {
                        let known = super::BUILTIN_STEPS.join(", ");
                        return Err(A::Error::custom(format!(
                            "unknown step `{}`; known: {known}, run, env, multienv",
                            quoted(&key)
                        )));
                    }
                };
                match map.next_key::<String>()? {
                    Some(other) if key == "run" && ["output", "shell", "shellArgs"].contains(&other.as_str()) => {
                        Err(A::Error::custom(format!(
                            "`{other}` is a key of `run`, and not beside it: write `run: {{command: …, {other}: …}}`"
                        )))
                    }
                    Some(other) => Err(A::Error::custom(format!(
                        "a step has exactly one key, this one has `{key}` and `{}`; begin the second with `- `",
                        quoted(&other)
                    ))),
                    None => Ok(step),
                }
            }
        }
        deserializer.deserialize_any(StepVisitor)
    }
}

/// Named workflows of a file.
pub(in crate::config) type RawWorkflows = BTreeMap<String, Option<RawWorkflow>>;
