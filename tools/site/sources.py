"""The pages of docs/ as the site's sources, and what links between pages, code and changes mean."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path

from tools.site.docstrings import link_code
from tools.site.public import Library
from tools.site.reference import Page, page_path, pages

CONFIG = "mkdocs.yml"
_TOP = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages that lie beside the README, and their names on the site."""

_FENCED = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_NOWHERE = "nowhere:"
_TO_NOWHERE = re.compile(rf"\[([^\[\]]*)\]\({_NOWHERE}\)")
"""A link out of the site where no repository has an address: its text stays."""

_REFERENCE_HERE = "  - Reference: reference/index.md\n"


class _Links:
    """Turns a link that is right in the repository into one that is right on the site."""

    def __init__(self, root: Path, library: Library) -> None:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        self.root = root
        self.repository: str | None = project.get("urls", {}).get("Repository")
        self.code = {
            library.path_of(module).as_posix(): page_path(library, module)
            for module in library.modules
        }
        self.library = library

    def page_of(self, path: str) -> str | None:
        """Return the source of the site that stands for a path of the repository, if one does."""
        if path in _TOP:
            return _TOP[path]
        return path.removeprefix("docs/") if path.startswith("docs/") else self.code.get(path)

    def target(self, link: str, page: str) -> str:
        """Return the link of a page (a path of the repository) as the site has it."""
        if re.match(r"\w+:", link) or link.startswith("#"):
            return link
        name, _, anchor = link.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), name))
        if not (self.root / path).exists():
            raise LookupError(f"{page}: {link} leads to nothing")
        source, here = self.page_of(path), self.page_of(page)
        if source is None or here is None:
            return self.outside(path)
        relative = os.path.relpath(source, os.path.dirname(here))
        return relative + ("#" + anchor if anchor else "")

    def outside(self, path: str) -> str:
        """Return the address of a file or folder in the repository, `_NOWHERE` without one."""
        if self.repository is None:
            return _NOWHERE
        return f"{self.repository}/{'tree' if (self.root / path).is_dir() else 'blob'}/main/{path}"

    def code_of(self, text: str, page: str) -> str | None:
        """Return where the reference has a file (``bkstore/ids.py``) or module that is named."""
        path = self.code.get(text)
        if path is None and text in self.library.modules and "." in text:
            path = page_path(self.library, text)
        here = self.page_of(page)
        return os.path.relpath(path, os.path.dirname(here)) if path and here else None

    def rewritten(self, text: str, page: str) -> str:
        """Return a page's Markdown with the site's links; code blocks and headings stay."""
        pieces = _FENCED.split(text)
        for n in range(0, len(pieces), 2):
            lines = pieces[n].split("\n")
            for m, line in enumerate(lines):
                if not line.startswith("#"):
                    linked = _LINK.sub(lambda k: k[1] + self.target(k[2], page) + k[3], line)
                    linked = _TO_NOWHERE.sub(r"\1", linked)
                    lines[m] = link_code(linked, lambda code: self.code_of(code, page))
            pieces[n] = "\n".join(lines)
        return "".join(pieces)


def _navigation(listed: list[Page]) -> str:
    """Return the reference's part of the navigation: a tree as the packages are one."""
    lines = ["  - Reference:"]
    for page in listed:
        level, name = page.module.count("."), page.module.rpartition(".")[2]
        if not page.path.endswith("index.md"):
            lines.append(f"{'    ' * level}  - {name}: {page.path}")
            continue
        if level:
            lines.append(f"{'    ' * level}  - {name}:")
        lines.append(f"{'    ' * (level + 1)}  - {page.path}")
    return "\n".join(lines) + "\n"


def write(root: Path, package: str, into: Path) -> Path:
    """Write the site's sources and configuration into an empty folder; return the latter's path.

    The pages of docs/ (other files of it as they are), those beside the README, the reference.
    `LookupError` for a link that leads to nothing in the repository.
    """
    library = Library(package, root)
    links = _Links(root, library)
    docs = into / "docs"
    shutil.copytree(root / "docs", docs)
    listed = pages(library)
    top = [root / name for name in _TOP if (root / name).is_file()]
    for path in [*sorted((root / "docs").glob("**/*.md")), *top]:
        page = path.relative_to(root).as_posix()
        text = links.rewritten(path.read_text(encoding="utf-8"), page)
        (docs / (links.page_of(page) or page)).write_text(text, encoding="utf-8")
    for made in listed:
        target = docs / made.path
        target.parent.mkdir(parents=True, exist_ok=True)
        text = re.sub(r"\(repository:([^)]*)\)", lambda m: f"({links.outside(m[1])})", made.text)
        target.write_text(_TO_NOWHERE.sub(r"\1", text), encoding="utf-8")
    before, here, after = (root / CONFIG).read_text(encoding="utf-8").partition(_REFERENCE_HERE)
    if not here:
        raise LookupError(f"{CONFIG}: no line {_REFERENCE_HERE!r}")
    config = into / CONFIG
    config.write_text(before + _navigation(listed) + after, encoding="utf-8")
    return config
