"""Kernels: started before they are needed, and ended with everything they started.

A kernel takes most of a second to boot, so the next notebook's is started while the current one
works. This room must not know notebooks.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from jupyter_client.kernelspec import NATIVE_KERNEL_NAME, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync

from helpers.book.processes import Watcher, end, family

BATCH_VARIABLE = "RECOVER_BATCH"
_log = logging.getLogger(__name__)
_SHUTDOWN_S = 2.0  # to run exit hooks after the polite request; half of it before SIGTERM
_LOOK_EVERY_S = 0.01
_LAST_WORDS_BYTES = 4000


@dataclass(frozen=True)
class KernelOrder:
    """Which kernel is wanted: two equal orders are served by the same kernel.

    Attributes:
        name: the kernel's name in the notebook.
        cwd: its working directory.
        env: variables besides this process's own, sorted.
    """

    name: str
    cwd: Path
    env: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, name: str, cwd: Path, env: Mapping[str, str]) -> KernelOrder:
        """An order for a kernel in batch: helpers in it must not wait for a person."""
        return cls(name, cwd, tuple(sorted({BATCH_VARIABLE: "1", **env}.items())))


class KernelSupply:
    """The kernels of this process that are running or started ahead."""

    def __init__(self) -> None:
        self._ahead: tuple[KernelOrder, AsyncKernelManager] | None = None
        self._said: dict[AsyncKernelManager, IO[bytes]] = {}
        self._watcher = Watcher()

    async def take(self, order: KernelOrder) -> AsyncKernelManager:
        """A kernel for an order: the one started ahead when it fits and lives, else a new one.

        Raises:
            NoSuchKernel: no kernel has that name.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            if ahead[0] == order and await ahead[1].is_alive():
                return ahead[1]
            await self._discard(ahead[1])
        return await self._start(order)

    async def start_ahead(self, order: KernelOrder) -> None:
        """Start a kernel that will be taken later. It boots by itself meanwhile."""
        if self._ahead is None:
            try:
                self._ahead = (order, await self._start(order))
            except OSError as error:  # no memory, no process left: whoever needs it will be told
                _log.warning("no kernel could be started ahead: %s", error)

    async def end(self, kernel: AsyncKernelManager, *, now: bool = False) -> None:
        """End a kernel and what it started.

        **Runs on:** operator. **Changes:** those processes are gone.

        Args:
            kernel: the kernel.
            now: kill it; else it is interrupted, asked to end, given a moment for its exit hooks,
                and killed if it is still there.
        """
        pid = _pid_of(kernel)
        children = family(pid) if pid else []  # afterwards they would be orphans
        if now or not await kernel.is_alive():
            await kernel.shutdown_kernel(now=True)
        else:  # what shutdown_kernel does, without its tenths of a second between two looks
            await kernel.interrupt_kernel()
            await kernel.request_shutdown()
            await kernel.finish_shutdown(waittime=_SHUTDOWN_S, pollinterval=_LOOK_EVERY_S)
            await kernel.cleanup_resources()
        if pid:
            end([*children, *family(pid)])
            self._watcher.withdraw(pid)
        self._said.pop(kernel).close()

    def last_words(self, kernel: AsyncKernelManager) -> list[str]:
        """The last lines that a kernel wrote past Jupyter: why it did not start, or crashed."""
        said = self._said[kernel]
        said.seek(max(0, said.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
        return said.read().decode(errors="replace").splitlines()

    async def _discard(self, kernel: AsyncKernelManager) -> None:
        """End a kernel in which nothing has run. It may be half booted and is not talked to."""
        if kernel.provisioner is not None:
            await kernel.provisioner.kill()
        await self.end(kernel, now=True)

    async def _start(self, order: KernelOrder) -> AsyncKernelManager:
        kernel = AsyncKernelManager(kernel_name=order.name, transport_encryption="auto")
        options = []
        if order.name == NATIVE_KERNEL_NAME:
            # A "python3" kernel installed for the user may be another Python, without this package.
            kernel.kernel_spec_manager = KernelSpecManager(kernel_dirs=[])
            options = ["--HistoryManager.enabled=False", "--log-level=40"]
        # The debugger's advice about frozen modules would be the first line of every notebook.
        quiet = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        with ExitStack() as until_started:
            said = until_started.enter_context(TemporaryFile())
            await kernel.start_kernel(
                cwd=str(order.cwd),
                env={**os.environ, **quiet, **dict(order.env)},
                extra_arguments=options,
                stdout=said,
                stderr=said,
            )
            until_started.pop_all()  # from here on it is open as long as the kernel
        self._said[kernel] = said
        pid = _pid_of(kernel)
        if pid:
            self._watcher.announce(pid)
        return kernel

    def close(self) -> None:
        """End the kernel started ahead, if there is one, and the watcher."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            run_sync(self._discard)(ahead[1])
        self._watcher.close()


def _pid_of(kernel: AsyncKernelManager) -> int | None:
    return getattr(kernel.provisioner, "pid", None)  # a remote provisioner has none


SUPPLY = KernelSupply()
atexit.register(SUPPLY.close)


def drop_prestarted() -> None:
    """End the kernel that was started for a next notebook which does not come.

    **Runs on:** operator. **Changes:** that process is gone.
    """
    SUPPLY.close()
