//! Built-in providers. Their names are reserved: no other provider can have one.

use crate::Identifier;

/// A built-in provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BuiltinProvider {
    /// Documents: `context.search`.
    Context,
    /// Tools of the workspace's own scripts.
    Tools,
    /// `execute`, function discovery and kept results.
    Ctx,
    /// Agents, each as a tool that resolves it.
    Agents,
    /// Resources, with a tool for each origin that reads them.
    Resources,
    /// Administration of the workspace by the program itself: runs, sources, upstreams, settings.
    Admin,
}

impl BuiltinProvider {
    /// All built-in providers.
    pub const ALL: [Self; 6] =
        [Self::Context, Self::Tools, Self::Ctx, Self::Agents, Self::Resources, Self::Admin];

    /// The namespace of its tools: the first half of their names.
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

    /// The built-in provider with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.name() == name)
    }

    /// Whether scripts can call its tools as functions. Agents and resources have interfaces of their own.
    pub const fn has_functions(self) -> bool {
        !matches!(self, Self::Agents | Self::Resources | Self::Admin)
    }

    /// Whether only the program itself may call its tools
    /// ([`Call::is_administrative`](crate::Call::is_administrative)). For all other callers they do not exist.
    pub const fn is_hidden(self) -> bool {
        matches!(self, Self::Admin)
    }

    /// Whether clients see its tools under bare names: `search`, not `context__search`.
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
            assert_eq!(BuiltinProvider::from_name(builtin.name()), Some(builtin));
            assert_eq!(builtin.identifier().as_str(), builtin.name());
        }
        assert_eq!(BuiltinProvider::from_name("github"), None);
    }
}
