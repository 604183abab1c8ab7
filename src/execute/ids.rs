//! Random ids.

/// Returns 128 random bits, in hex.
pub(crate) fn random_id() -> String {
    format!("{:032x}", random_bits())
}

/// Returns random bits for ids of runs, jobs, plans and replies.
pub(crate) fn random_bits() -> u128 {
    let mut bytes = [0_u8; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u128::from_be_bytes(bytes),
        // The kernel's generator is never missing on a platform that we run on; an abort beats a guessable id.
        Err(_) => std::process::abort(),
    }
}
