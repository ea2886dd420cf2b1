//! textwrap.wrap() of Python, with white space kept as it is.

use super::python::is_space;
use super::repr::{class, contains};

/// The lines of all lines of a text. width > 0.
pub fn wordwrap(text: &str, width: usize, break_words: bool, on_hyphens: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let wrapped = wrap(line, width, break_words, on_hyphens);
        if wrapped.is_empty() {
            lines.push(String::new());
        }
        lines.extend(wrapped);
    }
    lines
}

fn wrap(line: &str, width: usize, break_words: bool, on_hyphens: bool) -> Vec<String> {
    let all = chunks(line, on_hyphens);
    let mut chunks: Vec<&[char]> = all.iter().rev().map(Vec::as_slice).collect();
    let is_blank = |chunk: &&[char]| chunk.iter().all(|c| is_space(*c));
    let mut lines = Vec::new();
    while !chunks.is_empty() {
        if !lines.is_empty() && chunks.last().is_some_and(is_blank) {
            chunks.pop();
        }
        let mut taken: Vec<&[char]> = Vec::new();
        let mut len = 0;
        while let Some(chunk) = chunks.pop_if(|chunk| len + chunk.len() <= width) {
            len += chunk.len();
            taken.push(chunk);
        }
        if chunks.last().is_some_and(|chunk| chunk.len() > width) {
            if break_words {
                let chunk = chunks.pop().unwrap_or_default();
                let end = long_word_end(chunk, width - len, on_hyphens);
                taken.push(&chunk[..end]);
                chunks.push(&chunk[end..]);
            } else if taken.is_empty() {
                taken.extend(chunks.pop());
            }
        }
        taken.pop_if(|chunk| is_blank(chunk));
        if !taken.is_empty() {
            lines.push(taken.concat().into_iter().collect());
        }
    }
    lines
}

/// How much of a word that is longer than a line goes into the room that is left.
fn long_word_end(word: &[char], room: usize, on_hyphens: bool) -> usize {
    let end = room.max(1);
    if on_hyphens {
        let hyphen = word[..room.min(word.len())].iter().rposition(|c| *c == '-');
        if let Some(at) = hyphen.filter(|at| word[..*at].iter().any(|c| *c != '-')) {
            return at + 1;
        }
    }
    end.min(word.len())
}

/// Words and the white space between them; words end behind their hyphens where lines may end there.
fn chunks(line: &str, on_hyphens: bool) -> Vec<Vec<char>> {
    let letter = class(r"[\p{L}_]");
    let is_letter = |c: Option<&char>| c.is_some_and(|c| contains(&letter, *c));
    let is_word =
        |c: Option<&char>| c.is_some_and(|c| c.is_alphanumeric() || "_!\"'&.,?".contains(*c));
    let chars: Vec<char> = line.chars().collect();
    let at = |i: Option<usize>| i.and_then(|i| chars.get(i));
    let ends_behind = |i: usize| {
        let two = is_letter(at(i.checked_sub(1))) && is_letter(at(i.checked_sub(2)));
        let one = is_word(at(i.checked_sub(1)))
            && at(i.checked_sub(2)) == Some(&'-')
            && is_letter(at(i.checked_sub(3)));
        let next = if chars.get(i + 2) == Some(&'-') {
            i + 3
        } else {
            i + 2
        };
        (two || one) && is_letter(chars.get(i + 1)) && is_letter(chars.get(next))
    };
    let mut chunks: Vec<Vec<char>> = Vec::new();
    let mut joins = false;
    for (i, c) in chars.iter().enumerate() {
        let same = i > 0 && is_space(chars[i - 1]) == is_space(*c);
        match chunks.last_mut() {
            Some(chunk) if same && joins => chunk.push(*c),
            _ => chunks.push(vec![*c]),
        }
        joins = !(on_hyphens && *c == '-' && ends_behind(i));
    }
    chunks
}
