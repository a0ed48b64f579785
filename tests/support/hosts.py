"""Several hosts on one machine: network namespaces on one switch, each with an address of its own.

Needs root and iproute2. Nothing outside the namespaces is touched but `/etc/netns`, where iproute2
looks for the resolv.conf of a namespace; all of it is gone after the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

_CLONE_NEWNET = 0x40000000  # linux/sched.h


class Network:
    """A switch and the hosts on it; hosts are named and numbered in the order of `add`."""

    def __init__(self) -> None:
        self._prefix = f"hotbed-{os.getpid()}"
        self._hosts: dict[str, str] = {}
        self._ip("netns", "add", f"{self._prefix}-switch")
        self._in("switch", "link", "add", "switch", "type", "bridge")
        self._in("switch", "link", "set", "switch", "up")

    def add(self, host: str) -> str:
        """A new host; its address."""
        number = len(self._hosts) + 1
        address = self._hosts[host] = f"10.9.8.{number}"
        name = self.name(host)
        self._ip("netns", "add", name)
        self._in("switch", "link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0",
                 "netns", name)  # fmt: skip
        self._in("switch", "link", "set", f"port{number}", "master", "switch", "up")
        self._in(host, "address", "add", f"{address}/24", "dev", "eth0")
        self._in(host, "link", "set", "eth0", "up")
        self._in(host, "link", "set", "lo", "up")
        return address

    def name(self, host: str) -> str:
        """Of the host's namespace."""
        return f"{self._prefix}-{host}"

    def ask_dns_at(self, host: str, address: str) -> None:
        """What runs on the host from now on asks this name server, twice for a second each."""
        folder = Path("/etc/netns") / self.name(host)
        folder.mkdir(parents=True)
        (folder / "resolv.conf").write_text(f"nameserver {address}\noptions timeout:1 attempts:2\n")

    def plug(self, host: str, *, is_in: bool) -> None:
        """Pull the host's cable: packets vanish and nobody is told. Or put it back."""
        number = list(self._hosts).index(host) + 1
        self._in("switch", "link", "set", f"port{number}", "up" if is_in else "down")

    @contextlib.contextmanager
    def on(self, host: str) -> Iterator[None]:
        """The calling thread is on this host: sockets that it makes, processes that it starts."""
        with Path("/proc/thread-self/ns/net").open() as home:
            with Path(f"/run/netns/{self.name(host)}").open() as there:
                _set_namespace(there.fileno())
            try:
                yield
            finally:
                _set_namespace(home.fileno())

    @contextlib.asynccontextmanager
    async def python(
        self, host: str, *arguments: str, log: Path | None = None
    ) -> AsyncIterator[Process]:
        """`python ARGUMENTS` on the host, killed at the end if it still runs."""
        with contextlib.ExitStack() as stack:
            stderr = None if log is None else stack.enter_context(log.open("w"))
            process = await asyncio.create_subprocess_exec(
                "ip", "netns", "exec", self.name(host), sys.executable, *arguments,
                stdout=asyncio.subprocess.PIPE, stderr=stderr,
            )  # fmt: skip
            try:
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.communicate()

    def close(self) -> None:
        """Take it all down; processes on it have ended."""
        for host in (*self._hosts, "switch"):
            self._ip("netns", "delete", self.name(host))
            shutil.rmtree(Path("/etc/netns") / self.name(host), ignore_errors=True)

    def _in(self, host: str, *arguments: str) -> None:
        self._ip("-n", self.name(host), *arguments)

    @staticmethod
    def _ip(*arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """A network for a test; the test is skipped, saying why, where there can be none."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need iproute2")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    try:
        made = Network()
    except OSError as error:
        pytest.skip(f"network namespaces are not permitted here: {error}")
    try:
        yield made
    finally:
        made.close()


def _set_namespace(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
