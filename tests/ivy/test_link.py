"""Symptoms guarded: token ids that cross a network in the clear, a gateway that talks to whoever
answers, renewed certificates that are not taken, connections of a set age that lose requests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hotbed.core.errors import HotbedError
from hotbed.ivy.link import Link
from hotbed.tulip.testing import FakeEngine
from hotbed.wire import limits
from tests.ivy.asking import check, post
from tests.ivy.harness import in_process, real_tulip, settings_for, wait_until
from tests.support.certificates import make_certificates, needs_openssl


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    make_certificates(tmp_path)
    return tmp_path


def server_tls(folder: Path, *, mutual: bool = True) -> dict[str, Path]:
    files = {"tls_cert": folder / "server.pem", "tls_key": folder / "server.key"}
    return files | ({"tls_client_ca": folder / "ca.pem"} if mutual else {})


def client_tls(folder: Path, name: str = "client", **changes: Any) -> dict[str, Any]:
    own = {"replica_tls_cert": folder / f"{name}.pem", "replica_tls_key": folder / f"{name}.key"}
    return {"replica_tls_ca": folder / "ca.pem", "replica_tls_name": "localhost", **own, **changes}


@needs_openssl
async def test_the_gateway_and_its_replica_know_each_other(
    tokenizer, model, info, addresses, certificates
):
    # A Unix socket has no host that a certificate could name, as an address from DNS has none.
    async with (
        real_tulip(FakeEngine(info), addresses[0], **server_tls(certificates)),
        in_process(settings_for(addresses[0], **client_tls(certificates)), model) as (_, client),
    ):
        check(await post(client), tokenizer)


@needs_openssl
async def test_without_its_own_certificate_where_none_is_asked_for(
    tokenizer, model, info, addresses, certificates
):
    tls = client_tls(certificates, replica_tls_cert=None, replica_tls_key=None)
    async with (
        real_tulip(FakeEngine(info), addresses[0], **server_tls(certificates, mutual=False)),
        in_process(settings_for(addresses[0], **tls), model) as (_, client),
    ):
        check(await post(client), tokenizer)


@needs_openssl
@pytest.mark.parametrize("wrong", ["plain gateway", "plain replica", "name", "ca", "no cert"])
async def test_who_is_not_known_gets_nothing(model, info, addresses, certificates, wrong):
    theirs: dict[str, Any] = server_tls(certificates)
    ours = client_tls(certificates)
    if wrong == "plain gateway":
        ours = {}
    elif wrong == "plain replica":
        theirs = {}
    elif wrong == "name":
        ours["replica_tls_name"] = "elsewhere"
    elif wrong == "ca":
        ours["replica_tls_ca"] = certificates / "stranger.pem"
    else:
        ours["replica_tls_cert"] = ours["replica_tls_key"] = None
    engine = FakeEngine(info)
    settings = settings_for(addresses[0], unavailable_wait_s=0.3, **ours)
    async with (
        real_tulip(engine, addresses[0], **theirs),
        in_process(settings, model, num_up=0) as (gateway, client),
    ):
        (replica,) = gateway.pool.replicas
        await wait_until(lambda: replica.state == "down")
        before = len(engine.steps)
        assert (await post(client)).status_code == 503
        assert len(engine.steps) == before


@needs_openssl
async def test_a_renewed_authority_is_taken_without_a_restart(
    tokenizer, model, info, addresses, certificates
):
    ours = certificates / "ours"
    ours.mkdir()
    make_certificates(ours)
    tls = client_tls(ours)
    async with (
        real_tulip(FakeEngine(info), addresses[0], **server_tls(certificates)),
        in_process(settings_for(addresses[0], **tls), model, num_up=0) as (gateway, client),
    ):
        (replica,) = gateway.pool.replicas
        await wait_until(lambda: replica.state == "down")
        for name in ("ca.pem", "client.pem", "client.key"):
            (ours / name).unlink()
        await wait_until(lambda: "its TLS" in replica.reason)
        for name in ("client.pem", "client.key", "ca.pem"):
            (ours / name).write_bytes((certificates / name).read_bytes())
        await wait_until(lambda: gateway.pool.num_up == 1)
        check(await post(client), tokenizer)


def test_a_file_that_is_not_there_is_found_at_the_start(tmp_path):
    settings = settings_for("x:1", replica_tls_ca=tmp_path / "none.pem")
    with pytest.raises(HotbedError, match=r"none\.pem"):
        Link.of(settings)


async def test_replicas_that_end_connections_of_a_set_age_cost_no_request(
    tokenizer, model, info, addresses, monkeypatch
):
    # The server asks clients to leave, waits a moment, and cuts the gateway's stream for good.
    monkeypatch.setattr(limits, "_CONNECTION_AGE_GRACE_S", 1)
    sessions = []
    opened = Link.open
    monkeypatch.setattr(Link, "open", lambda *a: sessions.append(a) or opened(*a))
    async with (
        real_tulip(FakeEngine(info, step_s=0.02), addresses[0], max_connection_age_s=0.2),
        in_process(settings_for(addresses[0]), model) as (_, client),
    ):

        async def ask() -> None:
            while len(sessions) < 3:
                check(await post(client), tokenizer)

        async with asyncio.timeout(30):
            await asyncio.gather(*(ask() for _ in range(4)))
