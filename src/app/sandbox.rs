//! `tidelock sandbox`: a forge, a sample repository and a server on this machine, to try out or as a tour.

mod jobs;
mod server;
mod settings;

use super::{fail, logging, not_taken, say};
use crate::sandbox::tour::{TourKind, safety, terminal::Style};
use crate::sandbox::{Forge, ForgeOptions, HostKind, SandboxExecutor, demo, missing_tools, tour};
use crate::settings::{plain_environment, variables_of_settings};
use anyhow::{Context, Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use server::Launch;
use settings::SandboxSettings;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidelock_runner::runner::local::folder_of_runs;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;

/// Default ports of server and forge; any free port if these are taken.
const PORT: u16 = 4141;
const FORGE_PORT: u16 = 4142;
/// Attempts to remove a directory.
const REMOVALS: usize = 5;
/// Notice about a person's own repository.
const OWN: &str = "The first page has a copy of your repository: change a file there to open a pull request. Everybody on this machine can \
    do so. Terraform runs with your credentials and backends: a plan reads what is real, may lock its state, and may create a workspace. \
    `apply` is switched off unless --set allow-commands lists it.\n\n";
/// Column at which comments are wrapped.
const WIDTH: usize = 100;

/// Runs `tidelock sandbox` with the arguments after its name.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    let name = std::iter::once(OsString::from("tidelock sandbox"));
    let matches = match command().try_get_matches_from(name.chain(args)) {
        Ok(matches) => matches,
        Err(error) => return not_taken(&error),
    };
    let environment = plain_environment();
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.to_string_lossy());
    let missing = missing_tools(&path.unwrap_or_default());
    if !missing.is_empty() {
        return fail(&format!("tidelock sandbox needs git and Terraform (or OpenTofu):\n  {}\n", missing.join("\n  ")));
    }
    let level = matches.get_one::<String>("log-level").map_or("error", String::as_str);
    logging::start(level, logging::To::Stderr);
    let port = |name: &str| matches.get_one::<u16>(name).copied();
    let named = |name: &str| matches.get_one::<String>(name);
    let tour = named("tour").and_then(|name| TourKind::ALL.into_iter().find(|kind| kind.name() == name));
    let host = named("host").and_then(|name| HostKind::ALL.into_iter().find(|kind| kind.name() == name));
    let executor = named("executor").and_then(|name| SandboxExecutor::ALL.into_iter().find(|kind| kind.name() == name));
    let executor = executor.unwrap_or_default();
    let touring = tour.is_some();
    let settings = match chosen_settings(&matches, executor, tour) {
        Ok(settings) => settings,
        Err(error) => return fail(&format!("tidelock sandbox: {error:#}\n")),
    };
    let options = SandboxOptions {
        tour,
        host: host.unwrap_or_default(),
        executor,
        settings,
        repo: matches.get_one::<PathBuf>("repo").cloned(),
        port: Port { name: "--port", given: port("port"), usual: if touring { 0 } else { PORT } },
        forge_port: Port {
            name: "--forge-port",
            given: port("forge-port"),
            usual: if touring { 0 } else { FORGE_PORT },
        },
        dir: matches.get_one::<PathBuf>("dir").cloned(),
        level: level.to_owned(),
        environment,
    };
    let played = SandboxDirectory::new(options.dir.clone()).and_then(|scratch| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no threads")?;
        // The runtime, and everything that still runs in it, ends before the directory is removed.
        runtime.block_on(play(&options, &scratch))
    });
    match played {
        // Playing has no fixed end, so a signal is its regular end; an interrupted tour is incomplete.
        Ok(Some(signal)) if touring => {
            fail(&format!("\ntidelock sandbox: the tour was interrupted by {}\n", signal.name()));
            ExitCode::from(signal.exit_code())
        }
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("tidelock sandbox: {error:#}\n")),
    }
}

/// Returns the settings that the arguments add to those of the sandbox.
fn chosen_settings(matches: &ArgMatches, executor: SandboxExecutor, tour: Option<TourKind>) -> Result<SandboxSettings> {
    let mut settings = match matches.get_one::<PathBuf>("repo-config") {
        Some(file) => SandboxSettings::default().with_file(file)?,
        None => SandboxSettings::of_executor(executor, tour),
    };
    if matches.contains_id("repo") {
        settings = settings.reading();
    }
    settings.with(matches.get_many::<String>("set").into_iter().flatten())
}

/// Signal that ends the sandbox.
#[derive(Debug, Clone, Copy)]
enum EndSignal {
    Interrupt,
    Terminate,
}

impl EndSignal {
    fn name(self) -> &'static str {
        match self {
            EndSignal::Interrupt => "Ctrl-C (SIGINT)",
            EndSignal::Terminate => "SIGTERM",
        }
    }

    /// Returns 128 plus the number of the signal, like shells.
    fn exit_code(self) -> u8 {
        match self {
            EndSignal::Interrupt => 130,
            EndSignal::Terminate => 143,
        }
    }

    /// Waits for the next signal. From the first call on, these signals do not end the process by themselves.
    fn next() -> Result<impl Future<Output = EndSignal>> {
        let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be handled")?;
        let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be handled")?;
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => EndSignal::Interrupt,
                _ = terminate.recv() => EndSignal::Terminate,
            }
        })
    }
}

struct SandboxOptions {
    tour: Option<TourKind>,
    host: HostKind,
    executor: SandboxExecutor,
    settings: SandboxSettings,
    /// A person's own repository, in place of the sample.
    repo: Option<PathBuf>,
    port: Port,
    forge_port: Port,
    dir: Option<PathBuf>,
    level: String,
    environment: Vec<(OsString, OsString)>,
}

pub(super) fn command() -> clap::Command {
    let port = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("PORT").value_parser(value_parser!(u16)).help(help)
    };
    clap::Command::new("tidelock sandbox")
        .about("A forge, a sample repository and a Tidelock server on this machine, with no account anywhere")
        .arg(
            Arg::new("tour")
                .long("tour")
                .value_name("STORIES")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value(TourKind::Lifecycle.name())
                .value_parser(TourKind::ALL.map(TourKind::name))
                .help("Play a whole story, show each comment, and exit; with `safety`, what mode strict keeps people from"),
        )
        .arg(
            Arg::new("host")
                .long("host")
                .value_name("HOST")
                .value_parser(HostKind::ALL.map(HostKind::name))
                .default_value(HostKind::default().name())
                .help("The host that the forge speaks as"),
        )
        .arg(
            Arg::new("executor")
                .long("executor")
                .value_name("EXECUTOR")
                .value_parser(SandboxExecutor::ALL.map(SandboxExecutor::name))
                .default_value(SandboxExecutor::default().name())
                .help("Where jobs run: in the server, or in processes of this machine that outlive it"),
        )
        .args(own_args())
        .arg(port("port", "Port of the server [default: 4141, or any free one]"))
        .arg(port("forge-port", "Port of the forge [default: 4142, or any free one]"))
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Keep everything in this empty directory [default: a temporary one, removed at the end]"),
        )
        .arg(
            Arg::new("log-level")
                .long("log-level")
                .value_name("LEVEL")
                .help("Log of the server, on standard error [default: error]"),
        )
}

/// Returns the arguments for a person's own repository, rules and settings.
fn own_args() -> [Arg; 3] {
    [
        Arg::new("repo")
            .long("repo")
            .value_name("DIR")
            .value_parser(value_parser!(PathBuf))
            .conflicts_with("tour")
            .help(
                "Use the checked-out commit of this git repository instead of the sample, as branch main; \
                 apply is switched off",
            ),
        Arg::new("repo-config")
            .long("repo-config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .conflicts_with_all(["tour", "executor"])
            .help("Server-side configuration (repos.yaml) of the server"),
        Arg::new("set")
            .long("set")
            .value_name("NAME=VALUE")
            .action(ArgAction::Append)
            .conflicts_with("tour")
            .help("A setting of the server, such as automerge=true; may be repeated"),
    ]
}

/// A directory that is removed when it is dropped, unless the person named it.
struct SandboxDirectory {
    path: PathBuf,
    temporary: bool,
}

impl SandboxDirectory {
    fn new(wanted: Option<PathBuf>) -> Result<SandboxDirectory> {
        let temporary = wanted.is_none();
        let path = match wanted {
            Some(path) => std::path::absolute(path)?,
            // A short name, because the paths of the steps' sockets begin with it.
            None => std::env::temp_dir().join(format!("tidelock-sandbox-{}", &crate::execute::random_id()[..8])),
        };
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        if std::fs::read_dir(&path)?.next().is_some() {
            return Err(anyhow!("{} is not empty: name a new directory with --dir", path.display()));
        }
        Ok(SandboxDirectory { path, temporary })
    }
}

impl Drop for SandboxDirectory {
    fn drop(&mut self) {
        // A child process that is just ending may still write; a directory that cannot be removed is left to the system.
        let remove = |path: &Path| (0..REMOVALS).any(|_| std::fs::remove_dir_all(path).is_ok() || !path.exists());
        // A server that was killed has left the folders of its runs, which need not be in its data directory.
        remove(&folder_of_runs(&server::data_dir(&self.path)));
        let _ = self.temporary && remove(&self.path);
    }
}

/// Plays until the tour ends or a signal arrives.
async fn play(options: &SandboxOptions, scratch: &SandboxDirectory) -> Result<Option<EndSignal>> {
    let mut ended = std::pin::pin!(EndSignal::next()?);
    let forge_port = options.forge_port.free()?;
    let forge =
        Forge::start_as(options.host, ForgeOptions { dir: scratch.path.join("forge"), port: forge_port }).await?;
    let port = options.port.free()?;
    let launch = Launch::new(&options.environment, &options.level, port, &forge, &scratch.path, &options.settings)?;
    forge.set_webhook(&format!("{}/events", launch.url));
    let style = Style { colours: std::io::stdout().is_terminal(), width: WIDTH };
    if let Some(kind) = options.tour {
        let played = tokio::select! {
            played = play_tour(kind, options.executor, &forge, &launch, style) => played.map(|()| None),
            signal = &mut ended => Ok(Some(signal)),
        };
        launch.end().await;
        launch.end_jobs().await?;
        return played.and_then(|signal| launch.no_errors().map(|()| signal));
    }
    let server = tokio::select! {
        server = launch.here() => server?,
        signal = &mut ended => return Ok(Some(signal)),
    };
    let result = tokio::select! {
        result = stay(&forge, &launch.url, style, options.repo.as_deref()) => result.map(|()| None),
        signal = ended => Ok(Some(signal)),
    };
    server.stop().await?;
    launch.end_jobs().await?;
    result
}

/// Plays a tour. The first one loses its server and the server's disk on the way, which only a process of its own can simulate.
async fn play_tour(
    kind: TourKind,
    executor: SandboxExecutor,
    forge: &Forge,
    launch: &Launch,
    style: Style,
) -> Result<()> {
    let server = Mutex::new(Some(launch.apart().await?));
    let lose = async || {
        if let Some(server) = server.lock().await.take() {
            server.kill().await;
        }
        launch.port_is_free().await?;
        launch.wipe()?;
        *server.lock().await = Some(launch.apart().await?);
        Ok(())
    };
    let mut out = std::io::stdout();
    let played = match kind {
        TourKind::Lifecycle => tour::tour(forge, &launch.url, style, executor, &mut out, lose).await,
        TourKind::Safety => safety::tour(forge, &launch.url, style, executor, &mut out).await,
    };
    match server.into_inner() {
        Some(server) => played.and(server.stop().await),
        None => played,
    }
}

/// Opens a pull request of the sample, or offers a person's own repository, and prints events until a signal ends it.
async fn stay(forge: &Forge, url: &str, style: Style, own: Option<&Path>) -> Result<()> {
    let sample = match own {
        Some(dir) => {
            forge.import_repo(&demo::repository(forge.kind()), dir).await.context("--repo")?;
            None
        }
        None => Some(demo::populate(forge).await?),
    };
    let ignored = variables_of_settings();
    if !ignored.is_empty() {
        say(&format!("Ignored        {}: the sandbox reads --set NAME=VALUE only\n", ignored.join(", ")));
    }
    say(&format!("Pull requests  {}\nServer         {url}\n\n", forge.url()));
    if sample.is_none() {
        say(OWN);
    }
    say("Push, comment and merge on the first page; see locks and logs on the second. Ctrl-C ends it.\n\n");
    if let Some(repo) = sample {
        demo::story_start(&repo).await?;
    }
    demo::narrate(forge, style, &mut std::io::stdout()).await
}

/// A requested port.
struct Port {
    /// Its flag.
    name: &'static str,
    given: Option<u16>,
    /// Default port; any other will do.
    usual: u16,
}

impl Port {
    /// Returns a free port: exactly the given one, or the default one if it is free, else a steady one, else any.
    fn free(&self) -> Result<u16> {
        let bind = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let bound = match self.given {
            Some(port) => bind(port).with_context(|| {
                format!("port {port} of 127.0.0.1 cannot be used: give {} another one, or leave it out", self.name)
            })?,
            None => {
                let usual = Some(self.usual).filter(|port| *port != 0);
                let free = usual.into_iter().chain(steady_ports()).find_map(|port| bind(port).ok());
                free.map_or_else(|| bind(0), Ok).context("no port is free on 127.0.0.1")?
            }
        };
        Ok(bound.local_addr()?.port())
    }
}

/// Returns some ports that no outgoing connection gets, so that none takes the server's while the server is started again. Each process
/// begins at another one.
fn steady_ports() -> impl Iterator<Item = u16> {
    /// The first one, and how many there are: all below those that Linux (32768) and macOS (49152) give to connections.
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    /// Ports that are tried.
    const TRIES: u32 = 50;
    let begin = std::process::id().wrapping_mul(TRIES);
    (0..TRIES).filter_map(move |step| u16::try_from(FIRST + begin.wrapping_add(step) % COUNT).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_was_asked_for_is_that_one_or_an_error() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let busy = taken.local_addr().unwrap().port();
        let asked = |given, usual| Port { name: "--port", given, usual }.free();
        let error = format!("{:#}", asked(Some(busy), 0).unwrap_err());
        assert!(
            error.contains(&format!("port {busy} of 127.0.0.1 cannot be used: give --port another one")),
            "{error}"
        );
        assert_ne!(asked(None, busy).unwrap(), busy);
        for usual in [0, busy] {
            assert!((10_000..30_000).contains(&asked(None, usual).unwrap()), "outgoing connections get others");
        }
        drop(taken);
        assert_eq!(asked(Some(busy), 0).unwrap(), busy);
    }
}
