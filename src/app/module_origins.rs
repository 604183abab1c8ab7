//! The addresses of `--module-credentials`, with tokens for the modules there.

use crate::checkout::Credentials;
use crate::runner::local::{ModuleOrigin, ModuleOrigins};
use crate::settings::{Settings, host_of_origin};
use crate::vcs::{GitCredentials, Host, Hosts};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::sync::Arc;

/// Returns the addresses with the server's own tokens, for jobs of this server.
pub(super) fn of_server(settings: &Settings, hosts: &Hosts) -> ModuleOrigins {
    for address in &settings.module_credentials {
        if host_of(address, hosts).is_none() {
            tracing::warn!(
                "module-credentials names {address}, and the server has no token for that host: init gets none there"
            );
        }
    }
    origins(settings, hosts, |host, address| host.module_credentials(address))
}

/// Returns the addresses with tokens that can only read code, for jobs on executors. A host that issues no such tokens has none.
pub(super) fn of_executors(settings: &Settings, hosts: &Hosts) -> ModuleOrigins {
    origins(settings, hosts, |host, address| {
        async move { host.reading_credentials(address).await.unwrap_or_default() }.boxed()
    })
}

/// Asks a host for credentials below an address, each with the part of the address that it is valid for.
type AskHost = for<'a> fn(&'a dyn Host, &'a str) -> BoxFuture<'a, Vec<(String, GitCredentials)>>;

fn origins(settings: &Settings, hosts: &Hosts, ask: AskHost) -> ModuleOrigins {
    let (addresses, hosts) = (settings.module_credentials.clone(), hosts.clone());
    Arc::new(move || {
        let (addresses, hosts) = (addresses.clone(), hosts.clone());
        let all = async move {
            let mut origins = Vec::new();
            for address in &addresses {
                let Some(host) = host_of(address, &hosts) else { continue };
                let known = ask(&*host, address).await;
                origins.extend(known.into_iter().map(|(address, credentials)| module_origin(address, credentials)));
            }
            origins
        };
        all.boxed()
    })
}

/// Returns the host of an address. Without the port: the settings have rejected any port other than the host's.
fn host_of(address: &str, hosts: &Hosts) -> Option<Arc<dyn Host>> {
    let name = host_of_origin(address);
    hosts.iter().find(|host| host.hostname().eq_ignore_ascii_case(&name)).cloned()
}

fn module_origin(address: String, credentials: GitCredentials) -> ModuleOrigin {
    let GitCredentials { username, password } = credentials;
    ModuleOrigin { address, credentials: Credentials { username, password } }
}
