"""Secrets stay out, whatever form they take, and nothing else is touched."""

import base64
import html
import json
import random
import string
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.record.redact import Redactor, TextStream, _tag_key, from_environment

SECRET = 'correct horse/"battery"\\staple+&<é>'
# Made up, in the shapes of real ones.
LETTERS = string.ascii_letters + string.digits
_draw = random.Random(1)


def made(count, alphabet=LETTERS):
    return "".join(_draw.choices(alphabet, k=count))


HEX = "0123456789abcdef"
TOKENS = {
    "AWS Access Key": "AKIA" + made(16, string.ascii_uppercase + string.digits),
    "GitHub Token": "ghp_" + made(36),
    "GitLab Token": "glpat-" + made(20),
    "Hugging Face token": "hf_" + made(34),
    "PyPI Token": "pypi-AgEIcHlwaS5vcmc" + made(90),
    "Slack Token": "xoxb-123456789012-" + made(24, string.ascii_lowercase + string.digits),
    "JSON web token": f"eyJ{made(30)}.{made(60)}.{made(43)}",
    "Stripe Access Key": "sk_" + "live_" + made(24),
}


@pytest.fixture
def redactor():
    made = Redactor(b"key of the tests")
    made.know("PASSPHRASE", SECRET)
    return made


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps({"evidence": json.dumps({"inner": SECRET})}),
        repr(SECRET),
        html.escape(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        SECRET.encode().hex(),
        *(base64.b64encode(before + SECRET.encode() + b"after").decode() for before in (b"", b"u", b"us", b"use")),
        base64.urlsafe_b64encode(b"user:" + SECRET.encode()).decode(),
    ],
)  # fmt: skip
def test_a_known_secret_is_found_in_every_form(redactor, form):
    shown = redactor.text(f"before {form} after")
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert "[secret PASSPHRASE #" in shown
    for piece in (
        "battery",
        "horse",
        quote("horse/"),
        base64.b64encode(SECRET.encode()).decode()[8:30],
    ):
        assert piece not in shown  # fmt: skip


def test_the_same_secret_has_the_same_tag_and_another_key_gives_another(redactor):
    one, two = redactor.text(SECRET), redactor.text(quote(SECRET, safe=""))
    assert one == two
    other = Redactor(b"another")
    other.know("PASSPHRASE", SECRET)
    assert other.text(SECRET) != one


@pytest.mark.parametrize(("name", "token"), TOKENS.items())
def test_a_token_is_known_by_its_shape(name, token):
    text = f'{{"env": "X={token}", "next": 1}}'
    shown = Redactor(b"k").text(text)
    assert token not in shown
    assert token[-12:] not in shown
    assert f"[secret {name} #" in shown
    assert json.loads(shown)["next"] == 1


def test_only_the_secret_part_goes():
    redactor = Redactor(b"k")
    key = made(40, HEX)
    assert redactor.text("https://user:p@ss!w0rd@host/simple").startswith("https://user:[secret ")
    assert redactor.text("https://user:p@ss!w0rd@host/simple").endswith("]@host/simple")
    netrc = f"machine api.wandb.ai\n  login user\n  password {key}\n"
    assert redactor.text(netrc).startswith(netrc[: netrc.index(key)])
    aws = f"aws_secret_access_key = '{made(40)}'"
    assert redactor.text(aws).startswith("aws_secret_access_key = '[secret AWS")
    pem = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAA\nAAAA=\n-----END OPENSSH PRIVATE KEY-----"
    shown = redactor.text(f"x\n{pem}\ny")
    assert "b3Blb" not in shown
    assert shown.startswith("x\n-----BEGIN OPENSSH PRIVATE KEY-----[secret private key #")
    assert shown.endswith("-----END OPENSSH PRIVATE KEY-----\ny")


@pytest.mark.parametrize(
    "text",
    [
        "commit 8f14e45fceea167a5a36dedd4bea2543c1a2b3c4 of wandb 0.19.1",
        "wandb @ git+https://github.com/wandb/wandb@8f14e45fceea167a5a36dedd4bea2543c1a2b3c4",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "http://localhost:8888/lab?file=a@b.ipynb",
        "ssh://root@10.1.2.6:22 -> container 200",
        "RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function",
        "password: [hidden]; token count 17,897 tok/s; -----",
    ],
)
def test_what_is_no_secret_is_left_alone(text, redactor):
    assert redactor.text(text) == text


def test_cleaning_twice_is_cleaning_once(redactor):
    once = redactor.text(f"{SECRET} https://a:{'b' * 9}@c {' '.join(TOKENS.values())}")
    assert redactor.text(once) == once


def test_bytes_that_are_no_text_are_left_alone(redactor):
    noise = random.Random(2).randbytes(200_000)
    assert redactor.clean(noise) == noise
    assert redactor.clean(noise + SECRET.encode() + noise).count(noise) == 2


def test_a_value_that_is_an_ordinary_word_is_not_looked_for():
    redactor = Redactor(b"k")
    redactor.know("MODE", "true")
    redactor.know("EMPTY", "")
    assert redactor.text("it is true") == "it is true"


def test_the_environments_secrets_are_known_by_their_names():
    found = dict(
        from_environment(
            {
                "WANDB_API_KEY": "a", "HF_TOKEN": "b", "AWS_SECRET_ACCESS_KEY": "c", "MY_PASSWORD": "d",
                "UV_INDEX_URL": "https://me:s3cr3t-s3cr3t@index.example.org/simple",
                "PATH": "/usr/bin", "TOKENIZERS_PARALLELISM": "false", "SSH_AUTH_SOCK": "/tmp/a",
                "AUTHOR": "x", "MONKEY": "y", "TOKEN_FILE": "/etc/token",
            }
        )
    )  # fmt: skip
    assert found == {
        "WANDB_API_KEY": "a",
        "HF_TOKEN": "b",
        "AWS_SECRET_ACCESS_KEY": "c",
        "MY_PASSWORD": "d",
        "password in UV_INDEX_URL": "s3cr3t-s3cr3t",
    }


@given(
    cuts=st.lists(st.integers(0, 400), max_size=12),
    secret=st.sampled_from([SECRET, *TOKENS.values(), "https://me:s3cr3t-s3cr3t@host/"]),
)
def test_pieces_show_what_the_whole_would(cuts, secret):
    redactor = Redactor(b"k")
    redactor.know("PASSPHRASE", SECRET)
    whole = f"step 1\nexport X={secret} \nstep 2 {secret}\n"
    stream = TextStream(redactor)
    at = sorted({min(c, len(whole)) for c in cuts} | {0, len(whole)})
    shown = [stream.feed(whole[a:b]) for a, b in pairwise(at)]
    assert "".join([*shown, stream.end()]) == redactor.text(whole)


def test_ordinary_output_is_not_held_back():
    stream = TextStream(Redactor(b"k"))
    assert stream.feed("working on it: 50%") == "working on it: 50%"


def test_a_key_that_cannot_be_read_or_kept_stops_nothing(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert _tag_key() == _tag_key()
    kept = tmp_path / "recover-runbooks" / "redaction.key"
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.unlink()
    kept.mkdir()  # root reads everything: a folder cannot be read as a file by anybody
    assert len(_tag_key()) == 32
    assert "cannot be kept" in caplog.text
    kept.rmdir()
    kept.write_bytes(b"cut sho")
    assert len(_tag_key()) == 32
