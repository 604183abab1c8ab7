//! Load of this machine, statistics, and files of many bytes.

use anyhow::{Context, Result};
use sha2::Digest;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use tidelock_vault::Hash;

/// Returns the load average and the number of cores.
pub(crate) fn load() -> Result<String> {
    let text = std::fs::read_to_string("/proc/loadavg").context("cannot read the load")?;
    let load = text.split(' ').next().unwrap_or_default();
    Ok(format!("load {load} on {} cores", std::thread::available_parallelism()?))
}

/// Returns the median; of an even number the later one of the middle two.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Returns bytes that look random, as compressed or encrypted contents do; the same for the same seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(move || {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    });
    let mut bytes: Vec<u8> = words.take(length.div_ceil(8)).flat_map(u64::to_le_bytes).collect();
    bytes.truncate(length);
    bytes
}

/// Returns text as Terraform prints it, of this length.
pub(crate) fn output(seed: u64, length: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + 200);
    let mut number = seed;
    while text.len() < length {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let line = format!(
            "module.network[\"eu-{}\"].google_compute_subnetwork.this[{}]: Refreshing state... [id=projects/acme/{:016x}]\n",
            number % 7,
            number % 31,
            number
        );
        text.extend_from_slice(line.as_bytes());
    }
    text.truncate(length);
    text
}

/// Returns the hash of every file below a directory, by its path there.
pub(crate) fn hashes(dir: &Path) -> Result<BTreeMap<String, Hash>> {
    let (mut found, mut open) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(dir)?.to_string_lossy().into_owned();
            found.insert(name, hash(&path)?);
        }
    }
    Ok(found)
}

fn hash(path: &Path) -> Result<Hash> {
    let mut file = std::fs::File::open(path)?;
    let (mut digest, mut buffer) = (sha2::Sha256::new(), vec![0; 256 << 10]);
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(Hash(digest.finalize().into()));
        }
        digest.update(buffer.get(..count).unwrap_or_default());
    }
}
