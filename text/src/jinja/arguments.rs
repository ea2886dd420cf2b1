//! The arguments of a filter, method or function, by place or by name.

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};

use super::python::wrong;

/// Those by place, and those by name.
pub fn divide(args: &[Value]) -> (&[Value], Option<Kwargs>) {
    match args.split_last() {
        Some((last, places)) if last.is_kwargs() => (places, Kwargs::try_from(last.clone()).ok()),
        _ => (args, None),
    }
}

/// As wide as a method may make a text.
pub const MAX_WIDTH: i64 = 1 << 20;

/// The arguments of one call, by place or by name.
pub struct Arguments<'a> {
    places: &'a [Value],
    names: Option<Kwargs>,
    taken: usize,
}

impl<'a> Arguments<'a> {
    pub fn new(args: &'a [Value]) -> Arguments<'a> {
        let (places, names) = divide(args);
        Arguments {
            places,
            names,
            taken: 0,
        }
    }

    /// The next argument; "" has no name.
    pub fn next(&mut self, name: &str) -> Result<Option<Value>, Error> {
        let given = match (self.places.get(self.taken), &self.names) {
            (Some(value), _) => Some(value.clone()),
            (None, Some(names)) if !name.is_empty() => names.get::<Option<Value>>(name)?,
            (None, _) => None,
        };
        self.taken += 1;
        Ok(given.filter(|value| !value.is_none()))
    }

    pub fn text(&mut self, name: &str) -> Result<Option<String>, Error> {
        let value = self.next(name)?;
        let text = |v: Value| {
            v.as_str()
                .map(str::to_owned)
                .ok_or_else(|| wrong("an argument must be a string"))
        };
        value.map(text).transpose()
    }

    pub fn flag(&mut self, name: &str, default: bool) -> Result<bool, Error> {
        Ok(self.next(name)?.map_or(default, |value| value.is_true()))
    }

    pub fn need(&mut self) -> Result<String, Error> {
        self.text("")?
            .ok_or_else(|| Error::from(ErrorKind::MissingArgument))
    }

    pub fn number(&mut self, name: &str) -> Result<Option<i64>, Error> {
        self.next(name)?.map(i64::try_from).transpose()
    }

    pub fn width(&mut self) -> Result<usize, Error> {
        let width = self
            .number("")?
            .ok_or_else(|| Error::from(ErrorKind::MissingArgument))?;
        if width > MAX_WIDTH {
            return Err(wrong(format!("a width of {width} is too large")));
        }
        Ok(usize::try_from(width).unwrap_or(0))
    }

    pub fn fill(&mut self) -> Result<char, Error> {
        let Some(fill) = self.text("")? else {
            return Ok(' ');
        };
        let mut chars = fill.chars();
        match (chars.next(), chars.next()) {
            (Some(fill), None) => Ok(fill),
            _ => Err(wrong("the fill must be one character")),
        }
    }

    pub fn end(self) -> Result<(), Error> {
        if self.places.len() > self.taken {
            return Err(Error::from(ErrorKind::TooManyArguments));
        }
        self.names.map_or(Ok(()), |names| names.assert_all_used())
    }
}
