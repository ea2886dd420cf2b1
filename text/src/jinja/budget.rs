//! How much text the operations of one rendering may build. The engine counts instructions, and one of those can double a
//! text; what is stored must stay in bounds, and so must the time that copies take.
//!
//! An operation that cannot fail stops where the budget ends, and spent() then fails the rendering.

use std::cell::Cell;

use minijinja::Error;

use super::python::wrong;

/// Of one text: twice the output of a rendering.
pub const MAX_TEXT: usize = 32 << 20;
/// Of all texts together; a template that appends to a text copies it each time.
const MAX_ALL: usize = 4 << 30;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(MAX_ALL) };
}

/// A rendering begins on this thread.
pub fn start() {
    LEFT.set(MAX_ALL);
}

/// A text of so many bytes was built, or is to be built. After too much this fails until the next start().
pub fn spend(bytes: usize) -> Result<(), Error> {
    let left = LEFT.get().checked_sub(bytes);
    LEFT.set(left.filter(|_| bytes <= MAX_TEXT).unwrap_or(0));
    spent()
}

/// Fails where too much was built.
pub fn spent() -> Result<(), Error> {
    match LEFT.get() {
        0 => Err(wrong("the template builds too much text")),
        _ => Ok(()),
    }
}
