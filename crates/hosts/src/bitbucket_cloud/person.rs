//! People. The host has no user names: everybody may change their own `nickname` and `display_name` to anything, so neither is read as a
//! login (developer.atlassian.com/cloud/bitbucket/bitbucket-api-changes-gdpr).

use tidelock_core::domain::Login;

/// Longest id of a person, in bytes.
const MAX_ID: usize = 128;

/// Person as the host describes them.
#[derive(Clone, Copy, Default)]
pub(super) struct ToldPerson<'a> {
    pub(super) account_id: Option<&'a str>,
    pub(super) uuid: Option<&'a str>,
    /// Name that people see.
    pub(super) display_name: Option<&'a str>,
}

/// Returns the login of a person: the account id, or else the UUID in its braces; unknown without a sound one.
pub(super) fn person(told: ToldPerson<'_>) -> Login {
    let account_id = told.account_id.filter(|id| is_account_id(id));
    let id = account_id.or(told.uuid.filter(|id| is_uuid(id)));
    id.map_or_else(Login::unknown, |id| Login::named(id, told.display_name.unwrap_or_default()))
}

/// Returns true if a text can be an account id, such as `557058:2a6349dc-4346`.
pub(super) fn is_account_id(text: &str) -> bool {
    let is_part = |char: char| char.is_ascii_alphanumeric() || ":-_".contains(char);
    !text.is_empty() && text.len() <= MAX_ID && text.chars().all(is_part)
}

/// Returns true if a text can be a UUID in braces.
pub(super) fn is_uuid(text: &str) -> bool {
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or_default();
    !inner.is_empty() && text.len() <= MAX_ID && inner.chars().all(|char| char.is_ascii_hexdigit() || char == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_an_id_and_never_a_name() {
        let (id, uuid) = ("557058:2a6349dc-4346-4805-bd84-3abdd0812d17", "{87bb15eb-47c1-49b3-9f16-ca824a2979a4}");
        let of = |account_id, uuid| person(ToldPerson { account_id, uuid, display_name: Some("Ann Smith") });
        assert_eq!(of(Some(id), Some(uuid)).as_str(), id);
        assert_eq!(of(None, Some(uuid)).as_str(), uuid);
        assert_eq!(of(Some(""), Some(uuid)).as_str(), uuid);
        assert_eq!(of(Some(id), None).shown(), "Ann Smith");
        let long = "a".repeat(MAX_ID + 1);
        for odd in ["", "Ann Smith", "{}", "a}b", "{x}", "../x", &long] {
            assert!(of(Some(odd), Some(odd)).is_unknown(), "{odd}");
        }
        assert!(of(None, None).is_unknown() && person(ToldPerson::default()).is_unknown());
    }
}
