//! All errors of a configuration file, not only the first.

use super::ConfigError;

/// Most errors of one file that are kept.
const MAX_ERRORS: usize = 20;

/// The errors of one file in the order of the file: at least one, if a parser returns them. Its text is that of the first.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.first())]
pub struct ConfigErrors {
    kept: Vec<ConfigError>,
    is_cut: bool,
}

impl ConfigErrors {
    /// Returns the errors that are kept.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.kept.iter()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns true if there are more errors than are kept.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn first(&self) -> &str {
        self.kept.first().map_or("", |error| &error.0)
    }

    /// Adds errors. One that an anchor repeats at the same place is added once.
    pub(super) fn add(&mut self, errors: impl Into<ConfigErrors>) {
        let ConfigErrors { kept, is_cut } = errors.into();
        self.is_cut |= is_cut;
        for error in kept {
            match self.kept.contains(&error) {
                true => {}
                false if self.kept.len() < MAX_ERRORS => self.kept.push(error),
                false => self.is_cut = true,
            }
        }
    }

    /// Returns the value of a result, or adds its errors.
    pub(super) fn take<T, E: Into<ConfigErrors>>(&mut self, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(error);
                None
            }
        }
    }

    /// Does the same with a key that may be absent.
    pub(super) fn key<T, E: Into<ConfigErrors>>(&mut self, key: Option<Result<T, E>>) -> Option<T> {
        key.and_then(|result| self.take(result))
    }

    /// Replaces a value by that of a key, if the file has it without an error.
    pub(super) fn set<T, E: Into<ConfigErrors>>(&mut self, to: &mut T, key: Option<Result<T, E>>) {
        if let Some(value) = self.key(key) {
            *to = value;
        }
    }

    /// Returns the value if there are no errors.
    pub(super) fn none_or<T>(mut self, value: T) -> Result<T, ConfigErrors> {
        if self.is_empty() {
            return Ok(value);
        }
        self.kept.sort_by_key(|error| place(&error.0));
        Err(self)
    }
}

/// Collects values of a list, or the errors of all its items.
pub(super) fn all<T, E: Into<ConfigErrors>>(items: impl Iterator<Item = Result<T, E>>) -> Result<Vec<T>, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let values = items.filter_map(|item| errors.take(item)).collect();
    errors.none_or(values)
}

/// Returns line and column at the beginning of a message, after the file's name, for the order of messages of one file.
fn place(message: &str) -> (u64, u64) {
    let (place, _) = message.split_once(": ").unwrap_or_default();
    let mut numbers = place.rsplit(':').map(|number| number.parse().unwrap_or_default());
    let column = numbers.next().unwrap_or_default();
    (numbers.next().unwrap_or_default(), column)
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> ConfigErrors {
        ConfigErrors { kept: vec![error], is_cut: false }
    }
}

impl From<ConfigErrors> for ConfigError {
    fn from(errors: ConfigErrors) -> ConfigError {
        errors.kept.into_iter().next().unwrap_or_else(|| ConfigError(String::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_in_the_order_of_the_file_and_bounded() {
        let error = |line: usize| ConfigError(format!("a:b/f.yaml:{line}:{}: x: y", 100 - line));
        let errors = all((1..=25).rev().chain([25]).map(|line| Err::<(), _>(error(line)))).unwrap_err();
        assert!(errors.is_cut());
        let kept: Vec<ConfigError> = errors.iter().cloned().collect();
        assert_eq!(kept, (6..=25).map(error).collect::<Vec<_>>());
        assert_eq!(errors.to_string(), error(6).0);
        assert_eq!(ConfigError::from(errors), error(6));
        assert_eq!(all([Ok::<_, ConfigError>(1), Ok(2)].into_iter()), Ok(vec![1, 2]));
    }
}
