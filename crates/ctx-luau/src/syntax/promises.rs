//! Decides which calls of provider globals (`shop.list()`) return promises: those whose result is certainly
//! used as a promise only, that is awaited or given to `parallel`, directly or through a local variable or a
//! list in one. All other calls block and return values. That is always correct and at most slower, whereas a
//! promise that is compared, tested or passed on would be mistaken for a value. Variables are identified by
//! name: one that is bound twice holds values.

use super::bindings::{Binding, BindingKind};
use super::lex::TokenKind;
use super::tree::TokenTree;
use memchr::memmem;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Every use of a result as a promise contains one of these words.
const PROMISE_WORDS: [&str; 2] = ["await", "parallel"];

/// Maximum length of a chain of variables that is followed, such as a promise in a list in a loop.
const DEPTH_MAX: usize = 8;

/// The field of a provider's global with the functions that return promises; no function has this name.
pub(crate) const PROMISES_FIELD: &str = "\0";
/// Luau source that reads [`PROMISES_FIELD`].
const READ_PROMISES_FIELD: &str = "[\"\\0\"]";

/// Whether calls of a script may return promises. A cheap test, which is all that most scripts need.
pub(crate) fn may_use_promises(source: &[u8]) -> bool {
    PROMISE_WORDS.iter().any(|word| memmem::find(source, word.as_bytes()).is_some())
}

/// Rewrites each call that returns a promise to a read of [`PROMISES_FIELD`]; line numbers stay. `providers`
/// are the providers that the script sees as globals.
pub(crate) fn mark_promise_calls<'s>(source: &'s [u8], providers: &[&str]) -> Cow<'s, [u8]> {
    if providers.is_empty() || !may_use_promises(source) {
        return Cow::Borrowed(source);
    }
    let tree = std::str::from_utf8(source).ok().and_then(TokenTree::parse);
    let offsets =
        tree.map_or_else(Vec::new, |tree| PromiseAnalysis::new(&tree, providers).promise_call_offsets());
    if offsets.is_empty() {
        return Cow::Borrowed(source);
    }
    let mut marked = Vec::with_capacity(source.len() + offsets.len() * READ_PROMISES_FIELD.len());
    let mut from = 0;
    for offset in offsets {
        marked.extend_from_slice(&source[from..offset]);
        marked.extend_from_slice(READ_PROMISES_FIELD.as_bytes());
        from = offset;
    }
    marked.extend_from_slice(&source[from..]);
    Cow::Owned(marked)
}

/// A use of a variable or an element that may hold a promise.
#[derive(Clone, Copy, PartialEq)]
enum PromiseUse {
    /// Awaits it, or gives it to `parallel`.
    Awaits,
    /// Reads its value, by an operation for which a promise behaves like its value; or does not touch it.
    ReadsValue,
    /// Would observe the promise itself.
    Observes,
}

/// The initial value of a local variable.
#[derive(Clone, Copy)]
enum InitialValue {
    Call,
    Table,
}

struct PromiseAnalysis<'t, 'a> {
    tree: &'t TokenTree<'a>,
    /// How often each name is bound.
    binding_counts: HashMap<&'a str, usize>,
    /// Calls of providers' globals: the index of the provider's name, and the index after the call.
    calls: BTreeMap<usize, usize>,
    /// Local variables that are bound once, and whose initial value is a call or a table.
    initial_values: HashMap<&'a str, InitialValue>,
    /// The variable that holds each of these calls and tables.
    holders: HashMap<usize, &'a str>,
    /// Uses of these variables, and of the variables of loops.
    uses: HashMap<&'a str, Vec<usize>>,
    /// Decisions on variables: whether each holds a promise, or a list of promises. `false` while it is being
    /// decided.
    decisions: RefCell<HashMap<&'a str, bool>>,
    /// Number of decisions in progress.
    depth: Cell<usize>,
}

impl<'t, 'a> PromiseAnalysis<'t, 'a> {
    fn new(tree: &'t TokenTree<'a>, providers: &[&str]) -> Self {
        let bindings = tree.bindings();
        let mut binding_counts: HashMap<&'a str, usize> = HashMap::new();
        for binding in &bindings {
            *binding_counts.entry(binding.name).or_default() += 1;
        }
        let mut promises = Self {
            tree,
            binding_counts,
            calls: BTreeMap::new(),
            initial_values: HashMap::new(),
            holders: HashMap::new(),
            uses: HashMap::new(),
            decisions: RefCell::default(),
            depth: Cell::new(0),
        };
        promises.find_calls(providers);
        promises.find_variables(&bindings);
        promises
    }

    fn find_calls(&mut self, providers: &[&str]) {
        let tree = self.tree;
        let is_global = |name: &str| !self.binding_counts.contains_key(name) && providers.contains(&name);
        let mut aliases = HashSet::new();
        for at in 0..tree.len() {
            let Some(local) = tree.local_declaration(at) else { continue };
            // `local other = shop`
            if let (&[name], Some(value)) = (local.names.as_slice(), local.value)
                && tree.name(value).is_some_and(is_global)
                && !tree.expression_continues(value + 1)
                && let Some(name) = tree.name(name)
                && self.is_bound_once(name)
            {
                aliases.insert(name);
            }
        }
        let is_provider = |name: &str| aliases.contains(name) || is_global(name);
        let calls = (0..tree.len()).filter_map(|at| {
            let is_provider =
                !tree.is_field(at) && tree.name(at).is_some_and(is_provider) && !tree.is_key(at);
            let arguments = if is_provider { tree.arguments_of_member(at) } else { None };
            Some((at, tree.after_arguments(arguments?)?))
        });
        self.calls = calls.collect();
    }

    fn find_variables(&mut self, bindings: &[Binding<'a>]) {
        let tree = self.tree;
        for at in 0..tree.len() {
            let Some(local) = tree.local_declaration(at) else { continue };
            let mut value = local.value;
            for name in local.names {
                let Some(start) = value else { break };
                let (end, initial_values) = match self.calls.get(&start) {
                    Some(end) => (*end, InitialValue::Call),
                    None if tree.is_symbol(start, "{") => match tree.closing_bracket(start) {
                        Some(close) => (close + 1, InitialValue::Table),
                        None => break,
                    },
                    None => break,
                };
                if tree.expression_continues(end) {
                    break;
                }
                if let Some(name) = tree.name(name).filter(|name| self.is_bound_once(name)) {
                    self.initial_values.insert(name, initial_values);
                    self.holders.insert(start, name);
                }
                value = tree.is_symbol(end, ",").then_some(end + 1);
            }
        }
        let loops = bindings.iter().filter(|binding| binding.kind == BindingKind::Loop);
        let loops: HashSet<&str> = loops.map(|binding| binding.name).collect();
        let binding_indices: HashSet<usize> = bindings.iter().map(|binding| binding.at).collect();
        for at in 0..tree.len() {
            let Some(name) = tree.name(at) else { continue };
            let is_variable = self.initial_values.contains_key(name) || loops.contains(name);
            if is_variable && !tree.is_field(at) && !tree.is_key(at) && !binding_indices.contains(&at) {
                self.uses.entry(name).or_default().push(at);
            }
        }
    }

    /// Byte offsets after the providers' names, for the calls that return promises.
    fn promise_call_offsets(&self) -> Vec<usize> {
        let returns_promise = |at: usize, after: usize| {
            let is_held = || self.holders.get(&at).is_some_and(|name| self.holds_promise(name));
            self.is_awaited(after) || self.is_stored_as_promise(at, after) || is_held()
        };
        let calls = self.calls.iter().filter(|(at, after)| returns_promise(**at, **after));
        calls.map(|(at, _)| self.tree.byte_offset(*at) + self.tree.name(*at).map_or(0, str::len)).collect()
    }

    fn is_bound_once(&self, name: &str) -> bool {
        self.binding_counts.get(name) == Some(&1)
    }

    /// Whether `name` is at `at` and is a global of the language, not a variable of the script.
    fn is_language_global(&self, at: usize, name: &str) -> bool {
        self.tree.name(at) == Some(name) && !self.tree.is_field(at) && !self.binding_counts.contains_key(name)
    }

    /// Whether `:await()` is at `at`.
    fn is_awaited(&self, at: usize) -> bool {
        self.tree.is_symbol(at, ":")
            && self.tree.name(at + 1) == Some("await")
            && self.tree.is_symbol(at + 2, "(")
    }

    /// Decides once whether a variable holds promises. A use that depends on the variable itself counts
    /// against it, as does one at the end of a chain longer than [`DEPTH_MAX`].
    fn decide(&self, name: &'a str, promise_use: impl Fn(usize) -> PromiseUse) -> bool {
        if let Some(known) = self.decisions.borrow().get(name) {
            return *known;
        }
        self.decisions.borrow_mut().insert(name, false);
        if self.depth.get() == DEPTH_MAX {
            return false;
        }
        self.depth.set(self.depth.get() + 1);
        let uses = self.uses.get(name).map_or(&[][..], Vec::as_slice);
        let holds = combine_uses(uses.iter().map(|at| promise_use(*at))) == PromiseUse::Awaits;
        self.depth.set(self.depth.get() - 1);
        self.decisions.borrow_mut().insert(name, holds);
        holds
    }

    /// Whether this variable, whose initial value is a call, holds a promise.
    fn holds_promise(&self, name: &'a str) -> bool {
        matches!(self.initial_values.get(name), Some(InitialValue::Call))
            && self.decide(name, |at| self.promise_use(at, at + 1))
    }

    /// Whether this variable, whose initial value is a table, holds a list of promises.
    fn holds_promises(&self, name: &'a str) -> bool {
        matches!(self.initial_values.get(name), Some(InitialValue::Table))
            && self.decide(name, |at| self.list_use(at))
    }

    /// How a promise is used that is the value of the expression from `at` to `after`.
    fn promise_use(&self, at: usize, after: usize) -> PromiseUse {
        if self.is_awaited(after) || self.is_stored_as_promise(at, after) {
            PromiseUse::Awaits
        } else if self.reads_value(at, after) {
            PromiseUse::ReadsValue
        } else {
            PromiseUse::Observes
        }
    }

    /// Whether an operator or a loop reads the value of the promise.
    fn reads_value(&self, at: usize, after: usize) -> bool {
        const OPERATORS: [&str; 7] = ["+", "-", "*", "/", "%", "^", ".."];
        let tree = self.tree;
        let Some(before) = at.checked_sub(1) else { return false };
        let is_operand = tree.is_any_symbol(before, &OPERATORS) || tree.is_any_symbol(after, &OPERATORS);
        let is_shown = tree.is_interpolation_boundary(before) && tree.is_interpolation_boundary(after);
        tree.is_any_symbol(after, &[".", "[", ":"])
            || tree.is_symbol(before, "#")
            || is_shown
            || self.loop_over(at, after).is_some()
            || (is_operand && tree.name(before) != Some("not"))
    }

    /// The `in` of a loop over the expression, directly or through `ipairs` or `pairs`.
    fn loop_over(&self, at: usize, after: usize) -> Option<usize> {
        let tree = self.tree;
        if tree.name(at.checked_sub(1)?) == Some("in") {
            return (tree.name(after) == Some("do")).then_some(at - 1);
        }
        let function =
            at.checked_sub(2).filter(|_| tree.is_symbol(at - 1, "(") && tree.is_symbol(after, ")"))?;
        let is_iterator =
            self.is_language_global(function, "ipairs") || self.is_language_global(function, "pairs");
        let is_loop = tree.name(function.checked_sub(1)?) == Some("in") && tree.name(after + 1) == Some("do");
        (is_iterator && is_loop).then_some(function - 1)
    }

    /// Whether the expression is put into the table given to `parallel`, or into a list of promises.
    fn is_stored_as_promise(&self, at: usize, after: usize) -> bool {
        let tree = self.tree;
        let Some(before) = at.checked_sub(1) else { return false };
        if tree.is_any_symbol(after, &["}", ",", ";"]) && self.is_value_of_item(at) {
            let Some(open) = tree.enclosing_bracket(at) else { return false };
            return self.is_parallel_argument(open)
                || self.holders.get(&open).is_some_and(|list| self.holds_promises(list));
        }
        // `table.insert(list, …)`
        if tree.is_symbol(before, ",")
            && tree.is_symbol(after, ")")
            && before > 0
            && self.is_insertion_into(before - 1)
        {
            return tree.name(before - 1).is_some_and(|list| self.holds_promises(list));
        }
        // `list[key] = …`
        if !tree.is_symbol(before, "=")
            || tree.expression_continues(after)
            || tree.is_symbol(after, ",")
            || before == 0
        {
            return false;
        }
        let list = match tree.kind(before - 1) {
            Some(TokenKind::Symbol("]")) => {
                tree.opening_bracket(before - 1).and_then(|open| open.checked_sub(1))
            }
            Some(TokenKind::Name(_)) if tree.is_field(before - 1) => before.checked_sub(3),
            _ => None,
        };
        let list = list.filter(|list| !tree.is_field(*list)).and_then(|list| tree.name(list));
        list.is_some_and(|list| self.holds_promises(list))
    }

    /// Whether an item of a table, or the value of a field of one, begins at `at`.
    fn is_value_of_item(&self, at: usize) -> bool {
        let tree = self.tree;
        if tree.is_item(at) {
            return true;
        }
        let Some(equals) = at.checked_sub(1).filter(|equals| *equals > 0 && tree.is_symbol(*equals, "="))
        else {
            return false;
        };
        let key = match tree.opening_bracket(equals - 1) {
            Some(open) if tree.is_symbol(open, "[") => open,
            _ => equals - 1,
        };
        tree.is_item(key)
    }

    fn is_parallel_argument(&self, open: usize) -> bool {
        let tree = self.tree;
        let Some(before) = open.checked_sub(1) else { return false };
        if self.is_language_global(before, "parallel") {
            return true;
        }
        let is_alone = tree.closing_bracket(open).is_some_and(|close| tree.is_symbol(close + 1, ")"));
        tree.is_symbol(before, "(")
            && is_alone
            && before > 0
            && self.is_language_global(before - 1, "parallel")
    }

    /// Whether the variable at `at` is the list of `table.insert(list, `.
    fn is_insertion_into(&self, at: usize) -> bool {
        let tree = self.tree;
        let Some(table) = at.checked_sub(4) else { return false };
        self.is_language_global(table, "table")
            && tree.is_symbol(at - 3, ".")
            && tree.name(at - 2) == Some("insert")
            && tree.is_symbol(at - 1, "(")
            && tree.is_symbol(at + 1, ",")
    }

    /// How the promises of the list in the variable at `at` are used.
    fn list_use(&self, at: usize) -> PromiseUse {
        let tree = self.tree;
        let Some(before) = at.checked_sub(1) else { return PromiseUse::Observes };
        let element_ends = match tree.kind(at + 1) {
            Some(TokenKind::Symbol("[")) => tree.closing_bracket(at + 1).map(|close| close + 1),
            Some(TokenKind::Symbol(".")) => Some(at + 3),
            _ => None,
        };
        if let Some(after) = element_ends {
            let is_assigned = tree.is_symbol(after, "=");
            return if is_assigned { PromiseUse::ReadsValue } else { self.promise_use(at, after) };
        }
        let is_parallel = before > 0 && self.is_language_global(before - 1, "parallel");
        if is_parallel && tree.is_symbol(before, "(") && tree.is_symbol(at + 1, ")") {
            return PromiseUse::Awaits;
        }
        if tree.is_symbol(before, "#") || self.is_insertion_into(at) {
            return PromiseUse::ReadsValue;
        }
        let Some(loop_in) = self.loop_over(at, at + 1) else { return PromiseUse::Observes };
        match tree.loop_names(loop_in).get(1).and_then(|name| tree.name(*name)) {
            None => PromiseUse::ReadsValue,
            Some(item) if self.is_bound_once(item) => {
                let uses = self.uses.get(item).map_or(&[][..], Vec::as_slice);
                combine_uses(uses.iter().map(|at| self.promise_use(*at, at + 1)))
            }
            Some(_) => PromiseUse::Observes,
        }
    }
}

/// Combines uses: one that sees the promise decides, then one that awaits it.
fn combine_uses(uses: impl Iterator<Item = PromiseUse>) -> PromiseUse {
    let mut all = PromiseUse::ReadsValue;
    for promise_use in uses {
        match promise_use {
            PromiseUse::Observes => return PromiseUse::Observes,
            PromiseUse::Awaits => all = PromiseUse::Awaits,
            PromiseUse::ReadsValue => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The script with `!` after the provider's name in each call that returns a promise.
    fn marked(source: &str) -> String {
        let marked = mark_promise_calls(source.as_bytes(), &["shop"]);
        String::from_utf8(marked.into_owned()).unwrap().replace(READ_PROMISES_FIELD, "!")
    }

    #[test]
    fn words_that_only_look_like_uses_of_promises_mark_nothing() {
        for source in [
            "-- await parallel\nreturn shop.a()",
            "local awaited, parallels = shop.a(), 'await' return awaited",
            "return shop.a().await",
            "local parallel = print parallel{ shop.a() }",
            "local shop = {} shop.a():await()",
            "local p = shop.a() do local p = 1 end p:await()",
            "local p = shop.a() p:await() return p",
            "local p = shop.a().b p:await()",
            "local p = shop.a() or 1 p:await()",
            "return other.shop.a():await()",
        ] {
            assert_eq!(marked(source), source);
        }
        for (source, expected) in [
            ("return parallel{ function() end, shop.a() }", "return parallel{ function() end, shop!.a() }"),
            (
                "return parallel{ function() local x = if a then b else if c then d else e return x end; shop.a() }",
                "return parallel{ function() local x = if a then b else if c then d else e return x end; shop!.a() }",
            ),
            (
                "return parallel{ function() if a then b() else if c then d() end end repeat x() until y end, shop.a() }",
                "return parallel{ function() if a then b() else if c then d() end end repeat x() until y end, shop!.a() }",
            ),
        ] {
            assert_eq!(marked(source), expected);
        }
        for body in [
            "local a, b = 1, shop.a(), 2",
            "x = 1; shop.a(); y = 2",
            "if x then y = 1; shop.a(); z = 2 end",
            "local z = if x then 1 else 2; shop.a();",
            "for _ in x do y(); shop.a(); end",
            "local f = function() end, shop.a(), 2",
        ] {
            let source = format!("return parallel{{ function() {body} end }}");
            assert_eq!(marked(&source), source);
        }
        assert_eq!(marked("return shop.a():await(), shop.b()"), "return shop!.a():await(), shop.b()");
    }

    #[test]
    fn long_chains_of_lists_end() {
        let lists: String =
            (0..2_000).map(|n| format!("local l{n} = {{}} l{n}[1] = l{}[1] ", n + 1)).collect();
        let source = format!("{lists} l0[1]:await() l5[1] = shop.a()");
        assert!(marked(&source).len() >= source.len());
    }

    proptest! {
        #[test]
        fn any_text_is_marked_without_a_panic(pieces in prop::collection::vec(prop::sample::select(vec![
            "shop", ".", "a", "(", ")", "{", "}", "[", "]", ":", "await", "parallel", "local ", "=", ",", "for ", " in ",
            " do ", " end ", "table.insert(", "l", "#", "1", "'x'", "`", "\n", "function ", "::", "<", ">", "type ", "é", "?",
        ]), 0..60)) {
            let source = pieces.concat();
            let marked = marked(&source);
            prop_assert_eq!(marked.replace('!', ""), source);
        }
    }
}
