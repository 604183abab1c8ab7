//! `tidelock vault ls`: lists the lease, the states and the objects of a bucket.

use super::{OutputFormat, Report};
use crate::domain::size;
use crate::vault::Vault;
use crate::vault::inventory::{Entry, Inventory};
use anyhow::Result;
use std::fmt::Write;

/// Maximum number of foreign object names in the output.
const OTHERS: usize = 5;

/// Lists the bucket with the last `limit` journal objects; 0 for all.
pub(super) async fn run(vault: &Vault, limit: usize, format: OutputFormat) -> Result<Report> {
    let mut inventory = vault.inventory().await?;
    let (objects, bytes) = (inventory.journal.len(), inventory.journal.iter().map(|entry| entry.size).sum());
    let skipped = if limit == 0 { 0 } else { objects.saturating_sub(limit) };
    inventory.journal.drain(..skipped);
    let text = match format {
        OutputFormat::Json => serde_json::to_string_pretty(&inventory)? + "\n",
        OutputFormat::Text => render(&inventory, objects, bytes)?,
    };
    Ok(Report { text, well: true })
}

/// Formats ranges of states as text.
pub(super) fn states(restorable: &[(u64, u64)]) -> String {
    let ranges: Vec<String> = restorable.iter().map(|(from, to)| format!("{from} to {to}")).collect();
    ranges.join(", ")
}

fn render(inventory: &Inventory, objects: usize, bytes: u64) -> Result<String, std::fmt::Error> {
    let mut text = format!("Bucket   {}\n", inventory.location);
    match &inventory.lease {
        None => writeln!(text, "Lease    nobody has led here yet")?,
        Some(lease) => match &lease.holder {
            None => writeln!(text, "Lease    free; epoch {} was the last", lease.epoch)?,
            Some(holder) => {
                let url = if holder.url.is_empty() { String::new() } else { format!(", {}", holder.url) };
                let version = &holder.version;
                writeln!(text, "Lease    epoch {}: {}{url}, version {version}", lease.epoch, holder.machine)?;
            }
        },
    }
    let states = states(&inventory.restorable);
    writeln!(text, "States   {}  (for --at)", if states.is_empty() { "none yet" } else { &states })?;
    writeln!(text, "Inbox    {} waiting", inventory.inbox)?;
    if inventory.jobs > 0 {
        writeln!(text, "Jobs     {} with objects", inventory.jobs)?;
    }
    if !inventory.others.is_empty() {
        let named = inventory.others.iter().take(OTHERS).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        writeln!(text, "Others   {}, left alone: {named}", inventory.others.len())?;
    }
    if !inventory.bases.is_empty() {
        writeln!(text, "\nBases")?;
        table(&mut text, &inventory.bases)?;
    }
    if objects > 0 {
        let shown = match inventory.journal.len() {
            all if all == objects => String::new(),
            last => format!("; the last {last}"),
        };
        writeln!(text, "\nJournal  {objects} objects, {}{shown}", size(bytes))?;
        table(&mut text, &inventory.journal)?;
    }
    Ok(text)
}

fn table(text: &mut String, entries: &[Entry]) -> std::fmt::Result {
    let width = entries.last().map_or(0, |entry| entry.seq.to_string().len()).max(3);
    writeln!(text, "  {:>width$}  {:<8}{:<22}{:>10}", "SEQ", "KIND", "TIME", "SIZE")?;
    for Entry { seq, kind, created, size } in entries {
        let time = created.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
        writeln!(text, "  {seq:>width$}  {kind:<8}{time:<22}{:>10}", crate::domain::size(*size))?;
    }
    Ok(())
}
