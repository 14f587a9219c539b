"""The documentation site: the pages of docs/ and a reference made of the docstrings.

`python -m tools.site` writes plain Markdown into a folder, has Zensical render it, and looks at
what came out. The parts: `public` (which names there are), `docstrings` and `signatures` (how
they look), `reference` (their pages), `sources` (the pages of docs/, and links between all of
them), `check` (what is wrong with a built site). Whoever renders gets Markdown and a
configuration, nothing else; nothing here lists a module by hand.
"""

__all__ = ["check", "docstrings", "public", "reference", "signatures", "sources"]
