//! Call forms of a function with a request body, checked as the catalog accepts them.
//!
//! `f({ id = 1 }, body)`, `f({ id = 1, body = … })`, `f({ id = 1, name = "Rex" })` with fields of the body next to the
//! parameters, and `f(body)` if the body is not a table.

use crate::check::{Check, Found, Literal, Misfit, Problem, Step};
use crate::function::{Argument, Function};
use crate::model::{Rest, Table, Type};
use ctx_core::{BodyArgument, nearest};

/// A table literal.
struct Written<'a> {
    fields: &'a [(String, Literal)],
    whole: bool,
}

impl Written<'_> {
    /// The fields whose names match; a field that is `nil` is absent.
    fn part(&self, is_meant: impl Fn(&str) -> bool) -> Vec<(String, Literal)> {
        let is_there = |(name, value): &&(String, Literal)| *value != Literal::Nil && is_meant(name);
        self.fields.iter().filter(is_there).cloned().collect()
    }
}

impl Function {
    /// The misfits of a call of a function with a body. If a call can be read in two ways, only misfits of both
    /// readings count.
    pub(crate) fn misfits_beside(
        &self,
        body: &BodyArgument,
        given: &[Literal],
        check: &mut Check<'_>,
    ) -> Vec<Misfit> {
        let sent = self.arguments.iter().find(|argument| argument.is_body);
        let (Some(params), Some(sent)) = (&self.params, sent) else { return Vec::new() };
        let (mut first, mut second) = (Found::default(), Found::default());
        let beside = given.get(1).filter(|literal| **literal != Literal::Nil);
        let nothing = Literal::nothing();
        let is_given = !matches!(given.first(), None | Some(Literal::Nil));
        let alone = given.first().filter(|_| is_given).unwrap_or(&nothing);
        match (alone, beside) {
            (Literal::Unknown, None) => {}
            (Literal::Unknown, Some(beside)) => check.value(&sent.of, beside, &mut second),
            (Literal::Table { fields, whole }, Some(Literal::Unknown)) => {
                let fields = Written { fields, whole: *whole }.part(|name| params.names(name));
                check.table(params, &Literal::Table { fields, whole: *whole }, &mut first);
            }
            (Literal::Table { .. }, Some(beside)) => {
                check.table(params, alone, &mut first);
                check.value(&sent.of, beside, &mut second);
            }
            (Literal::Table { fields, whole }, None) => {
                let written = Written { fields, whole: *whole };
                let is_empty = is_given && fields.is_empty() && params.fields.is_empty();
                // An empty list as the body: there is no parameter to which the braces could belong.
                if is_empty && sent.required && !body.has_fields {
                    check.value(&sent.of, alone, &mut first);
                } else {
                    in_one_table(params, body, sent, &written, check, &mut first);
                }
            }
            (_, None | Some(Literal::Unknown)) => {
                check.table(params, &nothing, &mut first);
                check.value(&sent.of, alone, &mut first);
            }
            (_, Some(beside)) => {
                first.add(Problem::Wrong { expected: check.expected(&Type::Table(params.clone())) });
                check.value(&sent.of, beside, &mut second);
            }
        }
        let mut misfits: Vec<Misfit> = first.of(0).chain(second.of(1)).collect();
        if given.get(2).is_some_and(|literal| !matches!(literal, Literal::Nil | Literal::Unknown)) {
            misfits.push(Misfit { argument: 2, path: Vec::new(), problem: Problem::TooMany });
        }
        misfits
    }
}

impl Table {
    fn names(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.name == name)
    }
}

/// Checks one table that contains the parameters and the body, by its name or by its fields.
fn in_one_table(
    params: &Table,
    body: &BodyArgument,
    sent: &Argument,
    written: &Written<'_>,
    check: &mut Check<'_>,
    found: &mut Found,
) {
    let whole = written.whole;
    let own = || Literal::Table { fields: written.part(|name| params.names(name)), whole };
    let named = written.fields.iter().find(|(name, value)| *name == body.name && *value != Literal::Nil);
    match named {
        // The value may be nil at run time, and the other names may be fields of the body.
        Some((_, Literal::Unknown)) if body.has_fields => check.table(params, &own(), found),
        Some((_, value)) => {
            let others = Literal::Table { fields: written.part(|name| name != body.name), whole };
            check.table(params, &others, found);
            found.at.push(Step::Field(body.name.clone()));
            check.value(&sent.of, value, found);
            found.at.pop();
        }
        None if body.has_fields => {
            check.table(params, &own(), found);
            let fields = written.part(|name| !params.names(name));
            let is_left_out = params.left_out > 0 || matches!(params.rest, Rest::Of(_));
            // If all these values may be nil at run time, there may be no body.
            let is_doubtful = !sent.required && fields.iter().all(|(_, value)| *value == Literal::Unknown);
            if is_left_out || is_doubtful && fields.is_empty() {
                return;
            }
            let mut inside = Found::default();
            let fields = Literal::Table { fields, whole: whole && !is_doubtful };
            check.value(&sent.of, &fields, &mut inside);
            for Misfit { path, problem, .. } in inside.of(0) {
                let problem = match (path.as_slice(), problem) {
                    // The name may be a misspelt parameter.
                    ([Step::Field(name)], Problem::Unknown { near: None, certain }) => {
                        let near = nearest(name, params.fields.iter().map(|field| field.name.as_str()));
                        Problem::Unknown { near: near.map(str::to_owned), certain }
                    }
                    (_, problem) => problem,
                };
                found.all.push((path, problem));
            }
        }
        None => {
            check.table(params, &Literal::Table { fields: written.part(|_| true), whole }, found);
            if whole && sent.required {
                found.add_at(Step::Field(body.name.clone()), Problem::Missing);
            }
        }
    }
}
