"""Names the reason why brokers cannot be used: no listener, TLS, a certificate, a login.

The clients only say that they could not connect. So a few requests are made by hand: ApiVersions, SaslHandshake,
SaslAuthenticate and Metadata, in their oldest usable versions.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from streamclust_connectors.interfaces import Transient

SECONDS = 3.0
"""Time limit of each step."""
API_VERSIONS, METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 3, 17, 36
UNSUPPORTED_MECHANISM, ILLEGAL_SASL_STATE = 33, 34
TLS_ALERT = b"\x15\x03"
"""First bytes of the answer of a TLS listener to anything but TLS."""
NOT_DIAGNOSED = ""


class Cause(Exception):  # noqa: N818
    """The reason, as a sentence that names the setting to look at."""


@contextmanager
def explained_failure(options: Mapping[str, Any]) -> Iterator[None]:
    """Add the cause to a failure to connect with kafka-python's options."""
    try:
        yield
    except Transient as failure:
        if cause := cause_of_failure(options):
            raise Transient(cause) from failure
        raise


def cause_of_failure(options: Mapping[str, Any]) -> str:
    """Why a client with kafka-python's options cannot use its brokers; empty if the first one that answers is fine."""
    servers = options.get("bootstrap_servers", ())
    servers = servers.split(",") if isinstance(servers, str) else list(servers)
    unreachable = NOT_DIAGNOSED
    for server in servers:
        try:
            with closing(connected(server)) as plain:
                return examined(plain, server, options)
        except Cause as cause:
            unreachable = unreachable or str(cause)
    return unreachable


def connected(server: str) -> socket.socket:
    """A connection to a broker; raises Cause if there is none."""
    host, _, port = server.rpartition(":")
    try:
        return socket.create_connection((host.strip("[]"), int(port)), SECONDS)
    except ValueError:
        raise Cause(f"{server!r} in bootstrap_servers is not host:port") from None
    except socket.gaierror:
        raise Cause(f"the host name {host} is unknown (bootstrap_servers)") from None
    except ConnectionRefusedError:
        raise Cause(f"nothing listens at {server} (bootstrap_servers)") from None
    except OSError as error:
        raise Cause(f"{server} does not answer: {error}") from None


def examined(plain: socket.socket, server: str, options: Mapping[str, Any]) -> str:
    """Why a broker that accepts connections refuses this client; empty if it does not."""
    protocol = options.get("security_protocol", "PLAINTEXT")
    channel = plain
    try:
        if "SSL" in protocol:
            channel = encrypted(plain, server, options)
        if protocol.startswith("SASL"):
            log_in(channel, server, options)
        else:
            check_openness(channel, server, protocol)
    except Cause as cause:
        return str(cause)
    except (OSError, struct.error) as error:
        if "certificate required" in str(error).lower() or "bad certificate" in str(error).lower():
            return f"{server} asks for a certificate of this client: set ssl_certfile and ssl_keyfile"
        return f"{server} does not answer as a Kafka broker: {type(error).__name__}: {error}"
    finally:
        channel.close()
    return NOT_DIAGNOSED


def encrypted(plain: socket.socket, server: str, options: Mapping[str, Any]) -> ssl.SSLSocket:
    """The connection with TLS, as the options ask for it."""
    context = ssl.create_default_context(cafile=options.get("ssl_cafile"))
    context.check_hostname = bool(options.get("ssl_check_hostname", True))
    if options.get("ssl_certfile"):
        context.load_cert_chain(
            options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password")
        )
    try:
        return context.wrap_socket(plain, server_hostname=server.rpartition(":")[0].strip("[]"))
    except ssl.SSLCertVerificationError as error:
        if "doesn't match" in error.verify_message or "mismatch" in error.verify_message:
            raise Cause(
                f"the certificate of {server} is for another host ({error.verify_message}); connect by the name in the "
                "certificate, or set ssl_check_hostname to false"
            ) from None
        raise Cause(
            f"the certificate of {server} is not trusted ({error.verify_message}); set ssl_cafile to the certificate "
            "of its authority"
        ) from None
    except (ssl.SSLError, ConnectionError, TimeoutError) as error:
        raise Cause(
            f"{server} does not speak TLS there, or none that this client accepts ({type(error).__name__}), but "
            f"security_protocol is {options.get('security_protocol')}"
        ) from None


def check_openness(channel: socket.socket, server: str, protocol: str) -> None:
    """Raise Cause if a broker closes the connection, as one does that asks for TLS or a login."""
    answer = ask(channel, API_VERSIONS, 0)
    if answer is not None and answer.startswith(TLS_ALERT):
        raise Cause(
            f"{server} speaks TLS there, but security_protocol is {protocol}; set it to SSL or SASL_SSL"
        )
    if answer is None or ask(channel, METADATA, 1, struct.pack(">i", 0)) is None:
        raise Cause(
            f"{server} closes the connection without an answer: it probably asks for a login (security_protocol "
            f"SASL_SSL or SASL_PLAINTEXT) or for TLS; security_protocol is {protocol}"
        )


def log_in(channel: socket.socket, server: str, options: Mapping[str, Any]) -> None:
    """Log in by the mechanism of the options; raises Cause if that is refused."""
    mechanism = str(options.get("sasl_mechanism"))
    name = mechanism.encode()
    answer = ask(channel, SASL_HANDSHAKE, 1, struct.pack(">h", len(name)) + name)
    if answer is None or answer.startswith(TLS_ALERT):
        raise Cause(
            f"{server} closes the connection: it probably speaks TLS there, but security_protocol is "
            f"{options.get('security_protocol')}"
        )
    code, count = struct.unpack_from(">hi", answer)
    if code == UNSUPPORTED_MECHANISM:
        offered = ", ".join(texts(answer[6:], count))
        raise Cause(f"{server} does not offer sasl_mechanism {mechanism}; it offers {offered}")
    if code == ILLEGAL_SASL_STATE:
        raise Cause(
            f"{server} does not ask for a login there, but security_protocol is {options.get('security_protocol')}"
        )
    if mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        return
    from kafka.net.sasl import get_sasl_mechanism

    client = get_sasl_mechanism(mechanism)(**options)
    while not client.is_done():
        token = client.auth_bytes()
        answer = ask(channel, SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        if answer is None:
            raise Cause(
                f"{server} ends the connection at the login of {options.get('sasl_plain_username')!r}"
            )
        code, length = struct.unpack_from(">hh", answer)
        if code:
            said = answer[4 : 4 + max(0, length)].decode("utf-8", "replace")
            raise Cause(
                f"{server} refuses the login of {options.get('sasl_plain_username')!r} by {mechanism}: {said}; see "
                "sasl_plain_username and sasl_plain_password"
            )
        at = 4 + max(0, length)
        (size,) = struct.unpack_from(">i", answer, at)
        client.receive(answer[at + 4 : at + 4 + max(0, size)])


def ask(channel: socket.socket, api: int, version: int, body: bytes = b"") -> bytes | None:
    """The body of the answer to a request; None if the broker closes the connection or is silent."""
    request = struct.pack(">hhih", api, version, 1, -1) + body
    channel.settimeout(SECONDS)
    try:
        channel.sendall(struct.pack(">i", len(request)) + request)
        start = exactly(channel, 4)
        if start is None or start.startswith(TLS_ALERT):
            return start
        content = exactly(channel, min(struct.unpack(">i", start)[0], 1 << 20))
    except (ConnectionError, TimeoutError):
        return None
    return None if content is None else content[4:]


def exactly(channel: socket.socket, n: int) -> bytes | None:
    """The next n bytes; None if the connection is closed before."""
    found = b""
    while len(found) < n:
        more = channel.recv(n - len(found))
        if not more:
            return None
        found += more
    return found


def texts(content: bytes, count: int) -> Sequence[str]:
    """Texts, each after its length."""
    found, at = [], 0
    for _ in range(count):
        (length,) = struct.unpack_from(">h", content, at)
        found.append(content[at + 2 : at + 2 + length].decode())
        at += 2 + length
    return found
