//! The heading above the block of a resource: `  # module.a.x.y["k"] must be replaced`.

use super::PlannedChange;
use crate::domain::outcome::ResourceAction;

/// Parses a line. A forgotten resource has one space in front, all others have two; values are indented deeper.
pub(super) fn parse(line: &str) -> Option<PlannedChange<'_>> {
    let text = line.strip_prefix(' ')?;
    let text = text.strip_prefix(' ').unwrap_or(text).strip_prefix("# ")?.trim_end();
    let (address, mut said) = text.split_at(address_end(text)?);
    let mut deposed = None;
    if let Some(rest) = said.strip_prefix(" (deposed object ") {
        let (id, after) = rest.split_once(')')?;
        (deposed, said) = (Some(id), after);
    }
    let said = said.strip_prefix(' ')?;
    if let Some(new) = said.strip_prefix("has moved to ") {
        return Some(PlannedChange { address: new, action: Some(ResourceAction::Move), deposed, said: text });
    }
    let is_address = address.starts_with(|c: char| c.is_alphanumeric() || c == '_') && address.contains('.');
    is_address.then(|| PlannedChange { address, action: action(said), deposed, said })
}

/// Returns the action that a heading tells after the address.
fn action(said: &str) -> Option<ResourceAction> {
    let Some(what) = said.strip_prefix("will be ") else {
        let starts = [
            ("must be replaced", ResourceAction::Replace),
            ("is tainted, so", ResourceAction::Replace),
            ("will no longer be managed by ", ResourceAction::Forget),
        ];
        return starts.into_iter().find(|(start, _)| said.starts_with(start)).map(|(_, action)| action);
    };
    Some(match what.split([' ', ',']).next()? {
        "created" => ResourceAction::Create,
        "updated" => ResourceAction::Update,
        "destroyed" => ResourceAction::Destroy,
        "replaced" => ResourceAction::Replace,
        "read" => ResourceAction::Read,
        "imported" => ResourceAction::Import,
        "removed" if what.contains("but will not be destroyed") => ResourceAction::Forget,
        _ => return None,
    })
}

/// Returns the place of the first character that is outside of quotes and brackets and that `ends` accepts. Keys of `for_each` may have
/// any character.
fn end_where(text: &str, ends: impl Fn(u8) -> bool) -> Option<usize> {
    let (mut quoted, mut escaped, mut bracket) = (false, false, false);
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' if !quoted => bracket = true,
            b']' if !quoted => bracket = false,
            _ if !quoted && !bracket && ends(byte) => return Some(place),
            _ => {}
        }
    }
    None
}

fn address_end(text: &str) -> Option<usize> {
    end_where(text, |byte| byte == b' ')
}

/// Returns the length of the first part of an address; `None` if no other follows.
pub(super) fn part_end(address: &str) -> Option<usize> {
    end_where(address, |byte| byte == b'.')
}
