"""The test proxy cuts exactly where it is told to."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.servers.postgres import shared_server
from tests.servers.proxy import BLACKHOLE, Plan, Proxy

CERTIFICATE = Path(__file__).with_name("certificate.pem")


class Echo:
    """Sends back what it gets, and remembers it."""

    def __init__(self) -> None:
        self.heard = b""
        self.ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self.connection, _ = self._listener.accept()
        except OSError:
            return
        with self.connection as connection:
            try:
                while data := connection.recv(4096):
                    self.heard += data
                    connection.sendall(data)
            except OSError:
                pass
            self.ended.set()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


def heard_until_the_end(connection: socket.socket) -> tuple[bytes, bool]:
    """All that still comes, and whether it ended with a reset."""
    heard = b""
    try:
        while data := connection.recv(4096):
            heard += data
    except ConnectionResetError:
        return heard, True
    return heard, False


@pytest.mark.parametrize("offset", range(5))
def test_a_cut_lets_exactly_so_many_bytes_reach_the_server(echo: Echo, offset: int) -> None:
    with (
        Proxy(echo.port, Plan(cut_sent=offset)) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as client,
    ):
        client.sendall(b"abcde")
        assert echo.ended.wait(10)
        assert echo.heard == b"abcde"[:offset]
        assert proxy.sent == [offset]


@pytest.mark.parametrize("offset", range(5))
def test_a_reset_lets_exactly_so_many_bytes_reach_the_client(echo: Echo, offset: int) -> None:
    plan = Plan(cut_received=offset, how="reset")
    with Proxy(echo.port, plan) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.sendall(b"abcde")
        assert heard_until_the_end(client) == (b"abcde"[:offset], True)
        assert echo.heard == b"abcde"


def test_a_black_hole_says_nothing_to_anyone(echo: Echo) -> None:
    with Proxy(echo.port, BLACKHOLE) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.sendall(b"abcde")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        assert echo.heard == b""
        assert not echo.ended.is_set()


def test_an_answer_in_several_parts_arrives_over_tls_before_the_client_speaks_again(echo: Echo) -> None:
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=CERTIFICATE)
    ours.load_cert_chain(CERTIFICATE)
    with (
        Proxy(echo.port, tls=ours) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as plain,
        theirs.wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        for part in (b"a", b"b"):
            client.sendall(part)
            assert client.recv(1) == part
        for part in (b"c", b"d", b"e"):
            echo.connection.sendall(part)
            assert client.recv(1) == part


def test_a_database_works_through_the_proxy_until_it_is_cut() -> None:
    server = shared_server()
    with Proxy(server.port) as proxy:
        connection = psycopg.connect(server.dsn(port=proxy.port))
        row = connection.execute("select length(repeat('x', 5000000)), repeat('y', 5000000)").fetchone()
        assert row is not None
        assert (row[0], len(row[1])) == (5_000_000, 5_000_000)
        proxy.cut_all()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
        connection.close()
        assert proxy.connections == 1
        with psycopg.connect(server.dsn(port=proxy.port)) as again:
            assert again.execute("select 1").fetchone() == (1,)
