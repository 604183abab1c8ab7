//! Words of comments that an operator may have in another language: titles of commands, and the noun for a pull request.

use super::command::CommandName;

/// Languages that are built in.
pub const LANGUAGES: [&str; 2] = ["en", "es"];
/// The title of each command in Spanish.
const SPANISH: [(&str, &str); 9] = [
    ("plan", "Planificar"),
    ("apply", "Aplicar"),
    ("unlock", "Desbloquear"),
    ("policy_check", "Verificar políticas"),
    ("approve_policies", "Aprobar políticas"),
    ("version", "Versión"),
    ("import", "Importar"),
    ("state", "Estado"),
    ("cancel", "Cancelar"),
];

/// The words of one language. English titles are those of the templates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentLanguage {
    /// Title by name of the command, as Atlantis names them.
    titles: Vec<(String, String)>,
    /// The noun for a pull request.
    pub pull_request_label: String,
    /// The same on hosts that have merge requests.
    pub merge_request_label: String,
}

impl Default for CommentLanguage {
    fn default() -> CommentLanguage {
        CommentLanguage {
            titles: Vec::new(),
            pull_request_label: "Pull Request".to_owned(),
            merge_request_label: "Merge Request".to_owned(),
        }
    }
}

impl CommentLanguage {
    /// Returns a built-in language by its code, such as `es-MX`; absent if there is none.
    pub fn from_code(code: &str) -> Option<CommentLanguage> {
        let code = code.trim().to_lowercase();
        let titles = |list: &[(&str, &str)]| {
            list.iter().map(|(name, title)| ((*name).to_owned(), (*title).to_owned())).collect()
        };
        match code.split(['-', '_']).next().unwrap_or_default() {
            "" | "en" => Some(CommentLanguage::default()),
            "es" => Some(CommentLanguage {
                titles: titles(&SPANISH),
                pull_request_label: "Solicitud de extracción".to_owned(),
                merge_request_label: "Solicitud de fusión".to_owned(),
            }),
            _ => None,
        }
    }

    /// Sets the title of a command; an empty one is ignored.
    pub fn set_title(&mut self, name: &str, title: &str) {
        if title.is_empty() {
            return;
        }
        self.titles.retain(|(known, _)| known != name);
        self.titles.push((name.to_owned(), title.to_owned()));
    }

    /// Returns the title of a command; absent if the templates' own words apply.
    pub fn title(&self, command: CommandName) -> Option<&str> {
        let name = command.spec().hook_word;
        self.titles.iter().find(|(known, _)| known == name).map(|(_, title)| title.as_str())
    }
}
