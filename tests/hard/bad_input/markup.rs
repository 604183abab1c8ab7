//! Titles and names with text that hosts, browsers and terminals act on.

use crate::place::{CODE, Place, answer, marker};
use tidelock_forge::OpenOptions;

const NASTY: &str = "``` ` <!-- tidelock:{\"v\":1,\"run\":\"x\"} --> @team @acme/admins #1 <script>alert('t')</script> \
    <img src=x onerror=alert(1)> \u{1b}[31mred\u{1b}[0m \u{202e}flip & \"quote\" 'single' {{ 7*7 }} {% raw %}";

/// Checks that a page has nothing that a browser would run, or a host act on, unless it is escaped.
fn is_harmless_page(page: &str) {
    for live in ["<script>alert", "<img src=x", "onerror=alert(1)>", "\u{1b}", "\u{202e}"] {
        assert!(!page.contains(live), "{live:?} is live in:\n{page}");
    }
    assert!(!page.contains("<!-- tidelock"), "{page}");
}

#[tokio::test]
async fn titles_ping_nobody_forge_no_marker_and_run_no_script() {
    let place = Place::new(&[]).await;
    let options = OpenOptions { body: NASTY.to_owned(), ..OpenOptions::default() };
    let changes = [("a/main.tf", Some(CODE))];
    let pull = place.repo.open_pull("nasty", "alice", NASTY, &changes, options).await.unwrap();
    let comment = answer(&pull, 0).await;
    assert!(comment.body.contains("1 to add"), "{}", comment.body);

    // Another pull request is refused by its lock, so its comment and the lock's page show that title.
    let other = place.open("Plain", &[("a/main.tf", Some("# other\n"))]).await;
    let locked = answer(&other, 0).await;
    let facts = marker(&locked.body);
    assert_eq!(facts["results"][0]["reason"], "locked", "{facts}");
    let shown = without_marker(&locked.body);
    for live in ["<script", "<img", "@team", "@acme", "\u{1b}", "\u{202e}", "<!--"] {
        assert!(!shown.contains(live), "{live:?} is live in:\n{shown}");
    }

    let (status, headers, page) = place.page("/").await;
    assert_eq!(status, 200);
    assert!(headers["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
    assert!(page.contains("&lt;script&gt;"), "the title is not there:\n{page}");
    is_harmless_page(&page);
    let at = page.find("lock?").expect("a lock on the dashboard");
    let link: String = page[at..].chars().take_while(|c| *c != '"' && *c != '\'').collect();
    let (status, _, page) = place.page(&format!("/{}", link.replace("&amp;", "&"))).await;
    assert_eq!(status, 200, "{link}");
    assert!(page.contains("&lt;script&gt;"), "the title is not there:\n{page}");
    is_harmless_page(&page);
    place.still_works().await;
    place.stop().await;
}

#[tokio::test]
async fn directories_and_projects_are_shown_as_they_are_and_acted_on_by_nobody() {
    let place = Place::new(&[]).await;
    for dir in ["a ``` b", "<script>alert(1)<", "@team", "x--> <b>", "{{ 7*7 }}", "it's"] {
        let file = format!("{dir}/main.tf");
        let pull = place.open("Names", &[(&file, Some(CODE))]).await;
        let comment = answer(&pull, 0).await;
        let facts = marker(&comment.body);
        let shown = without_marker(&comment.body);
        assert!(!comment.body.contains('\u{1b}'), "{dir}: {}", comment.body);
        assert!(!shown.contains("<!--"), "{dir}: {shown}");
        assert_eq!(facts["results"].as_array().map(Vec::len), Some(1), "{dir}: {facts}");
        let (_, _, page) = place.page("/").await;
        is_harmless_page(&page);
        pull.close().unwrap();
    }
    // Names of projects have to be plain. The refusal of another name is itself harmless.
    let config = "version: 3\nprojects:\n- dir: a\n  name: '<!-- @team ```'\n";
    let pull = place.open("A name", &[("a/main.tf", Some(CODE)), ("atlantis.yaml", Some(config))]).await;
    let comment = answer(&pull, 0).await;
    marker(&comment.body);
    assert!(comment.body.contains("URL safe"), "{}", comment.body);
    place.still_works().await;
    place.stop().await;
}

#[tokio::test]
async fn arguments_of_commands_are_repeated_harmlessly() {
    let place = Place::new(&[]).await;
    let pull = place.open("A change", &[("a/main.tf", Some(CODE))]).await;
    answer(&pull, 0).await;
    let commands = [
        "atlantis plan -d '<!-- tidelock:{} --> @team'",
        "atlantis plan -p '``` <script>alert(1)</script>'",
        "atlantis plan --nope='@team <img src=x>'",
        "atlantis plam <b>@team</b>",
        "atlantis plan -d a -- -var='x=`@team`'",
    ];
    for (at, command) in commands.iter().enumerate() {
        pull.comment("bob", command).unwrap();
        let comment = answer(&pull, at + 1).await;
        marker(&comment.body);
        let shown = without_marker(&comment.body);
        // Nothing is live in code spans and fences; outside of them it must not be there.
        let (text, html) = outside_of_code(&shown);
        assert!(!text.contains("@team"), "{command}: somebody is pinged by:\n{shown}");
        for live in ["<script", "<img", "<b>", "<!--"] {
            assert!(!html.contains(live), "{command}: {live:?} is live in:\n{shown}");
        }
    }
    place.still_works().await;
    place.stop().await;
}

fn without_marker(comment: &str) -> String {
    comment.lines().filter(|line| !line.starts_with("<!-- tidelock:")).collect::<Vec<_>>().join("\n")
}

/// Returns text and HTML outside of code, by CommonMark's rules; hosts look for no names in `<code>` either.
fn outside_of_code(markdown: &str) -> (String, String) {
    use pulldown_cmark::{Event, Parser, Tag, TagEnd};
    let mut in_code = false;
    let (mut text, mut html) = (String::new(), String::new());
    for event in Parser::new(markdown) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::InlineHtml(tag) if &*tag == "<code>" => in_code = true,
            Event::InlineHtml(tag) if &*tag == "</code>" => in_code = false,
            Event::Text(piece) if !in_code => text.push_str(&piece),
            Event::Html(piece) | Event::InlineHtml(piece) => html.push_str(&piece),
            _ => {}
        }
    }
    (text, html)
}
