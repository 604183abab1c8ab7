//! People, whom the host knows by the name that they sign in with. Only an administrator changes it; the host ignores its case.

use tidelock_core::domain::Login;

/// Longest name, in bytes (`RestApplicationUser.name`: a column of 255 characters).
const MAX_NAME: usize = 255;

/// Returns the login of a person; unknown without a sound name.
pub(super) fn login(name: Option<&str>) -> Login {
    let is_sound =
        |name: &&str| !name.trim().is_empty() && name.len() <= MAX_NAME && !name.chars().any(char::is_control);
    name.filter(is_sound).map_or_else(Login::unknown, Login::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_a_name_to_sign_in_with() {
        assert_eq!(login(Some("ann@example.com")).as_str(), "ann@example.com");
        let long = "a".repeat(MAX_NAME + 1);
        for odd in [None, Some(""), Some("  "), Some("a\nb"), Some(long.as_str())] {
            assert!(login(odd).is_unknown(), "{odd:?}");
        }
    }
}
