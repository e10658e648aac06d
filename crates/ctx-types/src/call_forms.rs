//! Call forms of a function with a request body, checked as the catalog accepts them.
//!
//! `f({ id = 1 }, body)`, `f({ id = 1, body = … })`, `f({ id = 1, name = "Rex" })` with fields of the body next to the
//! parameters, and `f(body)` if the body is not a table.

use crate::check::{Literal, LiteralChecker, MismatchCollector, MismatchKind, PathStep, TypeMismatch};
use crate::function::{Argument, Function};
use crate::model::{AdditionalFields, Table, Type};
use ctx_core::{BodyArgument, nearest};

/// A table literal.
struct TableLiteral<'a> {
    fields: &'a [(String, Literal)],
    whole: bool,
}

impl TableLiteral<'_> {
    /// The fields whose names match; a field that is `nil` is absent.
    fn matching_fields(&self, is_selected: impl Fn(&str) -> bool) -> Vec<(String, Literal)> {
        let is_selected_field =
            |(name, value): &&(String, Literal)| *value != Literal::Nil && is_selected(name);
        self.fields.iter().filter(is_selected_field).cloned().collect()
    }
}

impl Function {
    /// The mismatches of a call of a function with a body. If a call can be read in two ways, only mismatches of both
    /// readings count.
    pub(crate) fn check_with_body(
        &self,
        body: &BodyArgument,
        arguments: &[Literal],
        checker: &mut LiteralChecker<'_>,
    ) -> Vec<TypeMismatch> {
        let body_argument = self.arguments.iter().find(|argument| argument.is_body);
        let (Some(params), Some(body_argument)) = (&self.params, body_argument) else { return Vec::new() };
        let (mut first, mut second) = (MismatchCollector::default(), MismatchCollector::default());
        let second_literal = arguments.get(1).filter(|literal| **literal != Literal::Nil);
        let nothing = Literal::empty_table();
        let is_given = !matches!(arguments.first(), None | Some(Literal::Nil));
        let first_literal = arguments.first().filter(|_| is_given).unwrap_or(&nothing);
        match (first_literal, second_literal) {
            (Literal::Unknown, None) => {}
            (Literal::Unknown, Some(second_literal)) => {
                checker.check_value(&body_argument.luau_type, second_literal, &mut second)
            }
            (Literal::Table { fields, whole }, Some(Literal::Unknown)) => {
                let fields =
                    TableLiteral { fields, whole: *whole }.matching_fields(|name| params.has_field(name));
                checker.check_table(params, &Literal::Table { fields, whole: *whole }, &mut first);
            }
            (Literal::Table { .. }, Some(second_literal)) => {
                checker.check_table(params, first_literal, &mut first);
                checker.check_value(&body_argument.luau_type, second_literal, &mut second);
            }
            (Literal::Table { fields, whole }, None) => {
                let literal = TableLiteral { fields, whole: *whole };
                let is_empty = is_given && fields.is_empty() && params.fields.is_empty();
                // An empty list as the body: there is no parameter to which the braces could belong.
                if is_empty && body_argument.required && !body.has_fields {
                    checker.check_value(&body_argument.luau_type, first_literal, &mut first);
                } else {
                    check_single_table(params, body, body_argument, &literal, checker, &mut first);
                }
            }
            (_, None | Some(Literal::Unknown)) => {
                checker.check_table(params, &nothing, &mut first);
                checker.check_value(&body_argument.luau_type, first_literal, &mut first);
            }
            (_, Some(second_literal)) => {
                first.add(MismatchKind::WrongType {
                    expected: checker.describe_expected(&Type::Table(params.clone())),
                });
                checker.check_value(&body_argument.luau_type, second_literal, &mut second);
            }
        }
        let mut mismatches: Vec<TypeMismatch> =
            first.into_mismatches(0).chain(second.into_mismatches(1)).collect();
        if arguments.get(2).is_some_and(|literal| !matches!(literal, Literal::Nil | Literal::Unknown)) {
            mismatches.push(TypeMismatch { argument: 2, path: Vec::new(), problem: MismatchKind::TooMany });
        }
        mismatches
    }
}

impl Table {
    fn has_field(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.name == name)
    }
}

/// Checks one table that contains the parameters and the body, by its name or by its fields.
fn check_single_table(
    params: &Table,
    body: &BodyArgument,
    body_argument: &Argument,
    literal: &TableLiteral<'_>,
    checker: &mut LiteralChecker<'_>,
    collector: &mut MismatchCollector,
) {
    let whole = literal.whole;
    let parameter_fields =
        || Literal::Table { fields: literal.matching_fields(|name| params.has_field(name)), whole };
    let named = literal.fields.iter().find(|(name, value)| *name == body.name && *value != Literal::Nil);
    match named {
        // The value may be nil at run time, and the other names may be fields of the body.
        Some((_, Literal::Unknown)) if body.has_fields => {
            checker.check_table(params, &parameter_fields(), collector)
        }
        Some((_, value)) => {
            let others = Literal::Table { fields: literal.matching_fields(|name| name != body.name), whole };
            checker.check_table(params, &others, collector);
            collector.path.push(PathStep::Field(body.name.clone()));
            checker.check_value(&body_argument.luau_type, value, collector);
            collector.path.pop();
        }
        None if body.has_fields => {
            checker.check_table(params, &parameter_fields(), collector);
            let fields = literal.matching_fields(|name| !params.has_field(name));
            let is_incomplete = params.left_out > 0 || matches!(params.rest, AdditionalFields::Of(_));
            // If all these values may be nil at run time, there may be no body.
            let is_uncertain =
                !body_argument.required && fields.iter().all(|(_, value)| *value == Literal::Unknown);
            if is_incomplete || is_uncertain && fields.is_empty() {
                return;
            }
            let mut nested = MismatchCollector::default();
            let fields = Literal::Table { fields, whole: whole && !is_uncertain };
            checker.check_value(&body_argument.luau_type, &fields, &mut nested);
            for TypeMismatch { path, problem, .. } in nested.into_mismatches(0) {
                let problem = match (path.as_slice(), problem) {
                    // The name may be a misspelt parameter.
                    ([PathStep::Field(name)], MismatchKind::Unknown { near: None, certain }) => {
                        let near = nearest(name, params.fields.iter().map(|field| field.name.as_str()));
                        MismatchKind::Unknown { near: near.map(str::to_owned), certain }
                    }
                    (_, problem) => problem,
                };
                collector.mismatches.push((path, problem));
            }
        }
        None => {
            checker.check_table(
                params,
                &Literal::Table { fields: literal.matching_fields(|_| true), whole },
                collector,
            );
            if whole && body_argument.required {
                collector.add_at(PathStep::Field(body.name.clone()), MismatchKind::Missing);
            }
        }
    }
}
