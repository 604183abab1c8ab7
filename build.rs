//! Options of the linker that make the released program smaller.

use std::env;
use std::process::Command;

/// First glibc that reads packed relocations.
const PACKED_SINCE: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // Other profiles are linked again and again, and need not be small.
    if !is("PROFILE", "release") || !is("CARGO_CFG_TARGET_OS", "linux") || !is("CARGO_CFG_TARGET_ENV", "gnu") {
        return;
    }
    // A pointer in the tables of a position-independent program takes about a bit instead of 24 bytes more.
    if env::var("HOST") == env::var("TARGET") && glibc().is_some_and(|version| version >= PACKED_SINCE) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    // Functions with the same code are there once. Only lld can, the linker of rustc on this platform unless another one is asked for.
    let has_lld = is("CARGO_CFG_TARGET_ARCH", "x86_64") && env::var_os("RUSTC_LINKER").is_none();
    if has_lld && env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.is_empty()) {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// Returns the version of the C library of this machine.
fn glibc() -> Option<(u32, u32)> {
    let answer = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let version = String::from_utf8(answer.stdout).ok()?;
    let (major, minor) = version.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
