//! Reads `ssl-cert-file` and `ssl-key-file`: the port speaks HTTPS with this pair.

use super::HttpsFiles;
use super::check::read_file;
use super::typed::Reader;

const CERTIFICATE: &str = "ssl-cert-file";
const KEY: &str = "ssl-key-file";

/// Reads both or neither. The server checks at the start that they belong together.
pub(super) fn files(r: &mut Reader) -> Option<HttpsFiles> {
    let (certificate, key) = match (r.path(CERTIFICATE), r.path(KEY)) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => return None,
        (Some(_), None) => {
            r.wrong(CERTIFICATE, format!("needs {KEY}: give both, or neither"));
            return None;
        }
        (None, Some(_)) => {
            r.wrong(KEY, format!("needs {CERTIFICATE}: give both, or neither"));
            return None;
        }
    };
    if let Err(error) = read_file(&certificate) {
        r.wrong(CERTIFICATE, error);
    }
    match read_file(&key) {
        Ok(text) => r.environment.secrets.push(text.trim().into()),
        Err(error) => r.wrong(KEY, error),
    }
    Some(HttpsFiles { certificate, key })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{invalid, loaded};

    #[test]
    fn certificate_and_key_come_together() {
        assert!(loaded(&[], &[]).https.is_none());
        let said = invalid(&["--ssl-cert-file=/etc/hostname"], &[]);
        assert!(said.contains("--ssl-cert-file needs ssl-key-file: give both, or neither"), "{said}");
        let said = invalid(&[], &[("ATLANTIS_SSL_KEY_FILE", "/etc/hostname")]);
        assert!(said.contains("ATLANTIS_SSL_KEY_FILE needs ssl-cert-file"), "{said}");
        let said = invalid(&["--ssl-cert-file=/nowhere/a.pem", "--ssl-key-file=/nowhere/b.pem"], &[]);
        assert!(said.contains("--ssl-cert-file names /nowhere/a.pem, which cannot be read"), "{said}");
        assert!(said.contains("--ssl-key-file names /nowhere/b.pem, which cannot be read"), "{said}");
    }

    #[test]
    fn links_are_https_then() {
        let pair = ["--ssl-cert-file=/etc/hosts", "--ssl-key-file=/etc/hosts"];
        let settings = loaded(&pair, &[]);
        assert!(settings.atlantis_url.starts_with("https://"), "{}", settings.atlantis_url);
    }
}
