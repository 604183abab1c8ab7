//! Names and sources in the code of a pull request, as far as they are literal.

use hcl::edit::expr::{Expression, Object, ObjectKey};
use hcl::edit::structure::Block;

pub(super) fn first_label(block: &Block) -> &str {
    block.labels.first().map(|label| label.as_str()).unwrap_or_default()
}

/// A value that is no literal text.
pub(super) struct NoLiteral;

/// Returns the `source` in an entry of `required_providers`, if it has one.
pub(super) fn required_source(object: &Object) -> Result<Option<String>, NoLiteral> {
    let mut found = None;
    for (key, value) in object.iter() {
        let key = match key {
            ObjectKey::Ident(name) => name.as_str(),
            ObjectKey::Expression(Expression::String(name)) => name.as_str(),
            ObjectKey::Expression(Expression::Variable(name)) => name.as_str(),
            ObjectKey::Expression(_) => return Err(NoLiteral),
        };
        if key == "source" {
            found = Some(value.expr().as_str().ok_or(NoLiteral)?.to_owned());
        }
    }
    Ok(found)
}

/// Returns the local name in the argument `provider`: `google` or `google.alias`.
pub(super) fn provider_name(value: &Expression) -> Option<String> {
    match value {
        Expression::Variable(name) => Some(name.as_str().to_owned()),
        Expression::Traversal(traversal) => traversal.expr.as_variable().map(|name| name.as_str().to_owned()),
        Expression::String(text) => name_in_json(text.as_str()),
        _ => None,
    }
}

/// Does the same for a text, which may have the form `${google.alias}`.
pub(super) fn name_in_json(text: &str) -> Option<String> {
    let inner = text.strip_prefix("${").and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let name = inner.split('.').next().unwrap_or_default().trim();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'));
    is_name.then(|| name.to_owned())
}

pub(super) fn is_literal(text: &str) -> bool {
    !text.contains("${") && !text.contains("%{")
}

/// Returns the local name of the provider that a type belongs to by default.
pub(super) fn type_prefix(kind: &str) -> &str {
    kind.split('_').next().unwrap_or(kind)
}
