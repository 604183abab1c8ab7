//! The front door's story, the same on every host: what a pull request, a push, a comment, a closing and a lost delivery cause. Each host
//! plays it through [`FlowHost`], beside GitHub where it is another one.

use crate::azure_devops::AzureFake;
use crate::second_host::Second;
use crate::support::*;

const APPLY: &str = "echo $BASE_REPO_OWNER/$BASE_REPO_NAME $PULL_NUM >> {tmp}/applied";

/// What the story asks of a host.
pub(crate) trait FlowHost {
    /// What its pull requests are written with.
    const MARK: char;

    /// The repository's name in locks and variables.
    fn full_name(&self) -> &'static str;

    /// A server that serves it.
    fn served(&self, setup: Setup) -> Setup;

    /// The repository is there, with `main.tf`, and deliveries go to the server.
    async fn connect(&self, ctx: &Ctx);

    /// Whether deliveries go to the server from now on.
    fn hear(&self, ctx: &Ctx, heard: bool);

    /// Opens a pull request that writes this file; its number.
    async fn open_one(&self, ctx: &Ctx, branch: &str, file: (&str, &str)) -> u64;

    /// Pushes this file to its branch.
    async fn push_to(&self, ctx: &Ctx, number: u64, file: (&str, &str));

    /// Somebody comments.
    async fn comment_on(&self, ctx: &Ctx, number: u64, text: &str);

    /// Something happens that causes nothing.
    async fn touch(&self, ctx: &Ctx, number: u64);

    async fn close_one(&self, ctx: &Ctx, number: u64);

    async fn merge_one(&self, ctx: &Ctx, number: u64);

    /// The latest delivery comes again.
    async fn redeliver_last(&self, ctx: &Ctx);

    /// Texts of the server's comments.
    fn answers(&self, ctx: &Ctx, number: u64) -> Vec<String>;

    /// Whether this status of the head is a success; absent while there is none, or while it is pending.
    fn is_success(&self, ctx: &Ctx, number: u64, context: &str) -> Option<bool>;

    /// One more comment of the server was read.
    fn was_read(&self, _: &Ctx, _: u64) {}
}

/// The forge, which every server of these tests serves.
struct GithubForge;

impl FlowHost for GithubForge {
    const MARK: char = '#';

    fn full_name(&self) -> &'static str {
        "acme/infra"
    }

    fn served(&self, setup: Setup) -> Setup {
        setup
    }

    async fn connect(&self, _: &Ctx) {}

    fn hear(&self, _: &Ctx, _: bool) {}

    async fn open_one(&self, ctx: &Ctx, branch: &str, file: (&str, &str)) -> u64 {
        ctx.open(branch, &[file]).await.number()
    }

    async fn push_to(&self, ctx: &Ctx, number: u64, file: (&str, &str)) {
        ctx.push(&ctx.repo.pull(number), file.0, file.1).await;
    }

    async fn comment_on(&self, ctx: &Ctx, number: u64, text: &str) {
        ctx.repo.pull(number).comment("alice", text).unwrap();
    }

    async fn touch(&self, ctx: &Ctx, number: u64) {
        ctx.repo.pull(number).comment("alice", "Looks good.").unwrap();
    }

    async fn close_one(&self, ctx: &Ctx, number: u64) {
        ctx.repo.pull(number).close().unwrap();
    }

    async fn merge_one(&self, ctx: &Ctx, number: u64) {
        ctx.repo.pull(number).merge().await.unwrap();
    }

    async fn redeliver_last(&self, ctx: &Ctx) {
        let last = ctx.forge.deliveries().pop().unwrap();
        ctx.forge.redeliver(last.id).unwrap();
    }

    fn answers(&self, ctx: &Ctx, number: u64) -> Vec<String> {
        let comments = ctx.repo.pull(number).bot_comments().unwrap();
        comments.into_iter().map(|comment| comment.body).collect()
    }

    fn is_success(&self, ctx: &Ctx, number: u64, context: &str) -> Option<bool> {
        let statuses = ctx.repo.pull(number).statuses().unwrap();
        statuses.get(context).filter(|status| status.state != "pending").map(|status| status.state == "success")
    }

    fn was_read(&self, ctx: &Ctx, number: u64) {
        ctx.pass_over(&ctx.repo.pull(number));
    }
}

/// Reads the server's comments on one pull request, one after the other.
struct Reader<'a, H> {
    ctx: &'a Ctx,
    host: &'a H,
    number: u64,
    read: usize,
}

impl<'a, H: FlowHost> Reader<'a, H> {
    async fn open(ctx: &'a Ctx, host: &'a H, branch: &str, file: (&str, &str)) -> Reader<'a, H> {
        Reader { ctx, host, number: host.open_one(ctx, branch, file).await, read: 0 }
    }

    async fn next(&mut self) -> Said {
        let (ctx, host, number, read) = (self.ctx, self.host, self.number, self.read);
        ctx.until("the server comments", async || host.answers(ctx, number).len() > read).await;
        host.was_read(ctx, number);
        self.read += 1;
        Said::new(&host.answers(ctx, number)[read])
    }

    async fn say(&mut self, text: &str) -> Said {
        self.host.comment_on(self.ctx, self.number, text).await;
        self.next().await
    }

    async fn succeeds(&self, context: &str) {
        let is = async || self.host.is_success(self.ctx, self.number, context) == Some(true);
        self.ctx.until(&format!("{context} is a success"), is).await;
    }

    fn count(&self) -> usize {
        self.host.answers(self.ctx, self.number).len()
    }
}

fn play<H: FlowHost>(host: H, story: impl AsyncFnOnce(&Ctx, &H)) {
    let setup = host.served(Setup::one_project().steps(&[PLANNED], &[APPLY]));
    run_test(setup, async |ctx| {
        host.connect(ctx).await;
        story(ctx, &host).await;
    });
}

/// The same story on every host.
macro_rules! on_every_host {
    ($($story:ident),*) => {$(
        mod $story {
            #[test]
            fn on_github() {
                super::play(super::GithubForge, super::stories::$story);
            }

            #[test]
            fn on_the_second_host() {
                super::play(super::Second::new(), super::stories::$story);
            }

            #[test]
            fn on_azure_devops() {
                super::play(super::AzureFake::start(), super::stories::$story);
            }
        }
    )*};
}

on_every_host!(
    from_autoplan_to_merge,
    only_a_moved_head_is_planned,
    missed_deliveries_are_found,
    a_redelivery_is_known
);

mod stories {
    use super::*;

    pub(super) async fn from_autoplan_to_merge<H: FlowHost>(ctx: &Ctx, host: &H) {
        let mut one = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
        one.next().await.is("plan", "success");
        one.succeeds("atlantis/plan").await;
        let mut two = Reader::open(ctx, host, "two", ("other.tf", "# 3\n")).await;
        let holder = format!("{}{}", H::MARK, one.number);
        two.next().await.is("plan", "failure").because("locked").has(&holder);
        two.say("atlantis plan").await.is("plan", "failure").because("locked");
        one.say("atlantis apply").await.is("apply", "success");
        one.succeeds("atlantis/apply").await;
        assert_eq!(ctx.locks().await, [format!("{}/./default/", host.full_name())]);
        let applied = std::fs::read_to_string(ctx.tmp.join("applied")).unwrap();
        assert_eq!(applied, format!("{} {}\n", host.full_name(), one.number));
        host.merge_one(ctx, one.number).await;
        one.next().await.is_message("cleanup");
        two.say("atlantis plan").await.is("plan", "success");
        two.say("atlantis unlock").await;
        assert!(ctx.locks().await.is_empty());
        two.say("atlantis plan").await.is("plan", "success");
        host.close_one(ctx, two.number).await;
        two.next().await.is_message("cleanup");
        assert!(ctx.locks().await.is_empty());
    }

    pub(super) async fn only_a_moved_head_is_planned<H: FlowHost>(ctx: &Ctx, host: &H) {
        let mut pull = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
        pull.next().await.is("plan", "success");
        host.touch(ctx, pull.number).await;
        host.push_to(ctx, pull.number, ("main.tf", "# 3\n")).await;
        pull.next().await.is("plan", "success");
        host.touch(ctx, pull.number).await;
        ctx.quiet().await;
        assert_eq!(pull.count(), 2);
    }

    pub(super) async fn missed_deliveries_are_found<H: FlowHost>(ctx: &Ctx, host: &H) {
        let mut closed = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
        closed.next().await.is("plan", "success");
        let mut asked = Reader::open(ctx, host, "two", ("other.tf", "# 2\n")).await;
        asked.next().await;
        ctx.quiet().await;
        ctx.server.stop().await;
        host.hear(ctx, false);
        host.close_one(ctx, closed.number).await;
        host.comment_on(ctx, asked.number, "atlantis help").await;
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        ctx.server.start().await;
        host.hear(ctx, true);
        closed.next().await.is_message("cleanup");
        asked.next().await.is_message("help");
    }

    pub(super) async fn a_redelivery_is_known<H: FlowHost>(ctx: &Ctx, host: &H) {
        let mut pull = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
        pull.next().await.is("plan", "success");
        pull.say("atlantis apply").await.is("apply", "success");
        ctx.quiet().await;
        host.redeliver_last(ctx).await;
        ctx.quiet().await;
        assert_eq!((pull.count(), ctx.lines("applied")), (2, 1));
    }
}
