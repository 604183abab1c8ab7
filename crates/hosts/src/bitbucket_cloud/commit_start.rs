//! First digits of commits: the host cuts the heads of pull requests to twelve digits, in deliveries and in the API
//! (github.com/drone/go-scm, `scm/driver/bitbucket/testdata/pr.json`).

/// Fewest digits that stand for a commit.
const FEWEST: usize = 12;
/// Most digits of a commit.
const MOST: usize = 64;

/// Returns true if a text can be the first digits of a commit, or all of them.
pub(super) fn is_start(text: &str) -> bool {
    (FEWEST..=MOST).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_or_odd_digits_stand_for_no_commit() {
        assert!(is_start("507a576e59b3") && is_start(&"a".repeat(40)));
        for odd in ["", "507a576", "507A576E59B3", "507a576e59b3/..", &"a".repeat(65)] {
            assert!(!is_start(odd), "{odd}");
        }
    }
}
