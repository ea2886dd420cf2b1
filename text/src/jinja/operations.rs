//! The operations that rewrite.rs calls by name, and what they do in Python.

use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, State};

use super::arguments::divide;
use super::budget::{spend, MAX_TEXT};
use super::filters::escape_text;
use super::printf::{printf, Values};
use super::python::wrong;
use super::repr::write_text;

pub fn add(environment: &mut Environment) {
    environment.add_function("__sum__", sum);
    environment.add_filter("__spent__", counted);
    environment.add_function("__concat__", concat);
    environment.add_function("__positive__", positive);
    environment.add_function("__modulo__", modulo);
    environment.add_function("__slice__", slice);
    environment.add_function("__iterated__", iterated);
    environment.add_function("__call__", call);
}

/// a + b + ...
fn sum(state: &mut State, values: Rest<Value>) -> Result<Value, Error> {
    let mut values = values.iter().cloned();
    let first = values.next().unwrap_or_default();
    let all = values.try_fold(first, |left, right| {
        add_two(state, left, right).and_then(counted)
    });
    all.and_then(counted)
}

/// A text that is added to escaped text is escaped. What is neither text nor small numbers, the engine adds.
fn add_two(state: &mut State, left: Value, right: Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        return Ok(match (left.is_safe(), right.is_safe()) {
            (false, false) => Value::from([a, b].concat()),
            (true, false) => Value::from_safe_string(a.to_owned() + &escape_text(b)),
            (false, true) => Value::from_safe_string(escape_text(a) + b),
            (true, true) => Value::from_safe_string([a, b].concat()),
        });
    }
    let small = |value: &Value| value.as_i64().filter(|_| value.is_integer());
    if let Some(n) = small(&left).zip(small(&right)).and_then(|(a, b)| a.checked_add(b)) {
        return Ok(Value::from(n));
    }
    let operands = Value::from_pairs([("a", left), ("b", right)]);
    state.env().compile_expression("a + b")?.eval(operands)
}

/// The value, when its text is within the budget.
fn counted(value: Value) -> Result<Value, Error> {
    let bytes = value.as_str().map_or(0, str::len);
    spend(bytes).map(|()| value)
}

/// +a
fn positive(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Number => Ok(value),
        ValueKind::Bool => Ok(integer(i128::from(value.is_true()))),
        kind => Err(wrong(format!("+ of {kind}"))),
    }
}

/// a ~ b ~ ...
fn concat(values: Rest<Value>) -> Result<String, Error> {
    let mut out = String::new();
    for value in values.iter() {
        write_text(value, &mut out);
        if out.len() > MAX_TEXT {
            break;
        }
    }
    spend(out.len()).map(|()| out)
}

/// a % b: of a string, printf's formatting.
fn modulo(left: Value, right: Value) -> Result<Value, Error> {
    if let Some(pattern) = left.as_str() {
        return printf(pattern, Values::new(&right)?).map(Value::from);
    }
    if left.is_integer() && right.is_integer() {
        let (a, b) = (i128::try_from(left)?, i128::try_from(right)?);
        if b == 0 {
            return Err(wrong("division by zero"));
        }
        return Ok(integer(a.wrapping_rem(b).wrapping_add(b).wrapping_rem(b)));
    }
    let number = |value: &Value| match value.kind() {
        ValueKind::Number | ValueKind::Bool => {
            f64::try_from(value.clone()).or_else(|_| Ok(f64::from(u8::from(value.is_true()))))
        }
        kind => Err(wrong(format!("% of {kind}"))),
    };
    let (a, b) = (number(&left)?, number(&right)?);
    if b == 0.0 {
        return Err(wrong("division by zero"));
    }
    let rest = a % b;
    let value = if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
        rest + b
    } else {
        rest
    };
    Ok(if left.kind() == ValueKind::Bool && right.is_integer() {
        integer(value as i128)
    } else {
        Value::from(value)
    })
}

/// In the least room, so that it is equal to and prints as other integers.
pub fn integer(n: i128) -> Value {
    i64::try_from(n).map_or_else(|_| Value::from(n), Value::from)
}

/// value[start:stop:step]
fn slice(value: Value, start: Value, stop: Value, step: Value) -> Result<Value, Error> {
    let chars: Option<Vec<char>> = value.as_str().map(|text| text.chars().collect());
    let items: Vec<Value> = match (&chars, value.kind()) {
        (Some(_), _) => Vec::new(),
        (None, ValueKind::Seq | ValueKind::Iterable) => value.try_iter()?.collect(),
        (None, kind) => return Err(wrong(format!("{kind} cannot be sliced"))),
    };
    let len = chars.as_ref().map_or(items.len(), Vec::len) as i64;
    let step = if step.is_none() {
        1
    } else {
        i64::try_from(step)?
    };
    if step == 0 {
        return Err(wrong("cannot slice by a step of 0"));
    }
    // As slice.indices() of Python.
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let end = |value: Value, default: i64| -> Result<i64, Error> {
        if value.is_none() {
            return Ok(default);
        }
        let i = i64::try_from(value)?;
        Ok(if i < 0 { i.saturating_add(len) } else { i }.clamp(lowest, highest))
    };
    let start = end(start, if step > 0 { lowest } else { highest })?;
    let stop = end(stop, if step > 0 { highest } else { lowest })?;
    let mut places = Vec::new();
    let mut at = start;
    while (step > 0 && at < stop) || (step < 0 && at > stop) {
        places.push(usize::try_from(at).unwrap_or(0));
        at = at.saturating_add(step);
    }
    let items = |i: &usize| items[*i].clone();
    Ok(match chars {
        Some(chars) => Value::from(places.iter().map(|i| chars[*i]).collect::<String>()),
        None if value.is_tuple() => Value::from(Tuple::new(places.iter().map(items).collect())),
        None => places.iter().map(items).collect(),
    })
}

/// What a loop runs over: the characters of a string, as a list; None has no items to run over.
fn iterated(value: Value) -> Result<Value, Error> {
    match (value.as_str(), value.kind()) {
        (Some(text), _) => Ok(text.chars().map(|c| Value::from(c.to_string())).collect()),
        (None, ValueKind::None) => Err(wrong("none is not iterable")),
        _ => Ok(value),
    }
}

/// A macro whose last parameters are varargs and kwargs, which rewrite.rs gave it.
fn call(state: &mut State, callee: Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let names: Vec<String> = callee
        .get_attr("arguments")?
        .try_iter()?
        .map(|name| name.to_string())
        .collect();
    let Some(n_named) = names.len().checked_sub(2) else {
        return callee.call(state, &args);
    };
    let (places, given) = divide(&args);
    let (own, more) = places.split_at(places.len().min(n_named));
    let mut passed = vec![("varargs".to_owned(), Value::from(Tuple::from(more)))];
    let mut rest = Vec::new();
    for name in given.iter().flat_map(Kwargs::args) {
        let value = given
            .as_ref()
            .map_or(Ok(Value::UNDEFINED), |given| given.get::<Value>(name))?;
        let is_own = name == "caller" || names[..n_named].iter().any(|own| own == name);
        (if is_own { &mut passed } else { &mut rest }).push((name.to_owned(), value));
    }
    passed.push(("kwargs".to_owned(), Value::from_pairs(rest)));
    let mut all = own.to_vec();
    all.push(Value::from(passed.into_iter().collect::<Kwargs>()));
    callee.call(state, &all)
}
