//! How the program is linked.

#[expect(clippy::print_stdout, reason = "cargo reads it")]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        // Relocations as a list of bits: a table of 1.8 MB that every start reads, and keeps in memory, becomes one of some kilobytes. It needs
        // glibc 2.36, as releases do anyway; an older linker leaves it out with a warning.
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
