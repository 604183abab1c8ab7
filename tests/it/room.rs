//! A disk that fills: files that can be made again are removed, and work that does not fit is refused before it begins.

use crate::support::*;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// A step that takes 20 MB in a place that is not kept with the plan.
const LARGE: &str = "head -c 20000000 /dev/zero > .terraform/large";

fn has_checkout(ctx: &Ctx, pull: u64) -> bool {
    ctx.server.data(&format!("repos/acme/infra/{pull}")).exists()
}

#[test]
fn idle_checkouts_make_room_and_their_plans_still_apply() {
    let setup = Setup::projects(&["a", "b"]).steps(&["init", LARGE, "plan"], &["apply"]);
    run_test(setup.flags(&["--scratch-quota-mib=32"]), async |ctx| {
        let one = ctx.open("one", &[("a/main.tf", &terraform("a", "2"))]).await;
        ctx.next(&one).await.is("plan", "success");
        let two = ctx.open("two", &[("b/main.tf", &terraform("b", "2"))]).await;
        ctx.next(&two).await.is("plan", "success");
        assert!(has_checkout(ctx, 1) && has_checkout(ctx, 2));
        ctx.say(&two, "atlantis plan").await.is("plan", "success");
        assert!(!has_checkout(ctx, 1) && has_checkout(ctx, 2));
        ctx.say(&one, "atlantis apply").await.is("apply", "success");
        ctx.say(&two, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_command_without_room_is_refused_and_says_what_to_do() {
    run_test(Setup::one_project().flags(&["--scratch-quota-mib=40"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let ballast = ctx.server.data("ballast");
        std::fs::write(&ballast, vec![1; 40 << 20]).unwrap();
        for command in ["plan", "apply"] {
            ctx.say(&pull, &format!("atlantis {command}"))
                .await
                .because("internal")
                .has("The server's disk is nearly full: 0 B of 41.9 MB are free")
                .has(&format!("then comment `atlantis {command}`"));
        }
        std::fs::remove_file(ballast).unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

/// A disk of its own for the data directory; unmounted when the test ends.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Absent if we may not mount, which takes root with its rights.
    fn mount(dir: PathBuf) -> Option<SmallDisk> {
        std::fs::create_dir_all(&dir).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "tidelock"]).arg(&dir).status();
        let disk = mounted.is_ok_and(|status| status.success()).then_some(SmallDisk(dir));
        if disk.is_none() {
            let _ = writeln!(std::io::stderr(), "skipped: a disk of its own takes root");
        }
        disk
    }

    fn fill(&self) -> PathBuf {
        let path = self.0.join("ballast");
        let mut file = std::fs::File::create(&path).unwrap();
        for size in [1 << 20, 1 << 10, 1] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn full_disk(flags: &[&str]) {
    let setup = Setup::one_project().flags(&["--reconcile-interval=1s"]).flags(flags).own_process();
    run_test(setup, async |ctx| {
        ctx.server.stop().await;
        std::fs::remove_dir_all(ctx.server.data("")).unwrap();
        let Some(disk) = SmallDisk::mount(ctx.server.data("")) else { return };
        ctx.server.start().await;
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;

        let ballast = disk.fill();
        pull.comment("alice", "atlantis plan").unwrap();
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        assert_eq!(ctx.request("GET", "/healthz", &[]).await.0, 200);

        ctx.until("the log says why", async || ctx.server.log().contains("disk is full")).await;

        // It is not delivered again: it waits in the inbox, or the server finds that it was missed.
        std::fs::remove_file(&ballast).unwrap();
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.server.stop().await;
        ctx.server.start().await;
    });
}

#[test]
fn a_full_disk_with_the_bucket_on_it_loses_nothing() {
    full_disk(&[]);
}

#[test]
fn a_full_disk_beside_a_bucket_that_has_room_loses_nothing() {
    full_disk(&["--bucket=file://{own}/bucket"]);
}

/// Kills a server on a disk without any room; `large` is a step that fills its checkout.
fn killed_on_a_full_disk(large: &str, is_evicted: bool, flags: &[&str]) {
    let setup = Setup::one_project().steps(&["init", large, "plan"], &["apply"]).flags(flags).own_process();
    run_test(setup, async |ctx| {
        ctx.server.stop().await;
        std::fs::remove_dir_all(ctx.server.data("")).unwrap();
        let Some(disk) = SmallDisk::mount(ctx.server.data("")) else { return };
        ctx.server.start().await;
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.nothing_pending(&pull, &["atlantis/apply"]).await;
        ctx.server.kill().await;
        let ballast = disk.fill();

        ctx.server.start().await;
        assert_eq!(has_checkout(ctx, 1), !is_evicted);
        if !is_evicted {
            ctx.say(&pull, "atlantis apply").await.because("internal").has("The server's disk is nearly full");
            std::fs::remove_file(&ballast).unwrap();
        }
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_start_on_a_full_disk_with_the_bucket_on_it_makes_room_first() {
    killed_on_a_full_disk("head -c 8000000 /dev/zero > .terraform/large", true, &[]);
}

#[test]
fn a_start_on_a_full_disk_beside_a_bucket_that_has_room_makes_room_first() {
    killed_on_a_full_disk("head -c 8000000 /dev/zero > .terraform/large", true, &["--bucket=file://{own}/bucket"]);
}

#[test]
fn a_start_drops_its_old_copy_on_a_full_disk_whose_checkouts_hold_what_is_kept_nowhere_else() {
    killed_on_a_full_disk("head -c 8000000 /dev/zero > local.tfstate", false, &["--bucket=file://{own}/bucket"]);
}
