"""The documentation site: the pages of docs/ and an API reference built from the docstrings.

`python -m tools.site` writes plain Markdown into a folder, renders it with Zensical, and checks the
result. `public_names` finds the names, `docstrings` and `signatures` format them, `reference`
writes their pages, `sources` copies the pages of docs/ and rewrites the links between all pages,
`search_index` ranks guides above the reference in the search, and `check` finds faults in a built
site. The renderer gets only Markdown and a configuration.
"""

__all__ = [
    "check",
    "docstrings",
    "public_names",
    "reference",
    "search_index",
    "signatures",
    "sources",
]
