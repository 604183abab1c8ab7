//! Links between the Markdown files of this repository: their files and headings exist.

use crate::page::{documents, root};
use pulldown_cmark::{Event, LinkType, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Links of a page, and the anchors that others may use.
#[derive(Default)]
struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

/// Reads a page. A repeated heading gets the anchor with a number, as on GitHub.
fn read(path: &Path) -> Page {
    let text = fs::read_to_string(path).unwrap();
    let (mut page, mut heading) = (Page::default(), None);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for event in Parser::new(&text) {
        match event {
            Event::Start(Tag::Link { link_type, dest_url, .. } | Tag::Image { link_type, dest_url, .. })
                if link_type != LinkType::Email =>
            {
                page.links.push(dest_url.into_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor_of(&heading.take().unwrap_or_default());
                let count = seen.entry(anchor.clone()).or_default();
                page.anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
                *count += 1;
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                let ids = html.split(r#"id=""#).skip(1).filter_map(|rest| rest.split_once('"'));
                page.anchors.extend(ids.map(|(id, _)| id.to_owned()));
            }
            _ => {}
        }
    }
    page
}

fn anchor_of(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Resolves `..` by name, as a browser does.
fn resolved(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = clean.pop(),
            Component::CurDir => {}
            part => clean.push(part),
        }
    }
    clean
}

fn pages() -> BTreeMap<PathBuf, Page> {
    documents().into_iter().map(|path| (path.clone(), read(&path))).collect()
}

#[test]
fn every_link_of_the_documents_has_its_target() {
    let pages = pages();
    let mut broken = Vec::new();
    let mut count = 0;
    for (path, page) in &pages {
        let inside = page.links.iter().filter(|link| !link.contains("://"));
        for link in inside {
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { resolved(&path.parent().unwrap().join(file)) };
            let has_anchor =
                || pages.get(&target).is_none_or(|page| anchor.is_empty() || page.anchors.contains(anchor));
            if !target.starts_with(root()) || !target.exists() || !has_anchor() {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(count > 300, "only {count} links were found");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
