//! Reads any type through one instance of the parser's code.
//!
//! The methods of `serde_saphyr`'s deserializer are generic over the visitor, and mappings with their merge keys and aliases take many
//! kilobytes for each type that is read. Here all of them get the same visitor, [`ParserVisitor`], and the same seed, [`ParserSeed`], which pass
//! what is read to those of the type behind trait objects ([`ErasedVisitor`], [`ErasedSeed`]). The types see the parser behind trait objects too
//! ([`ErasedValue`], [`ErasedList`], [`ErasedMap`]).
//!
//! Errors keep their positions: one of the parser stays with the parser's half of the bridge and is taken up again on the way out, while
//! the type's half sees [`TypeProblem::Passed`]. One of the type becomes one of the parser where the parser called the type.
//!
//! Enums of serde, bytes and borrowed text are not read: no file needs them.

use super::type_error::{TypeError, TypeProblem, nothing};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Error, Options};
use std::fmt;
use std::marker::PhantomData;

/// Parses one document into a type, as `serde_saphyr::from_str_with_options` does.
pub(super) fn from_str<T: DeserializeOwned>(text: &str, options: Options) -> Result<T, Error> {
    let mut sown = TypeSeed::new(PhantomData);
    parse(text, options, &mut sown)?;
    sown.value.ok_or_else(nothing)
}

fn parse<'de>(text: &'de str, options: Options, start: &mut dyn ErasedSeed<'de>) -> Result<(), Error> {
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |source| ParserSeed(start).deserialize(source))
}

/// What a type asks for, as the methods of [`Deserializer`] have it.
#[derive(Clone, Copy)]
enum Wanted {
    Any,
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    Char,
    Str,
    String,
    Option,
    Unit,
    UnitStruct(&'static str),
    Newtype(&'static str),
    List,
    Tuple(usize),
    TupleStruct(&'static str, usize),
    Map,
    Struct(&'static str, &'static [&'static str]),
    Identifier,
    Ignored,
}

/// What a type gets, as the methods of [`Visitor`] have it.
enum ParsedValue<'a, 'de> {
    Bool(bool),
    I64(i64),
    I128(i128),
    U64(u64),
    U128(u128),
    F64(f64),
    Str(&'a str),
    String(String),
    Unit,
    None,
    Some(&'a mut dyn ErasedValue<'de>),
    Newtype(&'a mut dyn ErasedValue<'de>),
    List(&'a mut dyn ErasedList<'de>),
    Map(&'a mut dyn ErasedMap<'de>),
}

/// A value that waits to be read: a [`Deserializer`].
trait ErasedValue<'de> {
    fn read(&mut self, wanted: Wanted, sink: &mut dyn ErasedVisitor<'de>) -> Result<(), TypeError>;
}

/// The rest of a list: a [`SeqAccess`].
trait ErasedList<'de> {
    fn next(&mut self, start: &mut dyn ErasedSeed<'de>) -> Result<bool, TypeError>;
}

/// The rest of a mapping: a [`MapAccess`].
trait ErasedMap<'de> {
    fn next_key(&mut self, start: &mut dyn ErasedSeed<'de>) -> Result<bool, TypeError>;
    fn next_value(&mut self, start: &mut dyn ErasedSeed<'de>) -> Result<(), TypeError>;
}

/// What a type makes of a value: a [`Visitor`].
trait ErasedVisitor<'de> {
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    fn take(&mut self, seen: ParsedValue<'_, 'de>) -> Result<(), TypeError>;
}

/// A type that is about to be read: a [`DeserializeSeed`].
trait ErasedSeed<'de> {
    fn start(&mut self, source: &mut dyn ErasedValue<'de>) -> Result<(), TypeError>;
}

/// The parser's half: a value of the parser, and its last error.
struct Lent<T, E> {
    inner: T,
    error: Option<E>,
}

impl<T, E: serde::de::Error> Lent<T, E> {
    /// Keeps the error of a call of the parser.
    fn keep<R>(&mut self, result: Result<R, E>) -> Result<R, TypeError> {
        result.map_err(|error| {
            self.error = Some(error);
            TypeProblem::Passed.into()
        })
    }
}

/// Lends a value of the parser to a type.
fn lend<T, E: serde::de::Error>(inner: T, to: impl FnOnce(&mut Lent<T, E>) -> Result<(), TypeError>) -> Result<(), E> {
    let mut held = Lent { inner, error: None };
    to(&mut held).map_err(|fault| fault.raise(held.error.take()))
}

impl<'de, D: Deserializer<'de>> ErasedValue<'de> for Lent<Option<D>, D::Error> {
    fn read(&mut self, wanted: Wanted, sink: &mut dyn ErasedVisitor<'de>) -> Result<(), TypeError> {
        let Some(source) = self.inner.take() else { return Err(nothing()) };
        let receiver = ParserVisitor(sink);
        let result = match wanted {
            Wanted::Any => source.deserialize_any(receiver),
            Wanted::Bool => source.deserialize_bool(receiver),
            Wanted::I8 => source.deserialize_i8(receiver),
            Wanted::I16 => source.deserialize_i16(receiver),
            Wanted::I32 => source.deserialize_i32(receiver),
            Wanted::I64 => source.deserialize_i64(receiver),
            Wanted::U8 => source.deserialize_u8(receiver),
            Wanted::U16 => source.deserialize_u16(receiver),
            Wanted::U32 => source.deserialize_u32(receiver),
            Wanted::U64 => source.deserialize_u64(receiver),
            Wanted::F32 => source.deserialize_f32(receiver),
            Wanted::F64 => source.deserialize_f64(receiver),
            Wanted::Char => source.deserialize_char(receiver),
            Wanted::Str => source.deserialize_str(receiver),
            Wanted::String => source.deserialize_string(receiver),
            Wanted::Option => source.deserialize_option(receiver),
            Wanted::Unit => source.deserialize_unit(receiver),
            Wanted::UnitStruct(name) => source.deserialize_unit_struct(name, receiver),
            Wanted::Newtype(name) => source.deserialize_newtype_struct(name, receiver),
            Wanted::List => source.deserialize_seq(receiver),
            Wanted::Tuple(length) => source.deserialize_tuple(length, receiver),
            Wanted::TupleStruct(name, length) => source.deserialize_tuple_struct(name, length, receiver),
            Wanted::Map => source.deserialize_map(receiver),
            Wanted::Struct(name, fields) => source.deserialize_struct(name, fields, receiver),
            Wanted::Identifier => source.deserialize_identifier(receiver),
            Wanted::Ignored => source.deserialize_ignored_any(receiver),
        };
        self.keep(result)
    }
}

impl<'de, A: SeqAccess<'de>> ErasedList<'de> for Lent<A, A::Error> {
    fn next(&mut self, start: &mut dyn ErasedSeed<'de>) -> Result<bool, TypeError> {
        let item = self.inner.next_element_seed(ParserSeed(start));
        self.keep(item).map(|item| item.is_some())
    }
}

impl<'de, A: MapAccess<'de>> ErasedMap<'de> for Lent<A, A::Error> {
    fn next_key(&mut self, start: &mut dyn ErasedSeed<'de>) -> Result<bool, TypeError> {
        let key = self.inner.next_key_seed(ParserSeed(start));
        self.keep(key).map(|key| key.is_some())
    }
    fn next_value(&mut self, start: &mut dyn ErasedSeed<'de>) -> Result<(), TypeError> {
        let value = self.inner.next_value_seed(ParserSeed(start));
        self.keep(value)
    }
}

/// The seed that the parser sees.
struct ParserSeed<'a, 'de>(&'a mut dyn ErasedSeed<'de>);

impl<'de> DeserializeSeed<'de> for ParserSeed<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        lend(Some(source), |held| self.0.start(held))
    }
}

/// The visitor that the parser sees.
struct ParserVisitor<'a, 'de>(&'a mut dyn ErasedVisitor<'de>);

macro_rules! scalars {
    ($($visit:ident($value:ty) $seen:ident;)*) => {
        $(fn $visit<E: serde::de::Error>(self, value: $value) -> Result<(), E> {
            self.0.take(ParsedValue::$seen(value)).map_err(|fault| fault.raise(None))
        })*
    };
}

impl<'de> Visitor<'de> for ParserVisitor<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }
    scalars! {
        visit_bool(bool) Bool;
        visit_i64(i64) I64;
        visit_i128(i128) I128;
        visit_u64(u64) U64;
        visit_u128(u128) U128;
        visit_f64(f64) F64;
        visit_str(&str) Str;
        visit_string(String) String;
    }
    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.0.take(ParsedValue::Unit).map_err(|fault| fault.raise(None))
    }
    fn visit_none<E: serde::de::Error>(self) -> Result<(), E> {
        self.0.take(ParsedValue::None).map_err(|fault| fault.raise(None))
    }
    fn visit_some<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        lend(Some(source), |held| self.0.take(ParsedValue::Some(held)))
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        lend(Some(source), |held| self.0.take(ParsedValue::Newtype(held)))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        lend(items, |held| self.0.take(ParsedValue::List(held)))
    }
    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<(), A::Error> {
        lend(entries, |held| self.0.take(ParsedValue::Map(held)))
    }
}

/// A type's visitor, and what it has made.
struct TypeVisitor<'de, V: Visitor<'de>> {
    visitor: Option<V>,
    value: Option<V::Value>,
}

impl<'de, V: Visitor<'de>> ErasedVisitor<'de> for TypeVisitor<'de, V> {
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.as_ref().map_or(Ok(()), |visitor| visitor.expecting(f))
    }
    fn take(&mut self, seen: ParsedValue<'_, 'de>) -> Result<(), TypeError> {
        let Some(visitor) = self.visitor.take() else { return Err(nothing()) };
        let made = match seen {
            ParsedValue::Bool(value) => visitor.visit_bool(value),
            ParsedValue::I64(value) => visitor.visit_i64(value),
            ParsedValue::I128(value) => visitor.visit_i128(value),
            ParsedValue::U64(value) => visitor.visit_u64(value),
            ParsedValue::U128(value) => visitor.visit_u128(value),
            ParsedValue::F64(value) => visitor.visit_f64(value),
            ParsedValue::Str(value) => visitor.visit_str(value),
            ParsedValue::String(value) => visitor.visit_string(value),
            ParsedValue::Unit => visitor.visit_unit(),
            ParsedValue::None => visitor.visit_none(),
            ParsedValue::Some(source) => visitor.visit_some(TypeValue(source)),
            ParsedValue::Newtype(source) => visitor.visit_newtype_struct(TypeValue(source)),
            ParsedValue::List(items) => visitor.visit_seq(TypeList(items)),
            ParsedValue::Map(entries) => visitor.visit_map(TypeMap(entries)),
        };
        self.value = Some(made?);
        Ok(())
    }
}

/// A type's seed, and what has become of it.
struct TypeSeed<S, T> {
    seed: Option<S>,
    value: Option<T>,
}

impl<S, T> TypeSeed<S, T> {
    fn new(seed: S) -> TypeSeed<S, T> {
        TypeSeed { seed: Some(seed), value: None }
    }
}

impl<'de, S: DeserializeSeed<'de>> ErasedSeed<'de> for TypeSeed<S, S::Value> {
    fn start(&mut self, source: &mut dyn ErasedValue<'de>) -> Result<(), TypeError> {
        let Some(seed) = self.seed.take() else { return Err(nothing()) };
        self.value = Some(seed.deserialize(TypeValue(source))?);
        Ok(())
    }
}

/// The deserializer that types see.
struct TypeValue<'a, 'de>(&'a mut dyn ErasedValue<'de>);

impl<'de> TypeValue<'_, 'de> {
    fn read<V: Visitor<'de>>(self, wanted: Wanted, visitor: V) -> Result<V::Value, TypeError> {
        let mut slot = TypeVisitor { visitor: Some(visitor), value: None };
        self.0.read(wanted, &mut slot)?;
        slot.value.ok_or_else(nothing)
    }
}

macro_rules! wanted {
    ($($method:ident($($argument:ident: $type:ty),*) $wanted:ident;)*) => {
        $(fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, TypeError> {
            self.read(wanted!(@ $wanted $($argument)*), visitor)
        })*
    };
    (@ $wanted:ident) => { Wanted::$wanted };
    (@ $wanted:ident $($argument:ident)+) => { Wanted::$wanted($($argument),+) };
}

impl<'de> Deserializer<'de> for TypeValue<'_, 'de> {
    type Error = TypeError;

    wanted! {
        deserialize_any() Any;
        deserialize_bool() Bool;
        deserialize_i8() I8;
        deserialize_i16() I16;
        deserialize_i32() I32;
        deserialize_i64() I64;
        deserialize_u8() U8;
        deserialize_u16() U16;
        deserialize_u32() U32;
        deserialize_u64() U64;
        deserialize_f32() F32;
        deserialize_f64() F64;
        deserialize_char() Char;
        deserialize_str() Str;
        deserialize_string() String;
        deserialize_option() Option;
        deserialize_unit() Unit;
        deserialize_unit_struct(name: &'static str) UnitStruct;
        deserialize_newtype_struct(name: &'static str) Newtype;
        deserialize_seq() List;
        deserialize_tuple(length: usize) Tuple;
        deserialize_tuple_struct(name: &'static str, length: usize) TupleStruct;
        deserialize_map() Map;
        deserialize_struct(name: &'static str, fields: &'static [&'static str]) Struct;
        deserialize_identifier() Identifier;
        deserialize_ignored_any() Ignored;
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, _: V) -> Result<V::Value, TypeError> {
        Err(TypeError::custom("bytes are not read from YAML"))
    }
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        self.deserialize_bytes(visitor)
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, TypeError> {
        Err(TypeError::custom(format!("the enum {name} is not read from YAML")))
    }
}

/// The list that types see.
struct TypeList<'a, 'de>(&'a mut dyn ErasedList<'de>);

impl<'de> SeqAccess<'de> for TypeList<'_, 'de> {
    type Error = TypeError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, TypeError> {
        let mut sown = TypeSeed::new(seed);
        let is_there = self.0.next(&mut sown)?;
        Ok(sown.value.filter(|_| is_there))
    }
}

/// The mapping that types see.
struct TypeMap<'a, 'de>(&'a mut dyn ErasedMap<'de>);

impl<'de> MapAccess<'de> for TypeMap<'_, 'de> {
    type Error = TypeError;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, TypeError> {
        let mut sown = TypeSeed::new(seed);
        let is_there = self.0.next_key(&mut sown)?;
        Ok(sown.value.filter(|_| is_there))
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, TypeError> {
        let mut sown = TypeSeed::new(seed);
        self.0.next_value(&mut sown)?;
        sown.value.ok_or_else(nothing)
    }
}
