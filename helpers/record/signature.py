"""Signatures by ssh keys, which every operator has a tool for: ``ssh-keygen -Y``.

A key is used only when it asks for nothing: a passphrase prompt would stop an unattended run. This
room must not know what is signed.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

KEY_VARIABLE = "RECOVER_SIGNING_KEY"
# ssh-keygen binds a signature to what it was made for: one for this cannot pass as one for git.
NAMESPACE = "recover-runbooks"
_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_TIMEOUT_S = 20.0


def signature_of(file: Path) -> Path:
    """Where the signature of a file lies. **Changes:** nothing."""
    return file.with_name(f"{file.name}.sig")


def sign(file: Path) -> tuple[str | None, str]:
    """Sign a file with a key that asks for nothing.

    **Runs on:** operator. **Changes:** ``FILE.sig``.

    Returns:
        The key's fingerprint, or None and why there is no signature.
    """
    key = _key()
    if key is None:
        return None, f"there is no ssh key in ~/.ssh, and {KEY_VARIABLE} names none"
    done = _ssh_keygen("-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE, str(file))
    if done is None or done.returncode != 0:
        said = "it did not end in time" if done is None else done.stderr.strip().splitlines()[-1:]
        signature_of(file).unlink(missing_ok=True)
        return None, f"{key} cannot sign unattended: {said or 'it asks for its passphrase'}"
    shown = _ssh_keygen("-l", "-f", str(key))
    return (shown.stdout.split()[1] if shown and shown.returncode == 0 else str(key)), ""


def _key() -> Path | None:
    named = os.environ.get(KEY_VARIABLE)
    if named:
        return Path(named).expanduser()
    found = (Path.home() / ".ssh" / name for name in _DEFAULT_KEYS)
    return next((path for path in found if path.is_file()), None)


def check_signature(file: Path, allowed_signers: Path | None) -> tuple[bool | None, str]:
    """Whether the signature of a file fits it.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        file: what was signed.
        allowed_signers: an ssh ``allowed_signers`` file; None = any key will do.

    Returns:
        True = it fits, False = it does not, None = not known; and what it says, in words.
    """
    signature = signature_of(file)
    if not signature.is_file():
        return None, "not signed: whoever can write here could have made another manifest"
    content = file.read_text(encoding="utf-8")
    check = ("-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(signature))
    done = _ssh_keygen(*check, stdin=content)
    if done is None:
        return None, "signed, but ssh-keygen is not here to check it"
    if done.returncode != 0:
        return False, f"the signature does not fit the manifest: {done.stderr.strip()}"
    who = done.stdout.strip().rpartition(" ")[2]
    if allowed_signers is None:
        return True, f"signed by {who}; whose key that is, this does not say (--allowed-signers)"
    return _check_signer(content, signature, allowed_signers, who)


def _check_signer(content: str, signature: Path, signers: Path, who: str) -> tuple[bool, str]:
    found = _ssh_keygen("-Y", "find-principals", "-s", str(signature), "-f", str(signers))
    names = found.stdout.split() if found and found.returncode == 0 else []
    if not names:
        return False, f"signed by {who}, which {signers} does not name"
    verify_as = ("-Y", "verify", "-f", str(signers), "-I", names[0], "-n", NAMESPACE)
    done = _ssh_keygen(*verify_as, "-s", str(signature), stdin=content)
    if done is None or done.returncode != 0:
        return False, f"signed by {who}, which {signers} does not accept for {names[0]}"
    return True, f"signed by {names[0]} ({who})"


def _ssh_keygen(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str] | None:
    """Run ssh-keygen so that it can ask nobody anything; None = it is not here or did not end."""
    env = {**os.environ, "SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"}
    try:
        return subprocess.run(
            ["ssh-keygen", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=env,
            timeout=_TIMEOUT_S,
            start_new_session=True,  # without a terminal it cannot ask for a passphrase
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
