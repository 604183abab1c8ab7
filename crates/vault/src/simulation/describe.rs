//! Text of schedules.

use super::objects;
use super::request::{Op, Reply};
use super::world::number;
use crate::bucket::Written;

/// Describes one request and its answer.
pub(super) fn describe(who: &str, op: &Op, reply: Option<&Reply>) -> String {
    let short = |name: &str| match name.split_once('/') {
        Some((kind @ ("journal" | "base"), _)) => format!("{kind}/{}", number(name)),
        Some(("inbox", rest)) => format!("inbox/{}", &rest[..rest.len().min(14)]),
        _ => name.to_owned(),
    };
    let what = match op {
        Op::Get(name) => format!("gets {}", short(name)),
        Op::Range(name, _, from, to) => format!("reads {} {from}..{to}", short(name)),
        Op::Put { name, expected, content, .. } => {
            let does = if *expected == Some(0) { "creates" } else { "puts" };
            let what = match objects::journal(content) {
                Ok(j) if name.starts_with("journal/") && j.seal => format!(" (seal of epoch {})", j.epoch),
                Ok(j) if name.starts_with("journal/") => format!(" {:?}", j.facts),
                _ => String::new(),
            };
            format!("{does} {}{what}", short(name))
        }
        Op::Delete(name, _) => format!("deletes {}", short(name)),
        Op::List(prefix, after) => format!("lists {prefix} after {:?}", short(after)),
        Op::Sleep(time) => format!("sleeps {:.2} s", time.as_secs_f64()),
        Op::Post(d) => format!("posts the comment of {d}"),
        Op::Comments(d) => format!("lists comments of {d}"),
        Op::DeleteComment(id) => format!("deletes comment {id}"),
        Op::SetStatus(n) => format!("sets status {n}"),
        Op::Status => "reads the status".to_owned(),
        Op::Spawn(d) => format!("starts terraform for {d}"),
        Op::Act => "acts outside".to_owned(),
        Op::Job(step) => format!("{step:?}"),
    };
    let answer = match reply {
        Some(Reply::Lost) => " -> answer lost",
        Some(Reply::Refused) => " -> refused (403)",
        Some(Reply::Written(Written::Refused)) => " -> refused (412)",
        Some(Reply::Object(None) | Reply::Range(None)) => " -> absent",
        Some(Reply::Deleted(false)) => " -> another generation",
        Some(_) => " -> ok",
        None => "",
    };
    format!("{who} {what}{answer}")
}
