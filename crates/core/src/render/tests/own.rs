//! Tests of an operator's own templates: their abilities, rejections at the start, and the limits of their effects.

use super::super::own::{TemplateFile, with_own};
use super::super::templates::FILTERS;
use super::untrusted::{any_reply, check_with, check_without_html};
use super::*;
use crate::domain::language::CommentLanguage;
use proptest::prelude::*;

/// Page for people, whose example is tested here.
const PAGE: &str = include_str!("../../../../../docs/templates.md");

fn file(name: &str, text: &str) -> TemplateFile {
    TemplateFile { path: format!("/etc/t/{name}"), name: name.to_owned(), text: text.to_owned() }
}

fn with(files: &[(&str, &str)]) -> Result<RenderOptions, String> {
    let templates = with_own(files.iter().map(|(name, text)| file(name, text)).collect())?;
    Ok(RenderOptions { templates, ..options() })
}

fn refused_with(name: &str, text: &str) -> String {
    with(&[(name, text)]).unwrap_err()
}

/// Returns the fence after a heading of the page.
fn example(heading: &str) -> String {
    let (_, after) = PAGE.split_once(heading).unwrap_or_else(|| panic!("no {heading}"));
    let fenced = after.split("````").nth(1).unwrap();
    fenced.split_once('\n').unwrap().1.to_owned()
}

#[test]
fn the_pages_example_words_a_plan_as_atlantis_does() {
    let options = with(&[("one.md", &example("## Example"))]).unwrap();
    assert_snapshot!(read(&one(network_plan()), &options), @r"
    Ran Plan for project: `network` dir: `infra/network` workspace: `prod`

    <details><summary>Full plan (14 lines)</summary>

    ```diff
    + line
    + line
    + line
    + line
    + line
    + line
    + line
    + line
    + line
    + line
    + line
    + line

    Plan: 1 to add, 1 to change, 1 to destroy.
    ```

    </details>

    :arrow_forward: To **apply** this plan, comment:

    ```shell
    atlantis apply -p network
    ```

    :put_litter_in_its_place: To **delete** this plan and lock, click [here](https://tide.example/lock?id=github.com%2Facme%2Finfra%2Finfra%2Fnetwork%2Fprod%2Fnetwork)

    :repeat: To **plan** this project again, comment:

    ```shell
    atlantis plan -p network
    ```

    1 to add, 1 to change, 1 to destroy
    ");
    let failed = one(job(CommandName::Plan, network(), Outcome::Errored(fault(Reason::Plan, 3))));
    assert!(read(&failed, &options).starts_with("**Plan Error**"), "{}", read(&failed, &options));
}

#[test]
fn the_page_names_every_template_and_every_filter() {
    let templates = super::super::templates::TEMPLATES.iter().map(|(name, _)| *name);
    for name in templates.chain(FILTERS).chain(super::super::templates::COMMON) {
        assert!(PAGE.contains(&format!("`{name}`")), "docs/templates.md does not name {name}");
    }
}

#[test]
fn what_is_not_overridden_stays_and_own_pieces_can_be_used() {
    let options = with(&[
        ("closed_pull.md", "### {{ executable|upper }} says no\n{% include '_footer.md' %}\n"),
        ("_footer.md", "Ask in #infra about {{ mark }}{{ number }}.\n"),
    ])
    .unwrap();
    let closed = reply(CommandName::Plan, ReplyBody::Message(Message::ClosedPull));
    assert_eq!(read(&closed, &options), "### ATLANTIS says no\nAsk in #infra about #42.");
    assert_eq!(read(&one(network_plan()), &options), read(&one(network_plan()), &super::options()));
}

#[test]
fn what_is_wrong_is_refused_with_file_and_line() {
    for (name, text, error) in [
        ("planSuccessUnwrapped.tmpl", "x", "/etc/t/planSuccessUnwrapped.tmpl:1: this is a template of Go"),
        ("one.md", "a\n{{ if .Verbose }}b{{ end }}", "/etc/t/one.md:2: this is the language of Go's templates"),
        ("one.md", "{{- define \"x\" -}}", "/etc/t/one.md:1: this is the language of Go's templates"),
        ("one.md", "a\n\n{{ $x := 1 }}", "/etc/t/one.md:3: this is the language of Go's templates"),
        ("two.md", "x", "/etc/t/two.md:1: no comment has a template of this name; the nearest is one.md"),
        ("one.md", "a\n{% if x %}", "/etc/t/one.md:2: syntax error"),
        ("one.md", "a\n{{ result }}", "/etc/t/one.md:2: there is no `result` here; there are: "),
        ("one.md", "a\n{{ results[0].plann }}", "/etc/t/one.md:2: undefined value"),
        ("one.md", "{{ totals.line|safe }}", "/etc/t/one.md:1: there is no filter `safe`; there are: code, block"),
        ("one.md", "x\n```\n", "one.md leaves a fence open"),
        ("one.md", "<details><summary>a</summary>\n", "one.md leaves <details> open"),
        ("one.md", "a\n<!-- {{ number }} -->", "/etc/t/one.md:2: it has an HTML comment"),
        ("one.md", "<a title=\"{{ number }}\">", "/etc/t/one.md:1: it prints a value inside of an HTML tag"),
        ("one.md", "[x](https://{{ command }})", "/etc/t/one.md:1: it prints a value into a link's address"),
        ("macros.md", "{% macro who(p) %}x{% endmacro %}", "/etc/t/macros.md"),
        ("help.md", "{% include 'gone.md' %}", ""),
    ] {
        let said = with(&[(name, text)]).err().unwrap_or_default();
        assert!(
            said.starts_with(error) || (error.ends_with("macros.md") && !said.is_empty()),
            "{name} {text:?}: {said}"
        );
        assert!(!said.contains("Go") || said.contains("docs/templates.md"), "{said}");
    }
    assert!(refused_with("one.md", "{{ 1|nope }}").contains("`nope`"));
}

#[test]
fn a_template_that_fails_later_gives_way_to_the_built_in_one_and_says_so() {
    let options = with(&[("help.md", "{{ text.nothing }}\n")]).unwrap();
    let said = read(&reply(CommandName::Help, ReplyBody::Message(Message::Help { text: "plan".to_owned() })), &options);
    assert!(
        said.starts_with("### Commands") && said.contains("The server's own template could not word this"),
        "{said}"
    );
    let endless = "{% for a in text %}{% for b in text %}{{ text }}{{ text }}{{ text }}{% endfor %}{% endfor %}";
    let options = with(&[("help.md", endless), ("usage.md", "```\n{{ text }}\n")]).unwrap();
    for message in [Message::Help { text: "x".repeat(2000) }, Message::Usage { text: "x".to_owned() }] {
        let comments = render(&reply(CommandName::Help, ReplyBody::Message(message)), &options);
        assert!(comments.iter().all(|comment| comment.chars().count() <= options.comment_limit));
        assert!(comments.concat().contains("The server's own template could not word this"), "{comments:?}");
    }
}

#[test]
fn titles_of_commands_are_in_the_operators_language() {
    let options = RenderOptions { language: Arc::new(CommentLanguage::from_code("es").unwrap()), ..options() };
    assert!(read(&one(network_plan()), &options).starts_with("### Planificar: `network` · dir"));
    let applied = Outcome::Applied(Applied { added: 1, ..Applied::default() });
    let said = read(&one(job(CommandName::Apply, network(), applied)), &options);
    assert!(said.starts_with("### Aplicar: `network`: 1 added, 0 changed, 0 destroyed"), "{said}");
    let two = reply(CommandName::Plan, results(vec![network_plan(), network_plan()]));
    assert!(read(&two, &options).starts_with("### Planificar: Planned 2 projects: 2 with changes"));
    let body = ReplyBody::CommandError(fault(Reason::Config, 0));
    assert!(read(&reply(CommandName::Plan, body), &options).starts_with("### Planificar: failed"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Checks the same as for the built-in templates.
    #[test]
    fn nothing_gets_out_of_its_place_in_an_own_template(reply in any_reply(), limit in prop_oneof![Just(65_536_usize), Just(6_000)]) {
        let every = "{% for r in results %}{{ r.project.dir }} {{ r.project.dir|replace('a', '') }} {{ r.output }} {{ r.state }} {{ r.noun }}\n\
                     {{ r.error.message if r.error else '' }} {{ [r.project.dir, r.project.workspace]|join(' ') }} {{ r.project.dir[1:] }} \
                     {{ r.project.dir ~ r.project.workspace }}\n```\n{{ r.project.dir }}\n```\n{% endfor %}{{ totals.remarks|first }} {{ totals.branch|trim }}\n";
        let options = with(&[("one.md", every), ("several.md", every)]).unwrap();
        check_with(&reply, limit, &options)?;
        check_without_html(&reply, limit, &options)?;
    }
}
