"""Converts options with kafka-python's names to librdkafka's properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RENAMED = {
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
    "sasl_mechanism": "sasl.mechanisms",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "sasl_oauth_token_url": "sasl.oauthbearer.token.endpoint.url",
    "sasl_oauth_client_id": "sasl.oauthbearer.client.id",
    "sasl_oauth_client_secret": "sasl.oauthbearer.client.secret",
    "sasl_oauth_scope": "sasl.oauthbearer.scope",
}


def properties(options: Mapping[str, Any]) -> dict[str, Any]:
    """librdkafka's properties for the given options; in other names underscores become dots.

    >>> properties({"bootstrap_servers": ["a:1", "b:2"], "ssl_cafile": "ca.pem", "ssl_check_hostname": False})
    {'bootstrap.servers': 'a:1,b:2', 'ssl.ca.location': 'ca.pem', 'ssl.endpoint.identification.algorithm': 'none'}
    """
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name == "ssl_check_hostname":
            found["ssl.endpoint.identification.algorithm"] = "https" if value else "none"
        else:
            joined = ",".join(value) if isinstance(value, (list, tuple)) else value
            found[RENAMED.get(name, name.replace("_", "."))] = joined
    if "sasl.oauthbearer.token.endpoint.url" in found:
        found["sasl.oauthbearer.method"] = "oidc"
    return found
