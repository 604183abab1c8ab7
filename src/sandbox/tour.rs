//! `tidelock sandbox --tour`: plays a whole story against a server and shows each comment as a reader sees it. It fails if a comment is
//! not as expected, so it is a smoke test too. `safety` has the stories of `--tour=safety`.

pub(crate) mod safety;
pub(crate) mod terminal;
#[cfg(test)]
mod tests;

use super::demo;
use super::{Comment, Forge, HostKind, Pull, SandboxExecutor};
use anyhow::{Context, bail};
use serde_json::Value;
use std::io::Write;
use std::time::{Duration, Instant};
use terminal::Style;

/// Time limit of one answer of the server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Story of a tour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TourKind {
    /// From plan to merge, with a server that is lost on the way.
    Lifecycle,
    /// Actions that mode `strict` prevents, and the ways out.
    Safety,
}

impl TourKind {
    /// All kinds.
    pub(crate) const ALL: [TourKind; 2] = [TourKind::Lifecycle, TourKind::Safety];

    /// Returns its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            TourKind::Lifecycle => "lifecycle",
            TourKind::Safety => "safety",
        }
    }

    /// Returns its entry of `repos` in the server-side configuration, as JSON.
    pub(super) fn repo_entry(self) -> Option<&'static str> {
        match self {
            TourKind::Lifecycle => None,
            TourKind::Safety => Some(safety::REPO_ENTRY),
        }
    }
}

/// Plays the tour. `server_url` is the address of the server's own pages; `lose` kills the server, wipes its data directory and starts
/// another one. Fails if an answer is missing after `ANSWER_TIMEOUT` or is not as expected.
pub(crate) async fn tour(
    forge: &Forge,
    server_url: &str,
    style: Style,
    executor: SandboxExecutor,
    out: &mut (dyn Write + Send),
    lose: impl AsyncFnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut stage = TourOutput { style, executor, out, step: 0 };
    stage.line(&style.bold(
        "A pull request is planned, blocked, applied, merged and unlocked, and a server is lost on the way: on this machine, with real Terraform.",
    ))?;
    stage.line(&format!("  pull requests  {}", forge.url()))?;
    stage.line(&format!("  server         {server_url}"))?;
    stage.line("")?;
    let repo = demo::populate(forge).await.context("making the sample repository")?;

    stage.step("alice opens a pull request; the server plans by itself")?;
    let first = demo::story_start(&repo).await?;
    let mut first_seen = 0;
    stage.opened(&first, "alice")?;
    stage.introduce_executor()?;
    stage.answer(&first, &mut first_seen, Expect::Result { command: "plan", outcome: "success" }, &["network"]).await?;

    let holder = first.reference();
    stage.step(&format!("bob opens another one for the same project, which {holder} holds"))?;
    let second = demo::second_pull(&repo).await?;
    let mut second_seen = 0;
    stage.opened(&second, "bob")?;
    let expect = Expect::Result { command: "plan", outcome: "failure" };
    stage.answer(&second, &mut second_seen, expect, &["network", &holder]).await?;

    stage.step("the server is killed and its disk wiped; another one starts from the bucket")?;
    stage.loses(lose).await?;

    stage.step("alice applies the plan that was made before")?;
    stage.post_comment(&first, "alice", "atlantis apply")?;
    let expect = Expect::Result { command: "apply", outcome: "success" };
    stage.answer(&first, &mut first_seen, expect, &["network"]).await?;

    stage.step("alice merges; the lock goes with the pull request")?;
    first.merge().await.context("merging the first pull request")?;
    stage.did(&first, "alice merged it")?;
    stage.answer(&first, &mut first_seen, Expect::Message("cleanup"), &["network"]).await?;

    stage.step("bob was next in line: his is planned without being asked")?;
    let expect = Expect::Result { command: "plan", outcome: "success" };
    stage.answer(&second, &mut second_seen, expect, &["network"]).await?;

    stage.step("bob changes his mind and frees the project")?;
    stage.post_comment(&second, "bob", "atlantis unlock")?;
    stage.answer(&second, &mut second_seen, Expect::Message("unlocked"), &[]).await?;

    let comments = first_seen + second_seen;
    let seconds = began.elapsed().as_secs_f32();
    stage.line("")?;
    stage.line(&style.bold(&format!(
        "Done: 2 pull requests, {comments} comments of the server, 1 apply, 1 server lost, {seconds:.1} s."
    )))?;
    stage.play_yourself(forge.kind())
}

/// Expected content of a comment's hidden line.
#[derive(Clone, Copy)]
enum Expect {
    Result {
        command: &'static str,
        outcome: &'static str,
    },
    Message(&'static str),
    /// An apply that is refused for this reason, because of this owner if there is one.
    Refused {
        reason: &'static str,
        owner: Option<u64>,
    },
}

struct TourOutput<'a> {
    style: Style,
    executor: SandboxExecutor,
    out: &'a mut (dyn Write + Send),
    step: usize,
}

impl TourOutput<'_> {
    fn line(&mut self, text: &str) -> anyhow::Result<()> {
        writeln!(self.out, "{text}")?;
        // A person watches: flush before waiting for the next answer.
        Ok(self.out.flush()?)
    }

    fn play_yourself(&mut self, kind: HostKind) -> anyhow::Result<()> {
        let host = if kind == HostKind::default() { String::new() } else { format!(" --host {}", kind.name()) };
        let local = self.executor == SandboxExecutor::default();
        let executor = if local { String::new() } else { format!(" --executor {}", self.executor.name()) };
        self.line(&format!("To play yourself, in the browser: tidelock sandbox{host}{executor}"))
    }

    /// Says what an executor is, unless jobs run in the server.
    fn introduce_executor(&mut self) -> anyhow::Result<()> {
        let Some(text) = self.executor.introduction() else { return Ok(()) };
        self.line(self.style.faint(&text).trim_end())
    }

    fn step(&mut self, what: &str) -> anyhow::Result<()> {
        self.step += 1;
        let text = self.style.bold(&format!("{}. {what}", self.step));
        self.line(&format!("\n{text}"))
    }

    fn did(&mut self, pull: &Pull, what: &str) -> anyhow::Result<()> {
        let text = self.style.event(&format!("{}  {what}", pull.reference()));
        self.line(text.trim_end())
    }

    fn opened(&mut self, pull: &Pull, who: &str) -> anyhow::Result<()> {
        self.did(pull, &format!("{who}: {}", pull.title()?))?;
        self.line(self.style.faint(&pull.url()).trim_end())
    }

    fn post_comment(&mut self, pull: &Pull, who: &str, comment: &str) -> anyhow::Result<()> {
        self.did(pull, &format!("{who}: {comment}"))?;
        pull.comment(who, comment).map(drop)
    }

    async fn loses(&mut self, lose: impl AsyncFnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let began = Instant::now();
        lose().await.context("losing the server and starting another one")?;
        let text = self.style.event(&format!("state restored in {:.1} s", began.elapsed().as_secs_f32()));
        self.line(text.trim_end())
    }

    /// Waits for the server's next comment, shows it and checks it.
    async fn answer(&mut self, pull: &Pull, seen: &mut usize, expect: Expect, words: &[&str]) -> anyhow::Result<()> {
        let began = Instant::now();
        write!(self.out, "{}", self.style.faint("the server is at work …").trim_end())?;
        self.out.flush()?;
        let comment = pull.wait_for_comment(*seen, ANSWER_TIMEOUT).await;
        let text = format!("{:.1} s", began.elapsed().as_secs_f32());
        self.line(self.style.faint(&text).replacen("  ", " ", 1).trim_end())?;
        let comment = comment?;
        *seen += 1;
        let author = format!("{}  {}", pull.reference(), comment.author);
        let shown = terminal::comment(&author, &comment.body, self.style);
        self.line(shown.trim_end())?;
        check(&comment, expect, words).with_context(|| format!("the comment above, on {}", pull.url()))
    }
}

/// Checks that the comment is as expected, in its hidden line and in its text.
fn check(comment: &Comment, expect: Expect, words: &[&str]) -> anyhow::Result<()> {
    let (text, marker) = marker(&comment.body)?;
    match expect {
        Expect::Result { command, outcome } => {
            let results = marker["results"].as_array().map(Vec::as_slice).unwrap_or_default();
            let fits = |result: &Value| result["cmd"] == command && result["outcome"] == outcome;
            if results.is_empty() || !results.iter().all(fits) {
                bail!("expected a {command} with {outcome}, its hidden line says {marker}");
            }
        }
        Expect::Refused { reason, owner } => {
            let result = &marker["results"][0];
            let fits = result["cmd"] == "apply" && result["outcome"] == "failure" && result["reason"] == reason;
            if !fits || result["owner"].as_u64() != owner {
                bail!("expected an apply that is refused as {reason}, its hidden line says {marker}");
            }
        }
        Expect::Message(message) if marker["message"] != message => {
            bail!("expected the message {message}, its hidden line says {marker}");
        }
        Expect::Message(_) => {}
    }
    match words.iter().find(|word| !text.contains(**word)) {
        Some(word) => bail!("it does not speak of {word}"),
        None => Ok(()),
    }
}

/// Splits a comment into its text and its hidden last line.
fn marker(body: &str) -> anyhow::Result<(&str, Value)> {
    let (text, last) = body.trim_end().rsplit_once('\n').unwrap_or(("", body));
    let forms = [("<!-- tidelock:", "-->"), ("[//]: # (tidelock:", ")")];
    let json = forms.iter().find_map(|(start, end)| last.strip_prefix(start)?.strip_suffix(end));
    let json = json.context("it has no hidden last line")?;
    Ok((text.trim_end(), serde_json::from_str(json.trim()).context("its hidden line is not JSON")?))
}
