"""Webhooks lead to the public internet alone, however an internal address is spelled."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator

import httpx
import pytest
from msgspec.structs import force_setattr

from fairlane.alerts.webhooks import find_target, is_public, post, read_address
from fairlane.client.settings.alerts import WebhookSettings
from fairlane.errors import AddressRefused, NonRetryable
from fairlane.testing.conformance.samples import NOON

SECRET = "a secret of this test"

LOOPBACK = [
    "127.0.0.1", "127.0.0.2", "127.255.255.254", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0x7f.1", "0X7F.0X0.0X0.0X1",
    "0177.0.0.1", "0177.1", "017700000001", "00000177.0.0.1", "127.0.0.1.", "127.0.0.01", "127.000.000.001", "127。0。0。1", "127．0．0．1",
    "①②⑦.⓪.⓪.①", "localhost", "LOCALHOST", "localhost.", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "0", "0.0.0.0", "0x0", "00", "0.0.0.0.",
    "[::1]", "[0:0:0:0:0:0:0:1]", "[0000:0000:0000:0000:0000:0000:0000:0001]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::FFFF:7F00:0001]",
    "[0:0:0:0:0:ffff:127.0.0.1]", "[::127.0.0.1]", "[::ffff:0:127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]",
    "%31%32%37.0.0.1", "127.0.0.1%00.example.com", "127.0.0.1%2f.example.com", "[::1%25lo]", "127.0.0.1%20", "4294967297", "127.0.0.1.0x1",
]  # fmt: skip
ELSEWHERE = [
    "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.100.100.200", "169.254.169.254",
    "0xa9fea9fe", "2852039166", "0251.0376.0251.0376", "[::ffff:169.254.169.254]", "[fd00:ec2::254]", "[fe80::1]", "[fe80::1%25eth0]", "[fc00::1]",
    "[fec0::1]", "[ff02::1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::1]", "[2002:a9fe:a9fe::]", "[2001:0:a00:1::]", "[2001:db8::1]", "192.0.0.192",
    "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "168.63.129.16", "224.0.0.1", "255.255.255.255", "240.0.0.1", "[100::1]",
]  # fmt: skip
ODD = [
    "https://user@127.0.0.1/", "https://example.com:80@127.0.0.1/", "https://127.0.0.1\\@example.com/", "https://127.0.0.1#@example.com/",
    "https://example.com@127.0.0.1/", "https:// 127.0.0.1/", "https://127.0.0.1\t/", "https://127.0.0.1\n.example.com/", "https:///127.0.0.1/",
    "file:///etc/passwd", "gopher://127.0.0.1:6379/_x", "ftp://127.0.0.1/", "unix:///run/docker.sock", "//127.0.0.1/", "127.0.0.1", "https://", "",
]  # fmt: skip


class Listener:
    """Counts who connects to loopback."""

    def __init__(self) -> None:
        self.reached = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._count, daemon=True)
        self._thread.start()

    def _count(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection:
                if connection.recv(3) == b"end":
                    return
                self.reached += 1

    def close(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as last:
            last.sendall(b"end")
        self._thread.join()
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


def webhook(url: str, **settings: object) -> WebhookSettings:
    made = WebhookSettings(url="https://example.com/", secret=SECRET, **settings)  # type: ignore[arg-type]
    # As if settings had not looked at it: where it leads is checked when something is sent.
    force_setattr(made, "url", url)
    return made


def test_there_are_more_than_sixty_spellings() -> None:
    assert len({*LOOPBACK}) == len(LOOPBACK)
    assert len(LOOPBACK) + len(ELSEWHERE) + len(ODD) >= 95


@pytest.mark.parametrize("host", LOOPBACK + ELSEWHERE)
@pytest.mark.parametrize("scheme", ["https", "http"])
def test_no_spelling_of_an_internal_address_is_connected_to(listener: Listener, scheme: str, host: str) -> None:
    with pytest.raises(AddressRefused):
        asyncio.run(post(webhook(f"{scheme}://{host}:{listener.port}/hook"), "id", b"{}", NOON))
    assert listener.reached == 0


@pytest.mark.parametrize("url", ODD)
def test_nothing_is_sent_to_what_is_no_plain_address(url: str) -> None:
    with pytest.raises(AddressRefused) as refused:
        asyncio.run(post(webhook(url), "id", b"{}", NOON))
    assert "user@" not in str(refused.value)


def test_a_name_with_one_internal_address_among_public_ones_is_refused() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "10.0.0.7"]

    with pytest.raises(AddressRefused, match=r"10\.0\.0\.7 is internal"):
        asyncio.run(find_target("https://mixed.example/", resolve=resolve))


def test_a_name_that_changes_its_mind_is_asked_once_and_the_checked_address_is_connected_to(listener: Listener) -> None:
    """The first answer is an address that is allowed, every later one the listener's, which is not."""
    answers = iter(["127.0.0.2"])

    async def rebinding(host: str, port: int) -> list[str]:
        return [next(answers, "127.0.0.1")]

    hook = webhook(f"http://rebind.example:{listener.port}/", allow=("127.0.0.2/32",))
    with pytest.raises(httpx.ConnectError):
        asyncio.run(post(hook, "id", b"{}", NOON, resolve=rebinding))
    with pytest.raises(AddressRefused):
        asyncio.run(post(hook, "id", b"{}", NOON, resolve=rebinding))
    assert listener.reached == 0


def test_plain_http_is_for_networks_that_were_named() -> None:
    async def public(host: str, port: int) -> list[str]:
        return ["93.184.215.14"]

    with pytest.raises(AddressRefused, match="use https"):
        asyncio.run(find_target("http://example.com/", resolve=public))
    target = asyncio.run(find_target("https://example.com/", resolve=public))
    assert target.addresses == ("93.184.215.14",)


def test_a_network_that_was_named_is_allowed_and_no_other() -> None:
    allowed = asyncio.run(find_target("http://127.0.0.1:8000/", ("127.0.0.0/8",)))
    assert allowed.addresses == ("127.0.0.1",)
    mapped = asyncio.run(find_target("http://[::ffff:127.0.0.1]/", ("127.0.0.0/8",)))
    assert mapped.addresses == ("::ffff:127.0.0.1",)
    with pytest.raises(AddressRefused):
        asyncio.run(find_target("http://10.0.0.1/", ("127.0.0.0/8",)))


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "93.184.215.14", "2606:4700:4700::1111", "2a00:1450::1", "64:ff9b::101:101"]
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(read_address(address))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_redirects_are_not_followed(listener: Listener, scheme: str) -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65_536)
            location = f"{scheme}://127.0.0.1:{listener.port}/"
            connection.sendall(f"HTTP/1.1 307 Go\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n".encode())

    thread = threading.Thread(target=answer)
    thread.start()
    hook = webhook(f"http://127.0.0.1:{server.getsockname()[1]}/", allow=("127.0.0.0/8",))
    with pytest.raises(NonRetryable, match="redirects are not followed"):
        asyncio.run(post(hook, "id", b"{}", NOON))
    thread.join()
    server.close()
    assert listener.reached == 0


def test_a_receiver_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.alerts.webhooks.WITHIN_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hook = webhook(f"http://127.0.0.1:{silent.getsockname()[1]}/", allow=("127.0.0.0/8",))
        with pytest.raises((TimeoutError, httpx.TimeoutException)):
            asyncio.run(post(hook, "id", b"{}", NOON))


def test_a_proxy_named_by_the_environment_is_not_used(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{listener.port}")
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    hook = webhook(f"http://127.0.0.1:{port}/", allow=("127.0.0.0/8",))
    with pytest.raises(httpx.ConnectError):
        asyncio.run(post(hook, "id", b"{}", NOON))
    assert listener.reached == 0


def test_certificates_are_checked_against_the_name_and_not_the_address() -> None:
    """The handshake names the host; a server nobody vouches for is not talked to."""
    seen: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _socket, name, _context: seen.append(name)  # type: ignore[assignment,func-returns-value]
    server = socket.create_server(("127.0.0.1", 0))

    def shake() -> None:
        connection, _ = server.accept()
        with connection:
            try:
                context.wrap_socket(connection, server_side=True)
            except (ssl.SSLError, OSError):
                return

    thread = threading.Thread(target=shake)
    thread.start()

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    hook = webhook(f"https://hooks.example:{server.getsockname()[1]}/", allow=("127.0.0.0/8",))
    with pytest.raises(httpx.TransportError):
        asyncio.run(post(hook, "id", b"{}", NOON, resolve=resolve))
    thread.join()
    server.close()
    assert seen == ["hooks.example"]
