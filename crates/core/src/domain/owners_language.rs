//! Languages of `CODEOWNERS`.

/// Language of a file `CODEOWNERS`, by what decides about a changed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnersLanguage {
    /// The last rule that matches it.
    LastRule,
    /// In each section the last rule that matches it. Owners of every section have to approve.
    Sections,
    /// Every rule that matches it. Patterns are regular expressions, and owners of each rule have to approve.
    EveryRule,
}
