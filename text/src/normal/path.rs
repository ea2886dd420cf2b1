//! The place of a value in a client's JSON, for messages: a JSON pointer.

use std::fmt;

use crate::error::{Error, Result, Status};

#[derive(Clone, Copy)]
pub enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
    /// A place that a reference names.
    Fixed(&'a str),
}

impl<'a> Path<'a> {
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    pub fn item(&'a self, i: usize) -> Path<'a> {
        Path::Item(self, i)
    }

    pub fn invalid<T>(&self, why: impl fmt::Display) -> Result<T> {
        Err(self.error(Status::Invalid, why))
    }

    pub fn error(&self, status: Status, why: impl fmt::Display) -> Error {
        let at = self.to_string();
        let at = if at.is_empty() { "/".to_string() } else { at };
        Error::new(status, format!("{}: {why}", shortened(&at)))
    }
}

/// Messages have 512 bytes.
pub fn shortened(text: &str) -> String {
    const MAX: usize = 200;
    if text.len() <= MAX {
        return text.to_string();
    }
    let mut n = MAX;
    while !text.is_char_boundary(n) {
        n -= 1;
    }
    format!("{}…", &text[..n])
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Fixed(at) => f.write_str(at),
            Path::Item(parent, i) => write!(f, "{parent}/{i}"),
            Path::Key(parent, key) => {
                write!(f, "{parent}/{}", key.replace('~', "~0").replace('/', "~1"))
            }
        }
    }
}
