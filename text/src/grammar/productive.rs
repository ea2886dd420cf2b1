//! Whether any string matches a grammar. The compiler accepts rules that recurse without an end, and terminals that
//! match nothing.

use std::collections::{HashMap, HashSet};

use llguidance::earley::CSymIdx;
use llguidance::TokenParser;

use super::tokens::Tokens;

/// Linear in the size of the grammar, without recursion.
pub fn is_productive(parser: &mut TokenParser, tokens: &Tokens) -> bool {
    let start = parser.parser.grammar().start();
    let mut uses: HashMap<usize, Vec<usize>> = HashMap::new();
    // Of each rule: its left side, and the symbols of its right side that are not known to be productive.
    let mut rules: Vec<(CSymIdx, usize)> = Vec::new();
    let mut known: Vec<CSymIdx> = Vec::new();
    for symbol in reachable(parser) {
        let grammar = parser.parser.grammar();
        let data = grammar.sym_data(symbol);
        if data.is_nullable || data.is_terminal {
            known.push(symbol);
        }
        for rule in grammar.rules_of(symbol) {
            let (parts, _, _) = grammar.rule_rhs(*rule);
            for part in parts {
                uses.entry(part.as_index()).or_default().push(rules.len());
            }
            rules.push((symbol, parts.len()));
        }
    }
    known.retain(|symbol| can_match(parser, tokens, *symbol));
    let mut found: HashSet<usize> = known.iter().map(|symbol| symbol.as_index()).collect();
    while let Some(symbol) = known.pop() {
        for rule in uses.remove(&symbol.as_index()).unwrap_or_default() {
            let (left, missing) = &mut rules[rule];
            *missing -= 1;
            if *missing == 0 && found.insert(left.as_index()) {
                known.push(*left);
            }
        }
    }
    found.contains(&start.as_index())
}

fn reachable(parser: &TokenParser) -> Vec<CSymIdx> {
    let grammar = parser.parser.grammar();
    let mut order = vec![grammar.start()];
    let mut seen = HashSet::from([grammar.start().as_index()]);
    let mut next = 0;
    while let Some(symbol) = order.get(next).copied() {
        next += 1;
        for rule in grammar.rules_of(symbol) {
            let new = |part: &CSymIdx| seen.insert(part.as_index());
            order.extend(grammar.rule_rhs(*rule).0.iter().copied().filter(new));
        }
    }
    order
}

/// Whether a terminal matches some text, or some token that does not end the answer. A symbol that may be empty can.
fn can_match(parser: &mut TokenParser, tokens: &Tokens, symbol: CSymIdx) -> bool {
    let grammar = parser.parser.grammar();
    let data = grammar.sym_data(symbol);
    let Some(lexeme) = data
        .lexeme
        .filter(|_| data.is_terminal && !data.is_nullable)
    else {
        return true;
    };
    let spec = grammar.lexer_spec();
    let mut alone = spec.alloc_lexeme_set();
    alone.add(lexeme);
    if let [token] = spec.token_range_lexemes(&alone)[..] {
        let ends = tokens.eos.iter().any(|id| token.contains_token(*id));
        let goes_on = |id: u32| token.contains_token(id) && !tokens.eos.contains(&id);
        return !ends || (0..tokens.live.len() as u32 * 32).any(goes_on);
    }
    let first = |r: &mut llguidance::earley::ParserRecognizer<'_>| {
        let state = r.lexer_mut().start_state(&alone);
        !state.is_dead()
    };
    parser.parser.with_recognizer(first)
}
