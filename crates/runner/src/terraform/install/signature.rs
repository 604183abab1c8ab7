//! Detached OpenPGP signatures of checksum files.

use anyhow::{Context, bail};
use pgp::composed::{Deserializable, DetachedSignature, SignedPublicKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::SignatureType;
use std::io::Cursor;

/// HashiCorp's key; crates/runner/src/terraform/keys/README.md names its source.
pub(super) const HASHICORP: &str = include_str!("../keys/hashicorp.asc");
/// OpenTofu's key.
pub(super) const OPENTOFU: &str = include_str!("../keys/opentofu.asc");
/// Most signatures that are read from a file.
const MOST_SIGNATURES: usize = 16;

/// Checks that one of the signatures of `content` is by one of these armored keys. The error gives the reason.
pub(super) fn verify(content: &[u8], signatures: &[u8], keys: &[String]) -> anyhow::Result<()> {
    let keys = keys.iter().map(|key| read_key(key)).collect::<anyhow::Result<Vec<_>>>()?;
    for signature in read_signatures(signatures)? {
        // Only signatures over files count, and only with collision-resistant hashes.
        let strong = matches!(
            signature.signature.hash_alg(),
            Some(HashAlgorithm::Sha256 | HashAlgorithm::Sha384 | HashAlgorithm::Sha512)
        );
        if signature.signature.typ() != Some(SignatureType::Binary) || !strong {
            continue;
        }
        for key in &keys {
            let by_subkey = key.public_subkeys.iter().any(|subkey| {
                subkey.signatures.iter().any(|binding| binding.key_flags().sign())
                    && signature.verify(&subkey.key, content).is_ok()
            });
            if by_subkey || signature.verify(&key.primary_key, content).is_ok() {
                return Ok(());
            }
        }
    }
    bail!("the signature is not by a key that is trusted here, or the file was changed")
}

fn read_key(armored: &str) -> anyhow::Result<SignedPublicKey> {
    let (key, _) = SignedPublicKey::from_string(armored).context("a public key cannot be read")?;
    key.verify_bindings().context("a public key is damaged")?;
    Ok(key)
}

fn read_signatures(bytes: &[u8]) -> anyhow::Result<Vec<DetachedSignature>> {
    let unreadable = "the signature cannot be read";
    let found: Result<Vec<_>, _> = if bytes.starts_with(b"-----BEGIN") {
        DetachedSignature::from_armor_many(Cursor::new(bytes)).context(unreadable)?.0.take(MOST_SIGNATURES).collect()
    } else {
        DetachedSignature::from_bytes_many(Cursor::new(bytes)).context(unreadable)?.take(MOST_SIGNATURES).collect()
    };
    found.context(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_that_are_built_in_are_whole_and_can_sign() {
        for (text, fingerprint) in [
            (HASHICORP, "c874011f0ab405110d02105534365d9472d7468f"),
            (OPENTOFU, "e3e6e43d84cb852eadb0051d0c0af313e5fd9f80"),
        ] {
            use pgp::types::KeyDetails;
            let key = read_key(text).unwrap();
            assert_eq!(key.primary_key.fingerprint().to_string(), fingerprint);
        }
    }
}
