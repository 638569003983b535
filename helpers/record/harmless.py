"""HTML from elsewhere made safe to put into a page: nothing runs, nothing loads, none escapes.

Notebook outputs and prose come from programs and people; a page that opens from an e-mail must not
do what they say. This room must not know what a page is about.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import nh3


def _words(text: str) -> set[str]:
    return set(text.split())


_TAGS = _words(
    "a abbr b blockquote br caption code col colgroup dd del details div dl dt em figcaption "
    "figure h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p pre q s samp small span strong sub "
    "summary sup table tbody td tfoot th thead tr u ul var"
)
# Dropped with all they contain; of any other unknown element the words are kept.
_DROPPED_WHOLE = _words(
    "script style template noscript title iframe object embed svg math video audio canvas form "
    "select textarea button"
)
_ATTRIBUTES = {
    "*": {"class", "style", "title"},
    "a": {"href"},
    "img": {"src", "alt", "width", "height"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan", "scope"},
    "details": {"open"},
    "ol": {"start"},
}
# Nothing here takes a url() or moves a thing out of its place.
_STYLES = _words(
    "background-color border border-bottom border-collapse border-left border-radius caption-side "
    "color display font-family font-size font-style font-weight height line-height margin "
    "margin-left margin-right max-width min-width opacity overflow-wrap overflow-x padding padding-left "
    "text-align text-decoration vertical-align white-space width"
)
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]+")
_NOTEBOOK = re.compile(r"(?:\./)?(?P<stage>\w+)\.ipynb(?:#.*)?")


def harmless(fragment: str, pages: Collection[str] = ()) -> str:
    """A balanced fragment of HTML that holds words, tables, embedded pictures and plain links.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        fragment: HTML of any origin.
        pages: stages that have a page beside the one this goes into; links to their notebooks lead
            to those pages, links to other notebooks are dropped.
    """

    def allowed(tag: str, attribute: str, value: str) -> str | None:
        if attribute == "href":
            return _link(value, pages)
        if attribute == "src":
            return value if _PICTURE.fullmatch(value) else None
        return value

    return nh3.clean(
        fragment,
        tags=_TAGS,
        clean_content_tags=_DROPPED_WHOLE,
        attributes=_ATTRIBUTES,
        attribute_filter=allowed,
        url_schemes={"http", "https", "mailto", "data"},
        filter_style_properties=_STYLES,
        link_rel="noopener noreferrer",
        strip_comments=True,
    )


def _link(value: str, pages: Collection[str]) -> str | None:
    if value.startswith(("https://", "http://", "mailto:")):
        return value
    notebook = _NOTEBOOK.fullmatch(value)
    if notebook and notebook["stage"] in pages:
        return f"{notebook['stage']}.html"
    return None
