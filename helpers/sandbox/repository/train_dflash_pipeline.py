"""Train the drafter: one process, and one thread for each role on each of its devices.

    target threads   --- bounded queue --->   drafter threads   --- reports --->   main thread
    read text,                                train on a batch,                    prints progress
    lend hidden states                        meet now and then

A target waits while the queue is full, so the slower side sets the pace and memory stays bounded.
Every drafter trains a replica; every ``--meet-every`` steps they meet, and all take their mean.

What it prints: one line for each log interval, and no other line that starts with ``step=``::

    step=20 loss=5.4321 accuracy=0.0123 tok_per_s=12345.6 elapsed_s=12.3

``step`` counts the steps of one drafter; ``loss`` and ``accuracy`` are means over the interval and
all drafters; ``tok_per_s`` counts the draft tokens of all drafters in the interval; ``elapsed_s``
is the time since the threads started.  A line that starts with ``#`` is a remark.

How it ends: 0 when all steps are done; 1 with the traceback when any thread raised; 128 + N after
signal N (SIGINT, SIGTERM).  With ``--checkpoint`` the parameters are saved in the first and the
last case; an interrupted run saves drafter 0 as it is, some steps after the last meeting.
"""

from __future__ import annotations

import argparse
import faulthandler
import math
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, TypeVar

import torch
from dflash_model import Settings
from dflash_roles import (
    Batch,
    DrafterWorker,
    TargetWorker,
    TextStream,
    Worker,
    average,
    save_checkpoint,
)
from torch import Tensor
from tqdm import tqdm

SECONDS_TO_END = 10.0
T = TypeVar("T")


class Stopped(Exception):
    """Raised inside a worker's thread when the process is ending."""


class Report(NamedTuple):
    """What a drafter tells the main thread after a step."""

    loss: Tensor
    accuracy: Tensor
    tokens: int


class Pipeline:
    """The workers, the threads they run in, and the queues between them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.settings = Settings(block_size=options.block_size, gamma=options.gamma)
        self.sizes = batch_sizes(options)
        self.targets = [TargetWorker(device, self.settings) for device in options.target_devices]
        self.drafters = [
            DrafterWorker(device, self.settings, options.learning_rate)
            for device in options.drafter_devices
        ]
        self.batches: queue.Queue[Batch] = queue.Queue(options.queue_length)
        self.reports: queue.Queue[Report] = queue.Queue()
        self.meeting = threading.Barrier(len(self.drafters), lambda: average(self.drafters))
        self.stop = threading.Event()
        self.failure: tuple[str, BaseException] | None = None
        self.threads: list[threading.Thread] = []

    def first_steps(self) -> None:
        """Let every worker meet every size here, before other threads exist; no weight changes.

        Tracing a model beside threads that call compiled functions is not safe in torch.
        """
        text = TextStream(self.settings.vocabulary, self.options.seed)
        for batch, anchors in self.sizes:
            tokens, at = self._text(text, batch, anchors)
            for target in self.targets:
                target.enter()
                hidden = timed(f"target {batch}x{tokens.shape[1]}", target, target.read, tokens)
            for drafter in self.drafters:
                drafter.enter()
                size = f"drafter {batch}x{tokens.shape[1]}+{anchors}"
                timed(size, drafter, drafter.gradients, Batch(tokens, hidden, at))

    def start(self) -> None:
        """Start one thread for each role on each device."""
        for number, target in enumerate(self.targets):
            self._add(f"target-{number}", target, self._feed, number)
        for number, drafter in enumerate(self.drafters):
            self._add(f"drafter-{number}", drafter, self._train, number)
        for thread in self.threads:
            thread.start()

    def halt(self) -> None:
        """Ask all threads to end, also those that wait for one another."""
        self.stop.set()
        self.meeting.abort()

    def next_report(self) -> Report | None:
        """The next report of any drafter; None when the process is ending."""
        try:
            return self._until_stopped(lambda: self.reports.get(timeout=0.1))
        except Stopped:
            return None

    def end(self) -> None:
        """End all threads.  A thread that does not is shown, and takes the process with it."""
        self.halt()
        deadline = time.monotonic() + SECONDS_TO_END
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self.failure:
            print(f"# thread {self.failure[0]} failed", file=sys.stderr)
            traceback.print_exception(self.failure[1])
        stuck = [thread.name for thread in self.threads if thread.is_alive()]
        if stuck:
            print(f"# still running after {SECONDS_TO_END} s: {', '.join(stuck)}", file=sys.stderr)
            faulthandler.dump_traceback()
            os._exit(1)

    def _add(self, name: str, worker: Worker, work: Callable[[int], None], number: int) -> None:
        def guarded() -> None:
            try:
                worker.enter()
                work(number)
            except (Stopped, threading.BrokenBarrierError):
                self.halt()
            except BaseException as error:
                self.failure = self.failure or (f"{name} on {worker.device}", error)
                self.halt()

        self.threads.append(threading.Thread(target=guarded, name=name, daemon=True))

    def _feed(self, number: int) -> None:
        text = TextStream(self.settings.vocabulary, self.options.seed + 1 + number)
        while True:
            size = self.sizes[text.random.integers(len(self.sizes))]
            tokens, at = self._text(text, *size)
            batch = Batch(tokens, self.targets[number].read(tokens), at)
            self._until_stopped(lambda batch=batch: self.batches.put(batch, timeout=0.1))

    def _train(self, number: int) -> None:
        for step in range(1, self.options.steps + 1):
            batch = self._until_stopped(lambda: self.batches.get(timeout=0.1))
            loss, accuracy = self.drafters[number].step(batch)
            if step % self.options.meet_every == 0 or step == self.options.steps:
                self.meeting.wait()
            tokens = batch.anchors.numel() * self.settings.block_size
            self.reports.put(Report(loss, accuracy, tokens))

    def _text(self, text: TextStream, batch: int, anchors: int) -> tuple[Tensor, Tensor]:
        context = self.options.context
        at = text.anchors(batch, context, anchors, self.settings.block_size)
        return text.tokens(batch, context), at

    def _until_stopped(self, attempt: Callable[[], T]) -> T:
        while not self.stop.is_set():
            try:
                return attempt()
            except (queue.Empty, queue.Full):
                continue
        raise Stopped


def batch_sizes(options: argparse.Namespace) -> list[tuple[int, int]]:
    """(texts, anchors) of a batch of long answers and of short ones; every size costs a graph."""
    a_text = options.context + options.anchors * options.block_size
    batch = min(options.max_batch, options.token_budget // a_text)
    if batch < 1:
        raise SystemExit(f"--token-budget {options.token_budget} is less than one text: {a_text}")
    return [(batch, options.anchors), (batch, max(1, options.anchors // 2))]


def timed(what: str, worker: Worker, work: Callable[..., T], *arguments: Tensor | Batch) -> T:
    """Do a worker's first step of a size and remark how long it took."""
    began = time.perf_counter()
    result = work(*arguments)
    seconds = time.perf_counter() - began
    print(f"# first step of {what} on {worker.device}: {seconds:.1f} s", flush=True)
    return result


def follow(pipeline: Pipeline) -> int:
    """Print progress until all steps are done or the process is ending; returns the steps done."""
    options, drafters = pipeline.options, len(pipeline.drafters)
    started = since = time.perf_counter()
    interval: list[Report] = []
    done = 0
    with tqdm(total=options.steps * drafters, disable=None, unit="step") as bar:
        while done < options.steps * drafters and (report := pipeline.next_report()):
            interval.append(report)
            done += 1
            bar.update()
            if done % (options.log_interval * drafters) and done < options.steps * drafters:
                continue
            loss, accuracy = (fmean(float(r[field]) for r in interval) for field in (0, 1))
            now = time.perf_counter()
            speed = sum(report.tokens for report in interval) / (now - since)
            with bar.external_write_mode():
                print(
                    f"step={done // drafters} loss={loss:.4f} accuracy={accuracy:.4f} "
                    f"tok_per_s={speed:.1f} elapsed_s={now - started:.1f}",
                    flush=True,
                )
            if not math.isfinite(loss):
                raise FloatingPointError(f"the loss is {loss} after step {done // drafters}")
            since, interval = now, []
    return done // drafters


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    read = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = read.add_argument
    add("--target-devices", type=devices, default=devices("cpu"), help="for instance cuda:0,cuda:1")
    add("--drafter-devices", type=devices, default=devices("cpu,cpu"), help="one replica on each")
    add("--steps", type=positive, default=200, help="steps of each drafter")
    add("--token-budget", type=positive, default=1024, help="most tokens of a batch with drafts")
    add("--max-batch", type=positive, default=2, help="most texts of a batch")
    add("--context", type=positive, default=192, help="tokens of a text")
    add("--anchors", type=positive, default=16, help="draft blocks of a text with a long answer")
    add("--block-size", type=positive, default=16, help="tokens of a block, its anchor included")
    add("--gamma", type=float, default=7.0, help="how slowly later places lose weight, in places")
    add("--learning-rate", type=float, default=2e-3)
    add("--meet-every", type=positive, default=10, help="steps between two means of the replicas")
    add("--queue-length", type=positive, default=4, help="batches that may wait for a drafter")
    add("--log-interval", type=positive, default=10, help="steps between two progress lines")
    add("--seed", type=int, default=0, help="of the text; the models have seeds of their own")
    add("--checkpoint", type=Path, help="where to save the drafter at the end (safetensors)")
    options = read.parse_args(arguments)
    if options.anchors > options.context - options.block_size:
        read.error("--anchors: the context has fewer places for a block")
    return options


def devices(text: str) -> list[torch.device]:
    """Parse a comma-separated list of devices."""
    return [torch.device(name.strip()) for name in text.split(",")]


def positive(text: str) -> int:
    """Parse a whole number above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not above 0")
    return number


def main(arguments: list[str] | None = None) -> int:
    """Train, and return the exit code."""
    pipeline = Pipeline(parse(arguments))
    pipeline.first_steps()
    received: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        received.append(number)
        pipeline.halt()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    pipeline.start()
    try:
        done = follow(pipeline)
    finally:
        pipeline.end()
    if pipeline.failure:
        return 1
    if path := pipeline.options.checkpoint:
        save_checkpoint(pipeline.drafters[0].model, path, done)
        print(f"# saved step {done} to {path}", flush=True)
    return 128 + received[0] if received else 0


if __name__ == "__main__":
    sys.exit(main())
