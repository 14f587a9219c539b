"""The site's sources: the pages of docs/ with links that work on the site, and the reference."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path

from tools.site.docstrings import link_code
from tools.site.public_names import Library
from tools.site.reference import Page, build_pages, page_path

CONFIG = "mkdocs.yml"
_TOP_PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages beside the README, and their names on the site."""

_CODE_BLOCK_PATTERN = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_REPOSITORY_LINK = re.compile(r"\(repository:([^)]*)\)")
_NO_ADDRESS = "nowhere:"
_DEAD_LINK_PATTERN = re.compile(rf"\[([^\[\]]*)\]\({_NO_ADDRESS}\)")
"""A link to a file of the repository while that has no address; only its text is kept."""

_REFERENCE_LINE = "  - Reference: reference/index.md\n"


class _LinkConverter:
    """Converts links between files of the repository to links on the site."""

    def __init__(self, root: Path, library: Library) -> None:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        self.root = root
        self.repository: str | None = project.get("urls", {}).get("Repository")
        files = {module: library.path_of(module).as_posix() for module in library.modules}
        self.page_of_source = {file: page_path(library, module) for module, file in files.items()}
        self.library = library

    def page_of(self, path: str) -> str | None:
        """Return the page of a file of the repository, by its path in the site's sources."""
        if path in _TOP_PAGES:
            return _TOP_PAGES[path]
        in_docs = path.startswith("docs/")
        return path.removeprefix("docs/") if in_docs else self.page_of_source.get(path)

    def convert_link(self, link: str, page: str) -> str:
        """Return the link for the site: to the page of a file that has one, else to the repository.
        `page` is the file that has the link. Links to other hosts and anchors are kept."""
        if re.match(r"\w+:", link) or link.startswith("#"):
            return link
        relative_path, _, anchor = link.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), relative_path))
        if not (self.root / path).exists():
            raise LookupError(f"{page}: {link} leads to nothing")
        target, site_page = self.page_of(path), self.page_of(page)
        if target is None or site_page is None:
            return self.repository_url(path)
        relative = os.path.relpath(target, os.path.dirname(site_page))
        return relative + ("#" + anchor if anchor else "")

    def repository_url(self, path: str) -> str:
        """Return the address of a file or folder in the repository, or `_NO_ADDRESS`."""
        if self.repository is None:
            return _NO_ADDRESS
        return f"{self.repository}/{'tree' if (self.root / path).is_dir() else 'blob'}/main/{path}"

    def find_code_page(self, text: str, page: str) -> str | None:
        """Return the link from the file `page` to the reference of the file (``bkstore/ids.py``) or
        module that `text` names, if any; the name of the whole package is not linked."""
        path = self.page_of_source.get(text)
        if path is None and text in self.library.modules and "." in text:
            path = page_path(self.library, text)
        site_page = self.page_of(page)
        return os.path.relpath(path, os.path.dirname(site_page)) if path and site_page else None

    def convert_page(self, text: str, page: str) -> str:
        """Return a page's Markdown with the site's links; code blocks and headings are kept."""

        def convert_line(line: str) -> str:
            if line.startswith("#"):
                return line
            line = _LINK.sub(lambda m: m[1] + self.convert_link(m[2], page) + m[3], line)
            line = _DEAD_LINK_PATTERN.sub(r"\1", line)
            return link_code(line, lambda code: self.find_code_page(code, page))

        prose_and_code = _CODE_BLOCK_PATTERN.split(text)
        for i in range(0, len(prose_and_code), 2):  # every second piece is a code block
            prose_and_code[i] = "\n".join(map(convert_line, prose_and_code[i].split("\n")))
        return "".join(prose_and_code)


def _navigation_yaml(api_pages: list[Page]) -> str:
    """Return the reference's part of the navigation, a tree like that of the packages."""
    lines = ["  - Reference:"]
    for page in api_pages:
        level, name = page.module.count("."), page.module.rpartition(".")[2]
        indent = "    " * level
        if not page.path.endswith("index.md"):
            lines.append(f"{indent}  - {name}: {page.path}")
            continue
        # A package opens a subtree, with its own page first; the whole one is "Reference" above.
        if level:
            lines.append(f"{indent}  - {name}:")
        lines.append(f"{indent}      - {page.path}")
    return "\n".join(lines) + "\n"


def write_sources(root: Path, package: str, into: Path) -> Path:
    """Write the site's sources and configuration into an empty folder; return the latter's path.
    Sources are the files of docs/, the pages beside the README, and the reference. Raises
    `LookupError` for a link to a path that does not exist in the repository."""
    library = Library(package, root)
    links = _LinkConverter(root, library)
    docs = into / "docs"
    shutil.copytree(root / "docs", docs)
    reference_pages = build_pages(library)
    # The pages of docs/ and beside the README, with converted links.
    top_pages = [root / name for name in _TOP_PAGES if (root / name).is_file()]
    for path in [*sorted((root / "docs").glob("**/*.md")), *top_pages]:
        page = path.relative_to(root).as_posix()
        text = links.convert_page(path.read_text(encoding="utf-8"), page)
        (docs / (links.page_of(page) or page)).write_text(text, encoding="utf-8")
    # The reference; its pages link files of the repository as (repository:PATH).
    for reference_page in reference_pages:
        target = docs / reference_page.path
        target.parent.mkdir(parents=True, exist_ok=True)
        text = _REPOSITORY_LINK.sub(
            lambda m: f"({links.repository_url(m[1])})", reference_page.text
        )
        target.write_text(_DEAD_LINK_PATTERN.sub(r"\1", text), encoding="utf-8")
    # The configuration, with the pages of the reference in the navigation.
    before, line, after = (root / CONFIG).read_text(encoding="utf-8").partition(_REFERENCE_LINE)
    if not line:
        raise LookupError(f"{CONFIG}: no line {_REFERENCE_LINE!r}")
    config = into / CONFIG
    config.write_text(before + _navigation_yaml(reference_pages) + after, encoding="utf-8")
    return config
