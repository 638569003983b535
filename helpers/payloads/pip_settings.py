"""What pip on this machine would be told by its files and variables, and how to tell uv the same.

uv reads none of pip's configuration.  On a machine behind a company mirror an install with plain uv therefore
goes to an index that cannot be reached, or past a constraint that was set for a reason.  This module reads the
settings in pip's own order and with pip's own rules, without pip:

1. global files: ``$XDG_CONFIG_DIRS/pip/pip.conf`` (``/etc/xdg``), then ``/etc/pip.conf``
2. user files: ``~/.pip/pip.conf``, then ``$XDG_CONFIG_HOME/pip/pip.conf`` (``~/.config``); left out when
   ``PIP_CONFIG_FILE`` names a file that exists
3. the environment's own ``pip.conf``
4. the file ``PIP_CONFIG_FILE`` names; when that is ``/dev/null``, no file at all is read
5. ``PIP_*`` variables

A later value replaces an earlier one, and the section ``[install]`` goes before ``[global]``, wherever it stands.

Sent along with the payloads that need it.  Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

PYPI = "https://pypi.org/simple"
LISTS = ("extra-index-url", "find-links", "constraint", "trusted-host")
NAMES = ("index-url", *LISTS, "no-index", "cert", "client-cert", "proxy", "pre", "timeout", "default-timeout")
# Settings of pip that say nothing about what is installed from where.
IRRELEVANT = ("disable-pip-version-check", "no-input", "no-color", "progress-bar", "quiet", "verbose", "cache-dir",
              "root-user-action", "no-python-version-warning", "break-system-packages", "require-virtualenv",
              "config-file")  # fmt: skip
CREDENTIALS = re.compile(r"(?<=://)([^/@\s]*)@")


class Setting(NamedTuple):
    """A value as written, and the file or variable it comes from."""

    value: str
    source: str


class Settings(NamedTuple):
    """What holds in the end, and where pip looked."""

    values: dict[str, Setting]
    files: list[dict[str, Any]]

    def text(self, name: str) -> str | None:
        """One value, or None."""
        return self.values[name].value if name in self.values else None

    def words(self, name: str) -> list[str]:
        """The values of an option that may be given several times."""
        return (self.text(name) or "").split()

    def flag(self, name: str) -> bool:
        """A yes or no."""
        return (self.text(name) or "").lower() in ("y", "yes", "t", "true", "on", "1")


def read(venv: str | None, environment: Mapping[str, str]) -> Settings:
    """Read the settings that an install into ``venv`` would follow. **Changes:** nothing."""
    files = []
    sections: dict[str, dict[str, Setting]] = {"global": {}, "install": {}}
    for kind, path in _files(venv, environment):
        files.append({"kind": kind, "path": path, "exists": os.path.isfile(path), "error": None})
        if files[-1]["exists"]:
            try:
                _read_file(path, sections)
            except (configparser.Error, OSError, UnicodeDecodeError) as error:
                files[-1]["error"] = f"{type(error).__name__}: {error}"
    values = {**sections["global"], **sections["install"]}
    for variable, value in sorted(environment.items()):
        if variable.startswith("PIP_") and value:
            values[_option(variable[4:])] = Setting(value, variable)
    return Settings(values, files)


def _files(venv: str | None, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    named = environment.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    home = environment.get("HOME") or str(Path.home())
    for folder in (environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep):
        if folder:
            yield "global", f"{folder}/pip/pip.conf"
    yield "global", "/etc/pip.conf"
    if not (named and os.path.exists(named)):
        yield "user", f"{home}/.pip/pip.conf"
        yield "user", f"{environment.get('XDG_CONFIG_HOME') or home + '/.config'}/pip/pip.conf"
    if venv:
        yield "site", f"{venv}/pip.conf"
    if named:
        yield "PIP_CONFIG_FILE", named


def _read_file(path: str, sections: dict[str, dict[str, Setting]]) -> None:
    parser = configparser.RawConfigParser()
    with open(path, encoding="utf-8") as file:
        parser.read_file(file)
    for section, values in sections.items():
        if parser.has_section(section):
            for name, value in parser.items(section):
                if value:
                    values[_option(name)] = Setting(value, path)


def _option(name: str) -> str:
    return name.lower().replace("_", "-").lstrip("-")


def mask(text: str) -> str:
    """The text with the user and password of every URL in it replaced by ``***``."""
    return CREDENTIALS.sub("***@", text)


def has_secret(text: str) -> bool:
    """Whether a URL in the text carries a user or password."""
    return CREDENTIALS.search(text) is not None


def describe(settings: Settings) -> dict[str, Any]:
    """The settings for the record: passwords masked, each value with its source."""

    def one(name: str) -> dict[str, Any] | None:
        found = settings.values.get(name)
        return _shown(found.value, found.source) if found else None

    def several(name: str) -> list[dict[str, Any]]:
        found = settings.values.get(name)
        return [_shown(word, found.source) for word in found.value.split()] if found else []

    other = set(settings.values) - set(NAMES) - set(IRRELEVANT)
    return {
        "files": settings.files,
        "index_url": one("index-url") or _shown(PYPI, "pip's default"),
        "extra_index_urls": several("extra-index-url"),
        "find_links": several("find-links"),
        "constraints": several("constraint"),
        "no_index": settings.flag("no-index"),
        "trusted_hosts": several("trusted-host"),
        "cert": one("cert"),
        "client_cert": one("client-cert"),
        "proxy": one("proxy"),
        "pre": settings.flag("pre"),
        "timeout_s": one("timeout") or one("default-timeout"),
        "not_carried_over": [{"name": n, **(one(n) or {})} for n in sorted(other)],
    }


def _shown(value: str, source: str) -> dict[str, Any]:
    return {"value": mask(value), "source": source, "secret": has_secret(value)}


def local_sources(settings: Settings) -> list[str]:
    """Arguments that restrict uv to what lies on this machine's disk: folders and ``file://`` indexes.

    Empty when there is no such source.  **Changes:** nothing.
    """
    links = [link for link in map(_located, settings.words("find-links")) if "://" not in link]
    links += [link for link in settings.words("find-links") if link.startswith("file://")]
    indexes = [url for url in _indexes(settings) if url.startswith("file://")]
    if not links and not indexes:
        return []
    arguments = [f"--find-links={link}" for link in links]
    if not indexes:
        return [*arguments, "--no-index"]
    arguments += [f"--index={url}" for url in indexes[1:]]
    return [*arguments, f"--default-index={indexes[0]}", "--index-strategy=unsafe-best-match"]


def _indexes(settings: Settings) -> list[str]:
    if settings.flag("no-index"):
        return []
    return [settings.text("index-url") or PYPI, *settings.words("extra-index-url")]


def _located(link: str) -> str:
    return os.path.expanduser(link) if link.startswith("~") else link


def uv_arguments(settings: Settings, more_indexes: list[str]) -> list[str]:
    """Arguments that make uv look where pip would, and in ``more_indexes``.

    pip takes the best version of all its sources; uv by itself stops at the first index that knows a name.
    """
    arguments = [f"--find-links={_located(link)}" for link in settings.words("find-links")]
    indexes = _indexes(settings)
    if indexes or more_indexes:
        first, *rest = [*indexes, *more_indexes]
        # uv asks an --index before the default one; with this strategy the order decides only between equals.
        arguments += [f"--default-index={first}", *(f"--index={url}" for url in rest)]
        arguments.append("--index-strategy=unsafe-best-match")
    else:
        arguments.append("--no-index")
    arguments += [f"--constraint={_located(file)}" for file in settings.words("constraint")]
    arguments += [f"--allow-insecure-host={host}" for host in settings.words("trusted-host")]
    if settings.flag("pre"):
        arguments.append("--prerelease=allow")
    return arguments


def uv_environment(settings: Settings) -> dict[str, str]:
    """Variables that tell uv what it has no arguments for."""
    wanted = {
        "SSL_CERT_FILE": settings.text("cert"),
        "SSL_CLIENT_CERT": settings.text("client-cert"),
        "ALL_PROXY": settings.text("proxy"),
        "UV_HTTP_TIMEOUT": settings.text("timeout") or settings.text("default-timeout"),
    }
    return {name: value for name, value in wanted.items() if value}
