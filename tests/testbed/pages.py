"""Pages and fragments of HTML, parsed strictly and searched for anything that could act."""

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "source", "col", "link", "input"}


class Page(HTMLParser):
    """A whole page: every element closed, attributes and words collected."""

    def __init__(self, path):
        super().__init__()
        self.open, self.tags, self.addresses, self.attributes, self.words = [], [], [], [], []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        assert self.open == [], f"never closed: {self.open}"
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.addresses += [v for n, v in attrs if n in ("src", "href", "srcset", "action", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)


def harmless_page(path, links=()):
    """Parse a page and prove that it runs nothing and asks nothing of any network."""
    page = Page(path)
    forbidden = {"script", "iframe", "object", "embed", "form", "link", "base", "svg", "input"}
    assert not forbidden & set(page.tags)
    assert not [name for name in page.attributes if name.startswith("on")]
    for address in page.addresses:
        local = re.fullmatch(r"(\.\./)?(notebooks/)?\w+\.(html|ipynb)", address)
        drawn = re.fullmatch(r"data:image/(png|svg\+xml);base64,[A-Za-z0-9+/=]+", address)
        assert local or drawn or address in links, address
    assert page.tags.count("style") == 1
    style = page.source.split("<style>")[1].split("</style>")[0]
    assert "url(" not in page.source.replace("alert", "")
    assert "@import" not in style
    assert "default-src 'none'" in page.source
    assert "\x1b" not in page.source
    return page


class Fragment(HTMLParser):
    """A fragment of a page: tags, attributes, text, and whatever is not closed."""

    def __init__(self, fragment):
        super().__init__()
        self.open, self.tags, self.attributes, self.words = [], [], [], []
        self.feed(fragment)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())


def harmless_view(view):
    parsed = Fragment(view.html)
    assert not {"script", "style", "iframe", "object", "embed", "form", "link"} & set(parsed.tags)
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert "\x1b" not in view.text + view.html
    assert "\u202e" not in view.text + view.html
    if "<table" in view.html and "<strong" not in view.html:
        assert max(map(len, view.text.splitlines())) <= 100
    assert set(view._repr_mimebundle_()) >= {"text/plain", "text/html"}
    return parsed
