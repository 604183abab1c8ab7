//! The table of keys of both configuration files: what people read about each. The parser says which keys and types there are.

mod repo_file;
mod server_file;
mod shared;

/// A mapping of a configuration file.
pub(super) struct Section {
    /// Its name: that of its definition in the schema.
    pub(super) name: &'static str,
    pub(super) keys: &'static [Key],
}

/// One key.
#[derive(Clone, Copy)]
pub(super) struct Key {
    pub(super) name: &'static str,
    /// Sentences in Markdown, with the links of the page that has the key.
    pub(super) meaning: &'static str,
    /// Form of its text.
    pub(super) form: Option<Form>,
    pub(super) values: Values,
    pub(super) default: Default,
    /// An example in YAML.
    pub(super) example: Option<&'static str>,
    /// Keys in YAML that the example needs beside it.
    pub(super) beside: &'static str,
    /// Fewest and most items, if it is a list.
    pub(super) items: Option<(usize, usize)>,
    /// Smallest and largest number.
    pub(super) range: Option<(i64, i64)>,
    /// Section of the mappings in its value.
    pub(super) section: &'static str,
    pub(super) origin: Origin,
}

/// Form of a text.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// Its name in tables.
    pub(super) name: &'static str,
    /// Regular expression that a valid text matches, of the syntax that Rust and JavaScript share.
    pub(super) pattern: &'static str,
}

/// Values of a key with few of them.
#[derive(Clone, Copy)]
pub(super) enum Values {
    Any,
    /// Those that the parser lists when it refuses another one.
    Listed,
    /// These.
    Only(&'static [&'static str]),
}

/// Value of a key that is absent.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Default {
    None,
    /// There is none: the key is required.
    Required,
    /// A value in YAML.
    Value(&'static str),
    /// Words in Markdown.
    Words(&'static str),
}

/// Which program has a key.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Origin {
    Atlantis,
    /// Atlantis refuses a file with it.
    Tidelock,
}

const fn key(name: &'static str, meaning: &'static str) -> Key {
    Key {
        name,
        meaning,
        form: None,
        values: Values::Any,
        default: Default::None,
        example: None,
        beside: "{}",
        items: None,
        range: None,
        section: "",
        origin: Origin::Atlantis,
    }
}

impl Key {
    const fn form(self, form: Form) -> Key {
        Key { form: Some(form), ..self }
    }
    const fn listed(self) -> Key {
        Key { values: Values::Listed, ..self }
    }
    const fn only(self, values: &'static [&'static str]) -> Key {
        Key { values: Values::Only(values), ..self }
    }
    const fn required(self) -> Key {
        Key { default: Default::Required, ..self }
    }
    const fn default(self, value: &'static str) -> Key {
        Key { default: Default::Value(value), ..self }
    }
    const fn by_default(self, words: &'static str) -> Key {
        Key { default: Default::Words(words), ..self }
    }
    const fn example(self, value: &'static str) -> Key {
        Key { example: Some(value), ..self }
    }
    const fn beside(self, keys: &'static str) -> Key {
        Key { beside: keys, ..self }
    }
    const fn items(self, fewest: usize, most: usize) -> Key {
        Key { items: Some((fewest, most)), ..self }
    }
    const fn range(self, smallest: i64, largest: i64) -> Key {
        Key { range: Some((smallest, largest)), ..self }
    }
    const fn of(self, section: &'static str) -> Key {
        Key { section, ..self }
    }
    const fn only_here(self) -> Key {
        Key { origin: Origin::Tidelock, ..self }
    }
    pub(super) fn is_required(&self) -> bool {
        self.default == Default::Required
    }
}

/// Returns the section of that name.
pub(super) fn section(name: &str) -> &'static Section {
    let all = [repo_file::SECTIONS, server_file::SECTIONS, shared::SECTIONS];
    all.into_iter().flatten().find(|section| section.name == name).unwrap_or_else(|| panic!("no section `{name}`"))
}
