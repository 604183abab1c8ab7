//! Errors on the types' side of [`super::erased`].

use serde::de::{Expected, Unexpected};
use std::fmt;

/// The type's half of an error. In a box, since every call returns one.
#[derive(Debug)]
pub(super) struct TypeError(Box<TypeProblem>);

#[derive(Debug)]
pub(super) enum TypeProblem {
    /// The parser's half has it.
    Passed,
    Custom(String),
    Type(String, String),
    Value(String, String),
    Length(usize, String),
    Variant(String, &'static [&'static str]),
    Field(String, &'static [&'static str]),
    Missing(&'static str),
}

impl TypeError {
    /// Returns it as an error of the parser. Its position is that of the call in which this happens.
    pub(super) fn raise<E: serde::de::Error>(self, passed: Option<E>) -> E {
        match *self.0 {
            TypeProblem::Passed => passed.unwrap_or_else(nothing),
            TypeProblem::Custom(message) => E::custom(message),
            TypeProblem::Type(found, expected) => E::invalid_type(Unexpected::Other(&found), &expected.as_str()),
            TypeProblem::Value(found, expected) => E::invalid_value(Unexpected::Other(&found), &expected.as_str()),
            TypeProblem::Length(length, expected) => E::invalid_length(length, &expected.as_str()),
            TypeProblem::Variant(name, known) => E::unknown_variant(&name, known),
            TypeProblem::Field(name, known) => E::unknown_field(&name, known),
            TypeProblem::Missing(name) => E::missing_field(name),
        }
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for TypeError {}

impl serde::de::Error for TypeError {
    fn custom<T: fmt::Display>(message: T) -> TypeError {
        TypeProblem::Custom(message.to_string()).into()
    }
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> TypeError {
        TypeProblem::Type(found.to_string(), expected.to_string()).into()
    }
    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> TypeError {
        TypeProblem::Value(found.to_string(), expected.to_string()).into()
    }
    fn invalid_length(length: usize, expected: &dyn Expected) -> TypeError {
        TypeProblem::Length(length, expected.to_string()).into()
    }
    fn unknown_variant(name: &str, known: &'static [&'static str]) -> TypeError {
        TypeProblem::Variant(name.to_owned(), known).into()
    }
    fn unknown_field(name: &str, known: &'static [&'static str]) -> TypeError {
        TypeProblem::Field(name.to_owned(), known).into()
    }
    fn missing_field(name: &'static str) -> TypeError {
        TypeProblem::Missing(name).into()
    }
}

impl From<TypeProblem> for TypeError {
    fn from(problem: TypeProblem) -> TypeError {
        TypeError(Box::new(problem))
    }
}

/// Returns an error that only a mistake in this module can cause.
pub(super) fn nothing<E: serde::de::Error>() -> E {
    E::custom("nothing was read")
}
