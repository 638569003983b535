"""Secrets that are recognised by their shape: the tokens that this field's services hand out.

The shapes are those of detect-secrets (Yelp), which are kept up to date by people who do only that,
except where it lacks one (Hugging Face: ``hf_…``, huggingface.co/docs/hub/security-tokens; Weights &
Biases: 40 hexadecimal digits after its name, docs.wandb.ai) or finds only a part of it (a private
key's body, a web token's signature, a URL's password with unusual characters). Shapes that guess by
entropy or by a word nearby are left out: they would eat hashes and error messages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

# How tokens begin; all but the last two end at the next blank or quotation mark.
_WORDS = (
    *(
        "hf_",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "glpat-",
        "gldt-",
        "glft-",
        "glsoat-",
        "glrt-",
    ),
    *(
        "GR1348941",
        "glcbt-",
        "glimt-",
        "glptt-",
        "glagent-",
        "gloas-",
        "AKIA",
        "ASIA",
        "ABIA",
        "ACCA",
    ),
    *("A3T", "eyJ", "sk-", "xoxa-", "xoxb-", "xoxp-", "xoxo-", "xoxs-", "xoxr-", "pypi-", "SG."),
    *("sk_live_", "rk_live_", "https://hooks.slack.com/", "_authToken="),
)
_SENTENCES = {"wandb": r"[\s\S]{0,130}", "aws": r"[^\n]{0,110}"}


def _begun(word: str) -> str:
    """A pattern for the word cut off anywhere: ``abc`` becomes ``a(?:b(?:c)?)?``."""
    pattern = ""
    for letter in reversed(word):
        pattern = re.escape(letter) + (f"(?:{pattern})?" if pattern else "")
    return pattern


# What the end of an unfinished piece of output may be the beginning of, to its end. Where a word
# stands inside another one it is not waited for: ordinary output would be held back.
LONGEST_BEGINNING = 8_100
BEGINNINGS = re.compile(
    r"(?:"
    + r"(?<![A-Za-z0-9])(?:"
    + "|".join(rf"{re.escape(word)}[^\s\"']{{0,1100}}|{_begun(word)}" for word in _WORDS)
    + "|"
    + "|".join(rf"(?i:{word}){rest}|(?i:{_begun(word)})" for word, rest in _SENTENCES.items())
    + r")"
    + r"|:(?:/(?:/[^\s/\"'<>]{0,300})?)?"
    + r"|-----BEGIN [A-Z0-9 ]{0,30}-?-?-?-?(?:-(?:(?!-----END)[\s\S]){0,8000})?"
    + rf"|{_begun('-----BEGIN ')}"
    + r")\Z"
)
_OWN = {
    "Hugging Face token": rb"\bhf_[A-Za-z0-9]{30,}",
    "Weights & Biases key": rb"(?i:wandb)[\s\S]{0,60}?(?i:key|login|password)[\"'\s=:\\]{1,6}"
    rb"(?P<secret>[0-9a-f]{40})(?![0-9a-f])",
    "JSON web token": rb"\beyJ[A-Za-z0-9_=-]{8,}\.[A-Za-z0-9_=-]{8,}(?:\.[A-Za-z0-9_.+/=-]*)?",
    "password in a URL": rb"://[^\s/:@'\"<>]*:(?P<secret>[^\s/'\"<>]+)@",
    "npm token": rb"_authToken=[\"']?(?P<secret>[^\s\"']{8,})",
    "private key": rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----"
    rb"(?P<secret>[A-Za-z0-9+/=\s\\,:.-]{1,8000}?)(?:-----END|\Z)",
}


@dataclass(frozen=True)
class Shape:
    """A kind of token.

    Attributes:
        name: what it is called in the record.
        pattern: its shape; a group called ``secret`` is the part to hide, otherwise all of it is.
    """

    name: str
    pattern: re.Pattern[bytes]


@cache
def shapes() -> tuple[Shape, ...]:
    """All shapes. **Runs on:** operator. **Changes:** nothing."""
    # Loaded when it is first needed: it takes a tenth of a second.
    from detect_secrets.plugins.aws import AWSKeyDetector
    from detect_secrets.plugins.github_token import GitHubTokenDetector
    from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
    from detect_secrets.plugins.openai import OpenAIDetector
    from detect_secrets.plugins.pypi_token import PypiTokenDetector
    from detect_secrets.plugins.sendgrid import SendGridDetector
    from detect_secrets.plugins.slack import SlackDetector
    from detect_secrets.plugins.stripe import StripeDetector

    detectors = (
        AWSKeyDetector,
        GitHubTokenDetector,
        GitLabTokenDetector,
        OpenAIDetector,
        PypiTokenDetector,
        SendGridDetector,
        SlackDetector,
        StripeDetector,
    )
    theirs = [
        Shape(detector.secret_type, _as_bytes(pattern))
        for detector in detectors
        for pattern in detector.denylist
    ]
    return (*theirs, *(Shape(name, re.compile(pattern)) for name, pattern in _OWN.items()))


def _as_bytes(pattern: re.Pattern[str]) -> re.Pattern[bytes]:
    """The same for bytes; of what stands between quotation marks only that is the secret."""
    quoted = "[\\'\\\"](["
    source = pattern.pattern.replace(quoted, quoted.replace("([", "(?P<secret>["))
    return re.compile(source.encode(), pattern.flags & ~re.UNICODE)
