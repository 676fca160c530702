"""``{api-summary}``: a table of a module's public names, taken from its ``__all__``.

It is autosummary with its content read from the module: no second list to keep. A
constant without a comment that starts with ``#:`` has no entry below the table, and
the strict build says that the link to it leads nowhere.
"""

from __future__ import annotations

import sys
from importlib import import_module

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.ext.autosummary import Autosummary
from sphinx.pycode import ModuleAnalyzer


class ApiSummary(Autosummary):
    """Summarize the public names of the module given as the argument."""

    required_arguments = 1
    has_content = False

    def run(self) -> list[nodes.Node]:
        """Fill the content of autosummary and let it work."""
        module_name = self.arguments[0]
        module = import_module(module_name)
        public = module.__all__
        # A name that is imported when first asked for would be missing from dir(), and
        # with it from the automodule that follows.
        for name in public:
            setattr(module, name, getattr(module, name))
        adopt_comments(module_name, public)
        self.env.ref_context["py:module"] = module_name
        self.content = StringList(list(public), source=module_name)
        return super().run()


def adopt_comments(module_name: str, public: list[str]) -> None:
    """Give a package the comments on constants that its private modules define.

    autodoc looks for the comment on a constant in the module that it documents only.
    """
    documented = ModuleAnalyzer.for_module(module_name).find_attr_docs()
    private = [name for name in sys.modules if name.startswith(f"{module_name}._")]
    for name in sorted(private):
        comments = ModuleAnalyzer.for_module(name).find_attr_docs()
        for (scope, attribute), comment in comments.items():
            if not scope and attribute in public:
                documented.setdefault((scope, attribute), comment)


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.setup_extension("sphinx.ext.autosummary")
    app.add_directive("api-summary", ApiSummary)
