//! A forge on loopback that speaks GitHub's API subset that we use, with real git over HTTP and pull-request pages in the browser.
//! For `tidelock sandbox` and for the tests.

use std::path::PathBuf;

/// How a forge is set up.
pub struct ForgeOptions {
    /// Where repositories lie.
    pub dir: PathBuf,
    /// Port; 0: any.
    pub port: u16,
}

/// A running forge; cheap to clone.
#[derive(Clone)]
pub struct Forge {}

impl Forge {
    /// Starts it.
    pub async fn start(_options: ForgeOptions) -> anyhow::Result<Forge> {
        todo!()
    }
}
