//! Makes mutants of a Lua script.
//!
//! Each operator below makes one kind of mistake that a person could make, wherever the grammar allows it:
//!
//! | operator | example |
//! |---|---|
//! | comparison and its boundary | `a < b` becomes `a <= b` and `a >= b` |
//! | arithmetic | `+` becomes `-`, `*` becomes `/`, `math.min` becomes `math.max` |
//! | condition | `if a` becomes `if not (a)`, `if true` and `if false` |
//! | dropped operand | `a and b` becomes `a`, and becomes `b`; `not a` becomes `a` |
//! | constant | `5` becomes `6` and `4`, even in `KEYS[5]`; `'1'` becomes `'0'`; `'done'` becomes `'done~'` |
//! | end of a list | `LPUSH` becomes `RPUSH`, and `RPUSH` becomes `LPUSH` |
//! | deleted statement | a call, an assignment, a `return` or a `break` is gone |
//! | early return | a function returns before it does anything |
//! | lost value | `local x = y` becomes `local x = nil`, and so does `return y`, if the line has no other mutant |
//!
//! A statement that declares a name is not deleted. Every use of that name would fail at once, which proves nothing.

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::{Result, bail};
use full_moon::ast::{
    Block, Call, ElseIf, Expression, FunctionArgs, FunctionCall, If, LocalAssignment, LocalFunction, Prefix,
    Return, Stmt, Suffix, UnOp, While,
};
use full_moon::node::Node;
use full_moon::tokenizer::{Token, TokenType};
use full_moon::visitors::Visitor;

use crate::mutant::Mutant;

pub fn mutants_of(file: &str, source: &str) -> Result<Vec<Mutant>> {
    let ast = match full_moon::parse(source) {
        Ok(ast) => ast,
        Err(errors) => bail!("{file} cannot be parsed: {errors:?}"),
    };
    let mut mutator =
        Mutator { file, source, mutants: Vec::new(), commands: BTreeSet::new(), values: Vec::new() };
    mutator.visit_ast(&ast);
    mutator.add_lost_values();
    let mut mutants = mutator.mutants;
    mutants.sort_by(|one, other| {
        (one.span.start, one.span.end, &one.replacement).cmp(&(
            other.span.start,
            other.span.end,
            &other.replacement,
        ))
    });
    Ok(mutants)
}

struct Mutator<'a> {
    file: &'a str,
    source: &'a str,
    mutants: Vec<Mutant>,
    /// Where the names of Redis commands start. These names are not changed, because an unknown command would fail at
    /// once.
    commands: BTreeSet<usize>,
    /// The values in a `local` or a `return`.
    values: Vec<Range<usize>>,
}

impl Mutator<'_> {
    fn replace(&mut self, span: Range<usize>, replacement: impl Into<String>) {
        self.mutants.push(Mutant { file: self.file.into(), span, replacement: replacement.into() });
    }

    fn text(&self, span: &Range<usize>) -> String {
        self.source[span.clone()].to_owned()
    }

    fn condition(&mut self, condition: &Expression) {
        let span = span(condition);
        let negated = format!("not ({})", self.text(&span));
        self.replace(span.clone(), negated);
        self.replace(span.clone(), "true");
        self.replace(span, "false");
    }

    /// Adds the lost values. They are the last resort, for lines without any other mutant.
    fn add_lost_values(&mut self) {
        let line = |at: usize| self.source[..at].matches('\n').count();
        let spans = self.mutants.iter().map(|mutant| &mutant.span).filter(|span| !span.is_empty());
        let lines = spans.map(|span| (line(span.start), line(span.end)));
        let mutated: BTreeSet<usize> =
            lines.filter(|(first, last)| first == last).map(|(line, _)| line).collect();
        let bare: Vec<_> =
            self.values.iter().filter(|value| !mutated.contains(&line(value.start))).cloned().collect();
        for value in bare {
            if self.text(&value) != "nil" {
                self.replace(value, "nil");
            }
        }
    }
}

impl Visitor for Mutator<'_> {
    fn visit_block(&mut self, block: &Block) {
        for statement in block.stmts() {
            if matches!(
                statement,
                Stmt::Assignment(_)
                    | Stmt::FunctionCall(_)
                    | Stmt::GenericFor(_)
                    | Stmt::NumericFor(_)
                    | Stmt::While(_)
            ) {
                self.replace(span(statement), "");
            }
        }
        if let Some(last) = block.last_stmt() {
            self.replace(span(last), "");
        }
    }

    fn visit_if(&mut self, node: &If) {
        self.condition(node.condition());
    }

    fn visit_else_if(&mut self, node: &ElseIf) {
        self.condition(node.condition());
    }

    fn visit_while(&mut self, node: &While) {
        self.condition(node.condition());
    }

    fn visit_expression(&mut self, node: &Expression) {
        match node {
            Expression::BinaryOperator { lhs, binop, rhs } => {
                let (whole, operator) = (span(node), token_span(binop.token().token()));
                let text = self.text(&operator);
                for other in alternatives(&text) {
                    self.replace(operator.clone(), *other);
                }
                if text == "and" || text == "or" {
                    for operand in [lhs, rhs] {
                        let kept = self.text(&span(&**operand));
                        self.replace(whole.clone(), kept);
                    }
                }
            }
            Expression::UnaryOperator { unop: UnOp::Not(_), expression } => {
                let kept = self.text(&span(&**expression));
                self.replace(span(node), kept);
            }
            _ => {}
        }
    }

    fn visit_function_call(&mut self, node: &FunctionCall) {
        let is_redis = matches!(node.prefix(), Prefix::Name(name) if name.token().to_string() == "redis");
        for suffix in node.suffixes().filter(|_| is_redis) {
            if let Suffix::Call(Call::AnonymousCall(arguments)) = suffix
                && let FunctionArgs::Parentheses { arguments, .. } = &**arguments
                && let Some(command) = arguments.iter().next()
            {
                self.commands.insert(span(command).start);
            }
        }
    }

    fn visit_identifier(&mut self, token: &Token) {
        let other = match token.to_string().as_str() {
            "min" => "max",
            "max" => "min",
            "floor" => "ceil",
            _ => return,
        };
        self.replace(token_span(token), other);
    }

    fn visit_number(&mut self, token: &Token) {
        let span = token_span(token);
        if let Ok(number) = self.text(&span).parse::<i64>() {
            for other in [number + 1, number - 1] {
                self.replace(span.clone(), other.to_string());
            }
        }
    }

    fn visit_string_literal(&mut self, token: &Token) {
        let TokenType::StringLiteral { literal, .. } = token.token_type() else { return };
        let span = token_span(token);
        let other = match literal.as_str() {
            "LPUSH" => "RPUSH".into(),
            "RPUSH" => "LPUSH".into(),
            _ if self.commands.contains(&span.start) => return,
            "0" => "1".into(),
            "1" => "0".into(),
            text => format!("{text}~"),
        };
        self.replace(span, format!("'{other}'"));
    }

    fn visit_local_function(&mut self, node: &LocalFunction) {
        if let Some(first) = node.body().block().start_position() {
            self.replace(first.bytes()..first.bytes(), "do return end ");
        }
    }

    fn visit_local_assignment(&mut self, node: &LocalAssignment) {
        self.values.extend(node.expressions().iter().map(span));
    }

    fn visit_return(&mut self, node: &Return) {
        self.values.extend(node.returns().iter().map(span));
    }
}

fn alternatives(operator: &str) -> &'static [&'static str] {
    match operator {
        "==" => &["~="],
        "~=" => &["=="],
        "<" => &["<=", ">="],
        "<=" => &["<", ">"],
        ">" => &[">=", "<="],
        ">=" => &[">", "<"],
        "+" => &["-"],
        "-" => &["+"],
        "*" => &["/"],
        "/" => &["*"],
        "and" => &["or"],
        "or" => &["and"],
        _ => &[],
    }
}

/// The bytes of a node of the syntax tree, without the space around it.
fn span(node: &impl Node) -> Range<usize> {
    let (start, end) = node.range().map_or((0, 0), |(start, end)| (start.bytes(), end.bytes()));
    start..end
}

fn token_span(token: &Token) -> Range<usize> {
    token.start_position().bytes()..token.end_position().bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(source: &str) -> Vec<String> {
        mutants_of("x.lua", source).unwrap().iter().map(|mutant| mutant.apply(source)).collect()
    }

    #[test]
    fn each_operator_makes_its_mistakes_once() {
        let found =
            changed("if a < b + 2 then\n  redis.call('LPUSH', KEYS[1], 'x')\nend\nreturn f(not c and '1')\n");
        let expected = [
            "if a <= b + 2 then",
            "if a >= b + 2 then",
            "if a < b - 2 then",
            "if a < b + 3 then",
            "if a < b + 1 then",
            "if not (a < b + 2) then",
            "if true then",
            "if false then",
            "  redis.call('RPUSH', KEYS[1], 'x')",
            "  redis.call('LPUSH', KEYS[2], 'x')",
            "  redis.call('LPUSH', KEYS[0], 'x')",
            "  redis.call('LPUSH', KEYS[1], 'x~')",
            "return f(not c or '1')",
            "return f(not c)",
            "return f('1')",
            "return f(c and '1')",
            "return f(not c and '0')",
        ];
        for line in expected {
            let times = found.iter().filter(|text| text.lines().any(|found| found == line)).count();
            assert_eq!(times, 1, "{line} in {found:#?}");
        }
        // The other two mutants delete the call and the return.
        assert_eq!(found.len(), expected.len() + 2, "{found:#?}");
    }

    #[test]
    fn functions_return_early_and_values_get_lost_where_nothing_else_is_mutated() {
        let found = changed("local function f(x)\n  local y = g(x)\n  return y\nend\n");
        assert_eq!(
            found,
            [
                "local function f(x)\n  do return end local y = g(x)\n  return y\nend\n",
                "local function f(x)\n  local y = nil\n  return y\nend\n",
                "local function f(x)\n  local y = g(x)\n  \nend\n",
            ]
        );
    }

    /// Every line of every script that does anything has a mutant.
    #[test]
    fn every_line_of_every_script_is_mutated() {
        let mut total = 0;
        for (file, source) in crate::suites::scripts().unwrap() {
            let mutants = mutants_of(&file, &source).unwrap();
            total += mutants.len();
            let lines: BTreeSet<usize> = mutants
                .iter()
                .flat_map(|mutant| {
                    let first = mutant.line(&source);
                    first..=first + source[mutant.span.clone()].matches('\n').count()
                })
                .collect();
            for (number, line) in (1..).zip(source.lines()) {
                let code = line.split("--").next().unwrap_or_default().trim();
                let does_nothing = code.is_empty()
                    || matches!(code, "end" | "else")
                    || (code.starts_with("local ") && !code.contains('='))
                    || code.starts_with("local function ")
                    || code.ends_with(" =");
                assert!(does_nothing || lines.contains(&number), "no mutant in {file}:{number}: {line}");
            }
            for mutant in &mutants {
                assert_ne!(mutant.apply(&source), source);
            }
        }
        assert!(total > 500, "only {total}");
    }
}
