//! A pipe from which a secret can be read repeatedly, for kernels without anonymous files in memory. Tests run it on
//! every kernel.

use secrecy::{ExposeSecret, SecretString};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::thread::{Builder, JoinHandle};

/// Answers `get` with the next copy: lines up to an empty one. A shell reads a pipe byte by byte, so it reads nothing
/// of the following copy.
pub(super) const CREDENTIAL_HELPER: &str = r#"!f() { test "$1" = get || return 0; while IFS= read -r line <&3 && test -n "$line"; do printf '%s\n' "$line"; done; }; f"#;

/// The same helper for the lines that begin with this number and a space.
#[cfg_attr(target_os = "linux", expect(dead_code, reason = "macOS alone calls it"))]
pub(super) fn numbered_credential_helper(number: usize) -> String {
    format!(
        r#"!f() {{ test "$1" = get || return 0; while IFS= read -r line <&3 && test -n "$line"; do case $line in "{number} "*) printf '%s\n' "${{line#{number} }}";; esac; done; }}; f"#
    )
}

/// Makes a pipe of copies of `secret`, each followed by an empty line. A thread refills it as long as it has readers.
pub(super) fn pipe(secret: &SecretString) -> io::Result<(OwnedFd, JoinHandle<()>)> {
    let (reader, mut writer) = io::pipe()?;
    let secret = secret.clone();
    let refill = move || {
        let text = secret.expose_secret().trim_end_matches('\n').as_bytes();
        while writer.write_all(text).and_then(|()| writer.write_all(b"\n\n")).is_ok() {}
    };
    Ok((reader.into(), Builder::new().name("secret".into()).spawn(refill)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Read};
    use std::process::{Command, Stdio};

    const SECRET: &str = "username=a\npassword=b \\n%s\n";

    /// Returns the output of the helper, called once for each of these words by the shell that git would use.
    fn helped(words: &str) -> (String, JoinHandle<()>) {
        let (pipe, thread) = pipe(&SecretString::from(SECRET)).unwrap();
        let helper = CREDENTIAL_HELPER.trim_start_matches('!');
        let script = format!("exec 3<&0 </dev/null; for word in {words}; do {helper} \"$word\" || exit 1; done");
        let done = Command::new("/bin/sh").arg("-c").arg(script).stdin(Stdio::from(pipe)).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        (String::from_utf8(done.stdout).unwrap(), thread)
    }

    #[test]
    fn the_helper_answers_each_get_whole_and_nothing_else() {
        assert_eq!(helped("get store erase get").0, SECRET.repeat(2));
        // More than a pipe holds.
        let times = (1 << 20) / SECRET.len();
        assert_eq!(helped(&"get ".repeat(200)).0, SECRET.repeat(200));
        let (mut pipe, _) =
            pipe(&SecretString::from(SECRET)).map(|(fd, thread)| (PipeReader::from(fd), thread)).unwrap();
        let mut read = vec![0; times * (SECRET.len() + 1)];
        pipe.read_exact(&mut read).unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), format!("{SECRET}\n").repeat(times));
    }

    #[test]
    fn the_secret_is_forgotten_when_its_readers_are_gone() {
        let (_, thread) = helped("get");
        thread.join().unwrap();
    }

    #[test]
    fn no_child_inherits_it() {
        let (pipe, _thread) = pipe(&SecretString::from(SECRET)).unwrap();
        let flags = rustix::io::fcntl_getfd(&pipe).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "{flags:?}");
    }
}
