//! The providers that the product itself has. Their names are reserved: nothing else may be called so.

use crate::Identifier;

/// A provider of the product's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BuiltinProvider {
    /// Documents: `context.search`.
    Context,
    /// Tools of the workspace's own scripts.
    Tools,
    /// `execute`, finding functions, and kept results.
    Ctx,
    /// Agents, each as the tool that resolves it.
    Agents,
    /// Resources, each origin as the tool that reads it.
    Resources,
    /// Administration of the workspace, for the program itself: runs, sources, upstreams, settings.
    Admin,
}

impl BuiltinProvider {
    /// Every one there is.
    pub const ALL: [Self; 6] =
        [Self::Context, Self::Tools, Self::Ctx, Self::Agents, Self::Resources, Self::Admin];

    /// The first half of its tools' names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Tools => "tools",
            Self::Ctx => "ctx",
            Self::Agents => "agents",
            Self::Resources => "resources",
            Self::Admin => "admin",
        }
    }

    /// Its name as an identifier.
    pub fn identifier(self) -> Identifier {
        Identifier::sanitize(self.name())
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.name() == name)
    }

    /// Whether its tools are functions to scripts. Agents and resources are reached by other means.
    pub const fn has_functions(self) -> bool {
        !matches!(self, Self::Agents | Self::Resources | Self::Admin)
    }

    /// Whether only the program itself may call its tools ([`Call::is_administrative`](crate::Call::is_administrative)).
    /// To everyone else they do not exist.
    pub const fn is_hidden(self) -> bool {
        matches!(self, Self::Admin)
    }

    /// Whether clients see its tools by their bare names: `search`, not `context__search`.
    pub const fn has_bare_names(self) -> bool {
        self.has_functions()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_name_which_is_an_identifier() {
        for builtin in BuiltinProvider::ALL {
            assert_eq!(BuiltinProvider::named(builtin.name()), Some(builtin));
            assert_eq!(builtin.identifier().as_str(), builtin.name());
        }
        assert_eq!(BuiltinProvider::named("github"), None);
    }
}
