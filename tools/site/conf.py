"""Settings of Sphinx for `make site`: the documents as they lie in the repository, with a navigation
in the order of docs/README.md."""

import os
import pathlib
import re

import sphinx.search.en
from sphinx import addnodes

project = html_title = "rls"
extensions = ["myst_parser", "sphinx_copybutton"]
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/**.md", "deploy/**/README.md"]
root_doc = "docs/README"
myst_heading_anchors = 6
html_theme = "furo"
html_show_sourcelink = html_copy_source = False
html_show_copyright = html_show_sphinx = False
# A block with output is copied without it.
copybutton_prompt_text = "$ "

# What people look for, and the document that answers: the search ranks it before all that only have the words.
answers = {
    "deploy/helm/rls/README": ["helm"],
    "docs/admin": ["allow one customer"],
    "docs/backends": ["memcached", "failover"],
    "docs/envoy": ["envoy timeout"],
    "docs/plans": ["tenant"],
    "docs/recipes": ["per user"],
    "docs/store-away": ["redis down"],
    "docs/strategies": ["burst", "retry-after", "window reset"],
    "docs/troubleshooting": ["429", "too many requests"],
    "docs/trying": ["dry run"],
}

link = re.compile(r"\]\(([^)#]+\.md)[^)]*\)")


def navigation(app, docname, source):
    """Appends to docs/README.md hidden lists of the documents that its sections link to, and of
    the decisions."""
    if docname != root_doc:
        return
    listed, sections = set(), []
    for line in source[0].splitlines():
        if head := re.match(r"\| \*\*(.+)\*\* \|", line) or re.match(r"## (.+)", line):
            sections.append((head[1], []))
        for path in link.findall(line) if sections else []:
            name = os.path.normpath(os.path.join("docs", path)).removesuffix(".md")
            if name not in listed and not name.startswith("docs/adr/"):
                listed.add(name)
                sections[-1][1].append("/" + name)
    toctree = "\n\n```{{toctree}}\n:hidden:\n:caption: {}\n{}\n```\n"
    for title, documents in sections:
        if documents:
            source[0] += toctree.format(title, "\n".join(documents))
    rest = [d for d in app.env.found_docs - listed - {root_doc} if not d.startswith("docs/adr/")]
    if rest:
        source[0] += toctree.format("More", "\n".join("/" + d for d in sorted(rest)))
    source[0] += toctree.format("Decisions", ":glob:\n:maxdepth: 1\n\nadr/*")


def asked(app, doctree):
    """Puts what people look for into the index, as main entries of the document."""
    if words := answers.get(app.env.docname):
        doctree.append(addnodes.index(entries=[("single", w, "", "main", None) for w in words]))


def folders(app, docname, source):
    """Makes of links to folders of the repository their texts: the site has files only."""
    beside = os.path.dirname(app.env.doc2path(docname))
    source[0] = re.sub(
        r"\[([^\]]*)\]\(([^)#:]+)\)", lambda m: m[1] if os.path.isdir(os.path.join(beside, m[2])) else m[0], source[0])


# What the theme leaves to readers of screens and to keyboards: the level of the captions in the
# navigation, names of its two parts, blocks and tables that keys can scroll, and no empty headings.
repairs = [
    ('role="heading"', 'role="heading" aria-level="2"'),
    ('<aside class="sidebar-drawer"', '<aside aria-label="All documents" class="sidebar-drawer"'),
    ('<aside class="toc-drawer', '<aside aria-label="This document" class="toc-drawer'),
    ("<pre>", '<pre tabindex="0">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    ('<th class="head"><p></p></th>', '<td class="head"></td>'),
    ('<div id="search-results">', '<h1>Search</h1><div id="search-results">'),
]


class Search(sphinx.search.en.SearchEnglish):
    """The search index has numbers, too: people look for 429."""

    def word_filter(self, word):
        return word not in self.stopwords


def finish(app, exception):
    """Repairs the pages, lets the search look for numbers, and has the site begin with the index of the documents."""
    if exception is not None or app.builder.name != "html":
        return
    for path in pathlib.Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for old, new in repairs:
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
    search = pathlib.Path(app.outdir) / "_static" / "searchtools.js"
    text, skips = search.read_text(encoding="utf-8"), r" || queryTerm.match(/^\d+$/)"
    assert skips in text, "the search skips numbers in another way"
    search.write_text(text.replace(skips, ""), encoding="utf-8")
    (pathlib.Path(app.outdir) / "index.html").write_text(
        '<!doctype html><html lang="en"><title>rls</title><meta http-equiv="refresh" content="0; url=docs/README.html">'
        '<a href="docs/README.html">Documents</a></html>\n', encoding="utf-8")


def setup(app):
    app.add_search_language(Search)
    app.connect("source-read", navigation)
    app.connect("source-read", folders)
    app.connect("doctree-read", asked)
    app.connect("build-finished", finish)
