"""What keeps secrets out of the record: everything that is written passes through here first.

A secret is known by its value (from the environment, or named by a target), in every form in which
it may turn up, or it is recognised by its shape (``token_shapes``). It is replaced by its name and
a short tag, ``[secret WANDB_API_KEY #3f9a1c]``: the same secret has the same tag everywhere on this
machine, so that two uses can be told to be the same, and the tag says nothing without the key that
is kept outside every run folder. All other bytes are left as they are.

Values shorter than eight characters are not looked for: they would eat ordinary words.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import json
import logging
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from urllib.parse import quote, quote_plus

from filelock import FileLock
from platformdirs import user_state_path

from helpers.record.token_shapes import BEGINNINGS, LONGEST_BEGINNING, shapes

LEAST_CHARS = 8
_KEY_FILE = "redaction.key"
_KEY_BYTES = 32
_log = logging.getLogger(__name__)
# Names under which programs keep secrets in the environment.
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|API_?KEY|ACCESS_?KEY"
    r"|SECRET_?KEY|PRIVATE_?KEY|AUTH)(?:_|$)",
    re.IGNORECASE,
)
# These name a place or a way, and no secret.
_NO_SECRET = re.compile(r"(?:_FILE|_PATH|_DIR|_SOCK|_URL|_COMMAND|_METHOD|_ID)$", re.IGNORECASE)


class Redactor:
    """Replaces secrets in bytes and in text.

    Args:
        key: what tags are made with.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._forms: dict[bytes, bytes] = {}
        self._beginnings: set[bytes] = set()
        self._longest_beginning = 0

    def know(self, name: str, value: str) -> None:
        """Look for this secret from now on, in every form; one that is too short is not looked for."""
        if len(value) < LEAST_CHARS:
            return
        mark = self._mark(name, value.encode("utf-8", "surrogateescape"))
        for form in _forms(value):
            self._forms.setdefault(form, mark)
            self._beginnings |= {form[:size] for size in range(1, len(form))}
        self._longest_beginning = max(map(len, self._beginnings))

    def clean(self, data: bytes) -> bytes:
        """The data without secrets. **Changes:** nothing."""
        # Looking for one text after the other is many times faster than for any of them at once.
        there = sorted((form for form in self._forms if form in data), key=len, reverse=True)
        if there:
            pattern = re.compile(b"|".join(map(re.escape, there)))
            data = pattern.sub(lambda match: self._forms[match[0]], data)
        for shape in shapes():
            data = shape.pattern.sub(partial(self._cut, shape.name), data)
        return data

    def text(self, text: str) -> str:
        """The text without secrets. **Changes:** nothing."""
        cleaned = self.clean(text.encode("utf-8", "surrogatepass"))
        return cleaned.decode("utf-8", "surrogatepass")

    def held_back(self, text: str) -> int:
        """How many characters at the end may be the beginning of a secret that is not whole yet."""
        return max(self._unfinished_known(text), _unfinished_shape(text))

    def _unfinished_known(self, text: str) -> int:
        data = text[-self._longest_beginning :].encode("utf-8", "surrogatepass")
        for size in range(min(self._longest_beginning, len(data)), 0, -1):
            if data[-size:] in self._beginnings:
                return len(data[-size:].decode("utf-8", "replace"))
        return 0

    def _cut(self, name: str, match: re.Match[bytes]) -> bytes:
        """The match with its secret part replaced: the group called so, or all of it."""
        group = "secret" if "secret" in match.re.groupindex else 0
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        whole = match[0]
        if whole[start:end].startswith(b"[secret "):
            return whole
        return whole[:start] + self._mark(name, whole[start:end]) + whole[end:]

    def _mark(self, name: str, value: bytes) -> bytes:
        tag = hmac.new(self._key, value, hashlib.sha256).hexdigest()[:6]
        return f"[secret {name} #{tag}]".encode()


class TextStream:
    """Text that arrives in pieces, without secrets even where a piece ends in the middle of one."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""

    def feed(self, text: str) -> str:
        """Take a piece; return what can be shown now."""
        whole = self._held + text
        ready = len(whole) - self._redactor.held_back(whole)
        self._held = whole[ready:]
        return self._redactor.text(whole[:ready])

    def end(self) -> str:
        """Nothing more comes: what was held back."""
        rest, self._held = self._held, ""
        return self._redactor.text(rest)


@cache
def redactor() -> Redactor:
    """This process's redactor: it knows the secrets of the environment.

    **Runs on:** operator. **Changes:** makes the key for tags in the user's state folder, once.
    """
    made = Redactor(_tag_key())
    for name, value in from_environment(os.environ):
        made.know(name, value)
    return made


def from_environment(environment: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """The variables that hold a secret, by their names, and passwords in URLs of any variable."""
    for name, value in environment.items():
        if _SECRET_NAME.search(name) and not _NO_SECRET.search(name):
            yield name, value
        for match in re.finditer(r"://[^/\s:@]*:([^/\s]+)@", value):
            yield f"password in {name}", match[1]


def _forms(value: str) -> set[bytes]:
    """A value as it is, quoted for JSON, Python, HTML and URLs, and in base64."""
    said = {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(value)[1:-1])[1:-1],
        repr(value)[1:-1],
        html.escape(value),
        quote(value, safe=""),
        quote(value),
        quote_plus(value),
    }
    raw = value.encode("utf-8", "surrogateescape")
    forms = {text.encode("utf-8", "surrogateescape") for text in said} | {raw.hex().encode()}
    return forms | {form for form in _in_base64(raw) if len(form) >= LEAST_CHARS}


def _in_base64(raw: bytes) -> Iterable[bytes]:
    """The characters that stand for it in base64 wherever it begins, whatever is around it."""
    for before in range(3):
        padded = b"\0" * before + raw
        encoded = base64.b64encode(padded)
        # The first characters hold what came before as well, the last ones what comes after.
        first = -(-before * 8 // 6)
        last = len(padded) * 8 // 6
        inner = encoded[first:last]
        yield inner
        yield inner.replace(b"+", b"-").replace(b"/", b"_")


def _unfinished_shape(text: str) -> int:
    end = text[-LONGEST_BEGINNING:]
    match = BEGINNINGS.search(end)
    return len(end) - match.start() if match else 0


def _tag_key() -> bytes:
    """Random, made once for this user; where none can be kept or read, one for this process.

    Tags are a convenience: a key that another user owns, or a full disk, must not stop the record.
    """
    path = user_state_path("recover-runbooks") / _KEY_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f"{path.name}.lock")):
            if not path.exists():
                _keep_key(path, os.urandom(_KEY_BYTES))
            key = path.read_bytes()
    except OSError as error:
        _log.warning("the key for the tags of secrets cannot be kept: %s", error)
        key = b""
    return key if len(key) == _KEY_BYTES else os.urandom(_KEY_BYTES)


def _keep_key(path: Path, key: bytes) -> None:
    """Nobody else may read it, at no time, and it is there whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
    part.replace(path)
