"""Bytes arrive as they were sent: through ssh, the host's shell, pct and the container's shell."""

import os
import shlex
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from helpers.errors import CommandFailed
from helpers.reach.command import Command
from helpers.reach.marks import MarkedStream

HARD = [
    *(
        b"",
        b" ",
        b"\n",
        b"\n\n",
        b"'",
        b'"',
        b"\\",
        b"\\\\",
        b"\r\n",
        b"\t",
        b"\x07",
        b"\x1b[31m",
        b"\x7f",
    ),
    *(
        b"$(id)",
        b"`id`",
        b"${HOME}",
        b"$HOME",
        b"~",
        b"*",
        b"?",
        b"[a]",
        b"{a,b}",
        b"!!",
        b"#c",
        b"%s",
    ),
    *(
        b"-n",
        b"--",
        b"-",
        b"-e",
        b"=x",
        b"x=1",
        b"a;b",
        b"a&&b",
        b"|",
        b">x",
        b"<x",
        b"a\\\nb",
        b"$'x'",
    ),
    *(
        b"\xff\xfe",
        b"\x80",
        b"\x1e",
        "é日本🎉".encode(),
        "\u202e".encode(),
        b"\xc3",
        b"\\000",
        b"\\x41",
    ),
]
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
PIECES = st.sampled_from(
    [b"'", b'"', b"\\", b"$", b"`", b"(", b")", b"\n", b" ", b"\xc3", b"\xa9", b"7"]
)
NASTY = st.one_of(
    st.sampled_from(HARD),
    TEXT.map(str.encode),
    st.binary(max_size=30).map(lambda data: data.replace(b"\0", b"")),
    st.lists(PIECES, max_size=12).map(b"".join),
)
REAL_CHAIN = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
ECHO = ("printf", "%s\\0")


def text(data: bytes) -> str:
    return os.fsdecode(data)


def echoed(container, arguments, **fields):
    result = container.run(Command((*ECHO, *map(text, arguments)), purpose="echo", **fields))
    assert (result.returncode, result.stderr) == (0, b"")
    return result.stdout


def test_arguments_arrive_byte_for_byte(container):
    """500 examples over the real chain, four at a time: one alone mostly waits."""

    def examples(number):
        @seed(number)
        @given(st.lists(NASTY, min_size=1, max_size=6))
        @settings(REAL_CHAIN, max_examples=125, database=None)
        def arrive(arguments):
            assert echoed(container, arguments) == b"".join(a + b"\0" for a in arguments)

        arrive()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(examples, range(4)))


def test_every_hard_word_arrives(container):
    assert echoed(container, HARD) == b"".join(word + b"\0" for word in HARD)


def test_every_byte_arrives(container):
    every = [bytes([byte]) for byte in range(1, 256)] + [bytes(range(1, 256))]
    assert echoed(container, every) == b"".join(word + b"\0" for word in every)


@given(NASTY, NASTY)
@settings(REAL_CHAIN, max_examples=40)
def test_values_of_variables_arrive(container, value, argument):
    argv = ("bash", "-c", 'printf "%s\\0%s\\0" "$V" "$1"', "_", text(argument))
    result = container.run(Command(argv, purpose="echo", env={"V": text(value)}))
    assert result.stdout == value + b"\0" + argument + b"\0"


@given(
    NASTY.filter(
        lambda name: name not in (b"", b".", b"..") and b"/" not in name and len(name) < 99
    )
)
@settings(REAL_CHAIN, max_examples=12)
def test_names_of_folders_and_files_arrive(container, name):
    path = "/tmp/q/" + text(name)
    script = 'mkdir -p -- "$1" && cd -- "$1" && printf %s "$PWD" >"$1/$2"'
    argv = ("bash", "-c", script, "_", path, text(name))
    container.check(Command(argv, purpose="make"), hint="")
    assert container.read(path + "/" + text(name)) == b"/tmp/q/" + name
    argv = ("bash", "-c", 'printf %s "$PWD"; rm -r /tmp/q')
    assert container.run(Command(argv, purpose="look", cwd=path)).stdout == b"/tmp/q/" + name


@given(st.binary(max_size=5000))
@settings(REAL_CHAIN, max_examples=20)
def test_input_and_output_arrive(container, data):
    result = container.run(Command(("bash", "-c", "tee /dev/stderr"), purpose="echo", stdin=data))
    assert (result.stdout, result.stderr) == (data, data)


def test_a_nul_byte_and_a_bad_name_are_refused_before_anything_is_sent(container):
    for command in (
        Command(("echo", "a\0b"), purpose="x"),
        Command(("echo",), purpose="x", env={"A B": "c"}),
        Command(("echo", "x" * 140_000), purpose="x"),
    ):
        with pytest.raises(CommandFailed) as caught:
            container.run(command)
        assert caught.value.changed == "no"


def test_what_plain_quoting_does_on_a_real_host(host):
    """Why all this: pct decodes by the host's locale, and paramiko sends none."""
    line = shlex.join(["pct", "exec", "100", "--", "printf", "%s", "é"])
    assert host.run(line, timeout_s=20).stdout != "é".encode()


@given(st.data())
def test_marks_are_found_however_the_stream_is_cut(data):
    own = data.draw(st.binary(max_size=40))
    token = "0123456789abcdef"
    said = b"perl: warning\n" + f"\x1e{token} started 17\x1e".encode()
    said += own + f"\x1e{token} ended 3\x1e".encode() + b"left behind"
    heard = bytearray()
    stream = MarkedStream(token, heard.extend)
    while said:
        size = data.draw(st.integers(1, len(said)))
        stream.feed(said[:size])
        said = said[size:]
    stream.close()
    assert bytes(stream.output) == bytes(heard) == own
    assert (stream.pid, stream.returncode, bytes(stream.before)) == (17, 3, b"perl: warning\n")
