//! Comparison of received text with a secret of the server.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Returns true if both texts are the same. It compares SHA-256 digests, so that the time does not reveal how many bytes match.
pub fn is_same(known: &str, given: &str) -> bool {
    Sha256::digest(known).as_slice().ct_eq(Sha256::digest(given).as_slice()).into()
}

/// Returns true if this is the secret, compared in the same way. An empty secret never matches.
pub fn is_secret(secret: &str, given: &str) -> bool {
    is_same(secret, given) & !secret.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_equal_to_itself_alone_and_an_empty_one_to_nothing() {
        assert!(is_secret("hunter2", "hunter2"));
        for given in ["", "hunter", "hunter2 ", "Hunter2", "hunter3", "hunter2hunter2"] {
            assert!(!is_secret("hunter2", given), "{given}");
        }
        assert!(!is_secret("", "") && is_same("", "") && !is_same("a", "b"));
    }
}
