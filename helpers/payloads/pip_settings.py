"""What pip on this machine would be told by its files and variables, and how to tell uv the same.

uv reads none of pip's configuration.  On a machine behind a company mirror an install with plain uv
therefore goes to an index that cannot be reached, or past a constraint that was set for a reason.
This module reads the settings in pip's own order and with pip's own rules, without pip:

1. global files: ``$XDG_CONFIG_DIRS/pip/pip.conf`` (``/etc/xdg``), then ``/etc/pip.conf``
2. user files: ``~/.pip/pip.conf``, then ``$XDG_CONFIG_HOME/pip/pip.conf`` (``~/.config``); left out
   when ``PIP_CONFIG_FILE`` names a file that exists
3. the environment's own ``pip.conf``
4. the file ``PIP_CONFIG_FILE`` names; when that is ``/dev/null``, no file at all is read
5. ``PIP_*`` variables

A later value replaces an earlier one, and the section ``[install]`` goes before ``[global]``,
wherever it stands.

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
BINARIES = ("only-binary", "no-binary")
NAMES = (
    "index-url",
    *LISTS,
    *BINARIES,
    "no-index",
    "cert",
    "client-cert",
    "proxy",
    "pre",
    "timeout",
    "default-timeout",
)
# Settings of pip that say nothing about what is installed from where.
IRRELEVANT = ("disable-pip-version-check", "no-input", "no-color", "progress-bar", "quiet",
              "verbose", "cache-dir", "root-user-action", "no-python-version-warning",
              "break-system-packages", "require-virtualenv", "config-file")  # fmt: skip
CREDENTIALS = re.compile(r"(?<=://)[^/\s'\"]*@")  # greedy: a password may hold an @


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
                # configparser quotes the line that it does not understand.
                files[-1]["error"] = mask(f"{type(error).__name__}: {error}")
    variables = {
        _option(variable[4:]): Setting(value, variable)
        for variable, value in sorted(environment.items())
        if variable.startswith("PIP_")
    }
    values: dict[str, Setting] = {}
    for level in (sections["global"], sections["install"], variables):
        values.update({name: setting for name, setting in level.items() if setting.value})
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
                # An empty value takes an earlier file's away; on its own it means nothing.
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
        "only_binary": one("only-binary"),
        "no_binary": one("no-binary"),
        "timeout_s": one("timeout") or one("default-timeout"),
        "not_carried_over": [{"name": n, **(one(n) or {})} for n in sorted(other)],
    }


def _shown(value: str, source: str) -> dict[str, Any]:
    return {"value": mask(value), "source": source, "secret": has_secret(value)}


def _located(path: str) -> str:
    return os.path.expanduser(path) if path.startswith("~") else path


class Sources(NamedTuple):
    """Where uv is to look: URLs in variables, for everyone can read a process's arguments."""

    arguments: list[str]
    variables: dict[str, str]


def uv_sources(settings: Settings, last_index: str | None) -> Sources:
    """Make uv look where pip would look, and last of all in ``last_index``.

    pip takes the best version of all its sources; uv by itself stops at the first index that knows
    a name.  Among equal versions uv takes the first index: extra indexes are often the nearer ones,
    so they come first.  Where the machine forbids indexes, ``last_index`` is not asked either.
    """
    links = [_located(link) for link in settings.words("find-links")]
    if settings.flag("no-index"):
        return _sources(links, [])
    indexes = [*settings.words("extra-index-url"), settings.text("index-url") or PYPI]
    return _sources(links, [*indexes, last_index] if last_index else indexes)


def uv_local_sources(settings: Settings) -> Sources | None:
    """The same, restricted to what lies on this machine's disk; None when nothing does."""
    links = [_located(link) for link in settings.words("find-links")]
    links = [link for link in links if "://" not in link or link.startswith("file://")]
    indexes = [*settings.words("extra-index-url"), settings.text("index-url") or PYPI]
    indexes = [url for url in indexes if url.startswith("file://")]
    indexes = [] if settings.flag("no-index") else indexes
    return _sources(links, indexes) if links or indexes else None


def _sources(links: list[str], indexes: list[str]) -> Sources:
    variables = {"UV_FIND_LINKS": ",".join(links)} if links else {}
    if not indexes:
        return Sources(["--no-index"], variables)
    variables["UV_DEFAULT_INDEX"] = indexes[-1]
    if indexes[:-1]:
        variables["UV_INDEX"] = " ".join(indexes[:-1])
    return Sources(["--index-strategy=unsafe-best-match"], variables)


def uv_arguments(settings: Settings) -> list[str]:
    """The other settings that uv has arguments for."""
    arguments = [f"--constraint={_located(file)}" for file in settings.words("constraint")]
    arguments += [f"--allow-insecure-host={host}" for host in settings.words("trusted-host")]
    for name in BINARIES:
        names = (settings.text(name) or "").replace(",", " ").split()
        arguments += [f"--{name}={package}" for package in names]
    return [*arguments, "--prerelease=allow"] if settings.flag("pre") else arguments


def uv_variables(settings: Settings) -> dict[str, str]:
    """The settings that uv takes only from variables: certificates, proxy, time-out."""
    wanted = {
        "SSL_CERT_FILE": settings.text("cert"),
        "SSL_CLIENT_CERT": settings.text("client-cert"),
        "ALL_PROXY": settings.text("proxy"),
        "UV_HTTP_TIMEOUT": settings.text("timeout") or settings.text("default-timeout"),
    }
    return {name: value for name, value in wanted.items() if value}
