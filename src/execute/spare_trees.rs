//! Makes spare trees while the machine is idle, so that the next pull request of a large repository need not wait for its files to be
//! written.

use super::capacity;
use super::context::Context;
use crate::checkout::space::taken_by;
use crate::checkout::{SpareMaking, WantedSpare};
use anyhow::Result;
use tokio_util::sync::CancellationToken;

/// Makes the wanted spare trees, one after the other; never returns.
pub(crate) async fn run(ctx: &Context) {
    loop {
        let wanted = ctx.checkouts.spare_wanted().await;
        ctx.admission.calm().await;
        if let Err(error) = make(ctx, &wanted).await {
            // The only effect is that the next pull request waits longer for its tree.
            tracing::warn!(error = format!("{error:#}"), "no spare checkout could be made");
            ctx.checkouts.do_without_spare(&wanted);
        }
    }
}

/// Makes one spare tree if there is room. Stops when a job waits to run.
async fn make(ctx: &Context, wanted: &WantedSpare) -> Result<()> {
    let bytes = taken_by(wanted.like().to_owned()).await?;
    if !capacity::has_room_for(ctx, bytes).await? {
        tracing::debug!(bytes, "there is no room for a spare checkout");
        ctx.checkouts.do_without_spare(wanted);
        return Ok(());
    }
    let end = CancellationToken::new();
    let making = ctx.checkouts.make_spare(wanted, &end);
    tokio::pin!(making);
    let made = tokio::select! {
        made = &mut making => made?,
        () = ctx.admission.crowded() => {
            end.cancel();
            making.await?
        }
    };
    if made == SpareMaking::Made {
        capacity::added(ctx, bytes).await;
        tracing::debug!(like = %wanted.like().display(), bytes, "a spare checkout is ready");
    }
    Ok(())
}
