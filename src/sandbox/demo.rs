//! The sample repository of `tidelock sandbox`, its first pull request, and a running commentary of events for the terminal.

use super::tour::terminal::{self, Style};
use super::{Activity, ActivityKind, Forge, HostKind, OpenOptions, Pull, Repo};
use anyhow::Context;
use std::io::Write;

/// Returns the name of the sample repository on a host.
pub(crate) fn repository(kind: HostKind) -> String {
    kind.example_repository("infrastructure")
}

const FILES: [(&str, &str); 6] = [
    ("README.md", include_str!("../../sandbox/README.md")),
    ("atlantis.yaml", include_str!("../../sandbox/atlantis.yaml")),
    ("network/main.tf", NETWORK),
    ("dns/main.tf", include_str!("../../sandbox/dns/main.tf")),
    ("app/main.tf", include_str!("../../sandbox/app/main.tf")),
    ("modules/service/main.tf", include_str!("../../sandbox/modules/service/main.tf")),
];

const NETWORK: &str = include_str!("../../sandbox/network/main.tf");

/// State from an apply before the story begins, so that plans show changes and not only a first rollout.
const STATES: [(&str, &str); 3] = [
    ("network", include_str!("../../sandbox/state/network.tfstate")),
    ("dns", include_str!("../../sandbox/state/dns.tfstate")),
    ("app", include_str!("../../sandbox/state/app.tfstate")),
];

/// Creates the sample repository, and its Terraform state in `terraform-state/` of the forge's directory. That is outside of checkouts,
/// which are deleted with their pull requests.
pub(crate) async fn populate(forge: &Forge) -> anyhow::Result<Repo> {
    let dir = forge.dir().join("terraform-state");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for (project, state) in STATES {
        let path = dir.join(format!("{project}.tfstate"));
        std::fs::write(&path, state).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let files: Vec<_> = FILES.iter().map(|(path, text)| (*path, with_state(forge, text))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    forge.create_repo(&repository(forge.kind()), &files).await
}

/// Fills the place of the state into the text, escaped for HCL.
fn with_state(forge: &Forge, text: &str) -> String {
    let dir = forge.dir().join("terraform-state").to_string_lossy().into_owned();
    let escaped = dir.replace('\\', "\\\\").replace('"', "\\\"").replace("${", "$${").replace("%{", "%%{");
    text.replace("@STATE@", &escaped)
}

/// Opens the first pull request, so that there is something to see.
pub(crate) async fn story_start(repo: &Repo) -> anyhow::Result<Pull> {
    let text = with_state(repo.forge(), NETWORK);
    let text = text.replacen("database = \"10.20.16.0/24\"", "database = \"10.20.16.0/23\"", 1);
    let (kept, _) = text.split_once("resource \"terraform_data\" \"legacy_ssh\"").context("the sample has changed")?;
    let rest = text.split_once("output \"ranges\"").map(|(_, rest)| rest).context("the sample has changed")?;
    let iap = "resource \"terraform_data\" \"allow_ssh_from_iap\" {\n  input = { port = 22, from = \"35.235.240.0/20\" }\n}\n";
    let text = format!("{kept}{iap}\noutput \"ranges\"{rest}");
    let body = "SSH from the old office range goes, SSH through the proxy comes; the database gets room to grow.";
    let options = OpenOptions { body: body.to_owned(), ..OpenOptions::default() };
    let changes = [("network/main.tf", Some(text.as_str()))];
    repo.open_pull("ssh-through-proxy", "alice", "Let SSH in through the proxy only", &changes, options).await
}

/// Opens Bob's pull request for the same project: one more subnet.
pub(super) async fn second_pull(repo: &Repo) -> anyhow::Result<Pull> {
    let text = with_state(repo.forge(), NETWORK);
    let text = text.replacen("    apps ", "    cache    = \"10.20.24.0/24\"\n    apps ", 1);
    let body = "The shop gets a cache next week.";
    let options = OpenOptions { body: body.to_owned(), ..OpenOptions::default() };
    let changes = [("network/main.tf", Some(text.as_str()))];
    repo.open_pull("cache-subnet", "bob", "Add a subnet for the cache", &changes, options).await
}

/// A pull request that replaces `from` by `to` in one file of `main`.
pub(super) struct SmallChange {
    pub(super) branch: &'static str,
    pub(super) author: &'static str,
    pub(super) title: &'static str,
    pub(super) path: &'static str,
    pub(super) from: &'static str,
    pub(super) to: &'static str,
}

/// Opens such a pull request.
pub(super) async fn small_change(repo: &Repo, change: SmallChange) -> anyhow::Result<Pull> {
    let SmallChange { branch, author, title, path, from, to } = change;
    let text = repo.file("main", path).await?.with_context(|| format!("there is no {path}"))?;
    anyhow::ensure!(text.contains(from), "the sample has changed: {path} has no {from}");
    let text = text.replacen(from, to, 1);
    repo.open_pull(branch, author, title, &[(path, Some(text.as_str()))], OpenOptions::default()).await
}

/// Writes a line for each event on the forge, and the server's comments in full, until it is dropped or writing fails.
pub(crate) async fn narrate(forge: &Forge, style: Style, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let mut follower = forge.follow();
    loop {
        for activity in follower.next().await? {
            out.write_all(told(&activity, forge, style).as_bytes())?;
        }
        out.flush()?;
    }
}

fn told(activity: &Activity, forge: &Forge, style: Style) -> String {
    let (name, bot) = (format!("{}{}", forge.kind().pull_mark(), activity.pull), forge.bot());
    match &activity.kind {
        ActivityKind::Opened { author, title } => style.event(&format!("{name}  {author} opened “{title}”")),
        ActivityKind::Head(commit) => style.faint(&format!("{name}  head is {commit:.7}")),
        ActivityKind::Commented { author, body } if author == bot => {
            terminal::comment(&format!("{name}  {bot}"), body, style)
        }
        ActivityKind::Commented { author, body } => style.event(&format!("{name}  {author}: {}", body.trim())),
        ActivityKind::Reviewed { user, approved } => {
            let word = if *approved { "approved" } else { "requested changes" };
            style.event(&format!("{name}  {user} {word}"))
        }
        ActivityKind::Status { context, state, description } => {
            style.faint(&format!("{name}  {context} {state}: {description}"))
        }
        ActivityKind::Merged(by) => style.event(&format!("{name}  {by} merged it")),
        ActivityKind::Closed => style.event(&format!("{name}  closed")),
    }
}
