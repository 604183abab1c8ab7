//! Macros that declare settings. An entry has the help text, the field, the kind of value and the default. Flag, variables, key of the
//! config file, field of the struct, reading and reference page derive from it.

/// Returns `gh-user` for the field `gh_user`.
pub(super) const fn dashed<const LENGTH: usize>(field: &str) -> [u8; LENGTH] {
    let (field, mut name) = (field.as_bytes(), [0; LENGTH]);
    let mut at = 0;
    while at < LENGTH {
        name[at] = if field[at] == b'_' { b'-' } else { field[at] };
        at += 1;
    }
    name
}

macro_rules! name_of {
    ($field:ident $name:literal) => {
        $name
    };
    ($field:ident) => {{
        const NAME: [u8; stringify!($field).len()] = $crate::settings::declare::dashed(stringify!($field));
        match std::str::from_utf8(&NAME) {
            Ok(name) => name,
            Err(_) => "",
        }
    }};
}

macro_rules! default_of {
    () => {
        ""
    };
    ($default:expr) => {
        $default
    };
}

/// Returns true for a setting that is marked with `[live]`.
macro_rules! is_live {
    () => {
        false
    };
    (live) => {
        true
    };
}

macro_rules! type_of {
    ($kind:ident $type:ty) => { $type };
    (Switch) => { bool };
    (Text) => { String };
    (Secret) => { Option<secrecy::SecretString> };
    (List) => { Vec<String> };
    (Duration) => { std::time::Duration };
}

macro_rules! read_as {
    ($reader:ident, $name:expr, $kind:ident $read:expr) => {
        $read($reader, $name)
    };
    ($reader:ident, $name:expr, Switch) => {
        $reader.switch($name)
    };
    ($reader:ident, $name:expr, Text) => {
        $reader.text($name)
    };
    ($reader:ident, $name:expr, Secret) => {
        $reader.secret($name)
    };
    ($reader:ident, $name:expr, List) => {
        $reader.list($name)
    };
    ($reader:ident, $name:expr, Duration) => {
        $reader.duration($name)
    };
}

/// Settings that are read one by one through [`super::typed::Reader`]:
///
/// ```text
/// static ROWS {
///     Atlantis {                                  // or `Tidelock`, if Atlantis does not have them
///         /// Help text.
///         field: Kind = "default",
///         /// A setting whose change in the config file takes effect without a restart.
///         field [live]: Kind = "default",
///     }
/// }
/// ```
macro_rules! rows {
    (static $rows:ident {
        $($origin:ident { $(
            $(#[doc = $help:literal])+
            $field:ident $([$live:ident])? $(as $name:literal)?: $kind:ident $(= $default:expr)?,
        )* })*
    }) => {
        pub(super) static $rows: &[$crate::settings::table::Setting] = &[$($(
            $crate::settings::table::Setting {
                name: name_of!($field $($name)?),
                kind: $crate::settings::table::ValueKind::$kind,
                default: default_of!($($default)?),
                help: concat!($($help),+).trim_ascii(),
                support: $crate::settings::table::Support::$origin,
                is_live: is_live!($($live)?),
            },
        )*)*];
    };
}

/// Settings that are fields of a struct, in the order in which they are read:
///
/// ```text
/// pub struct Settings, static ROWS {
///     [
///         /// A field that is made of several settings, or of none.
///         field: Type = function(&mut Reader) -> Type,
///     ]
///     Atlantis {
///         /// Help text.
///         field: Kind = "default",
///         /// A setting with another name, type and check.
///         field as "name": Kind -> Type = "default" => function(&mut Reader, name: &str) -> Type,
///     }
/// }
/// ```
macro_rules! settings {
    (
        $(#[$about:meta])*
        pub struct $struct:ident, static $rows:ident {
            [$(
                $(#[$doc:meta])*
                $made:ident: $made_type:ty = $make:expr,
            )*]
            $($origin:ident { $(
                $(#[doc = $help:literal])+
                $field:ident $([$live:ident])? $(as $name:literal)?: $kind:ident $(-> $type:ty)? $(= $default:expr)? $(=> $read:expr)?,
            )* })*
        }
    ) => {
        $(#[$about])*
        pub struct $struct {
            $($(#[$doc])* pub $made: $made_type,)*
            $($($(#[doc = $help])+ pub $field: type_of!($kind $($type)?),)*)*
        }

        impl $struct {
            /// Reads and checks all fields; the reader collects mistakes.
            pub(super) fn read(reader: &mut $crate::settings::typed::Reader) -> $struct {
                $struct {
                    $($made: $make(reader),)*
                    $($($field: read_as!(reader, name_of!($field $($name)?), $kind $($read)?),)*)*
                }
            }
        }

        rows! {
            static $rows {
                $($origin { $($(#[doc = $help])+ $field $([$live])? $(as $name)?: $kind $(= $default)?,)* })*
            }
        }
    };
}

/// Settings of Atlantis without an effect here, grouped by reason.
macro_rules! without_effect {
    (static $rows:ident {
        $($support:expr => { $($name:literal: $kind:ident $(= $default:literal)?, $help:literal;)* })*
    }) => {
        pub(super) static $rows: &[$crate::settings::table::Setting] = &[$($(
            $crate::settings::table::Setting {
                name: $name,
                kind: $crate::settings::table::ValueKind::$kind,
                default: default_of!($($default)?),
                help: $help,
                support: $support,
                is_live: true,
            },
        )*)*];
    };
}
