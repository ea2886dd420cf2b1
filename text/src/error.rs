//! The error convention of base/status.h on this side of the boundary.

use std::fmt;

#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Invalid = 1,
    NotFound = 2,
    Unsupported = 3,
    Exhausted = 4,
    NoMemory = 5,
    Io = 6,
    Internal = 7,
    Unavailable = 8,
}

/// A status and one line of text that can be shown to a user as it is.
#[derive(Clone, Debug)]
pub struct Error {
    pub status: Status,
    pub text: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(status: Status, text: impl Into<String>) -> Error {
        Error {
            status,
            text: text.into(),
        }
    }

    pub fn invalid(text: impl Into<String>) -> Error {
        Error::new(Status::Invalid, text)
    }

    /// "prefix: " before the message: the file, then the field.
    pub fn at(mut self, prefix: impl fmt::Display) -> Error {
        self.text = format!("{prefix}: {}", self.text);
        self
    }
}

/// A JSON error without serde_json's " at line L column C", for a part of a file that was cut out
/// first, where the position would mislead.
pub fn without_position(e: serde_json::Error) -> Error {
    let text = e.to_string();
    let cut = if e.line() > 0 {
        text.rfind(" at line ")
    } else {
        None
    };
    Error::invalid(&text[..cut.unwrap_or(text.len())])
}
