"""Tokens for OAUTHBEARER, by the grant of client credentials; for kafka-python, librdkafka gets its own."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
import urllib.request
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

TIMEOUT_SECONDS = 10.0
MIN_LEFT_SECONDS = 30.0
"""A token is replaced this long before it expires."""
DEFAULT_LIFETIME_SECONDS = 300.0
"""Lifetime of a token whose answer does not tell it."""


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is untyped
    """Fetches tokens from a token endpoint, and keeps each until shortly before it expires."""

    def __init__(self, url: str, client_id: str, client_secret: str, scope: str | None = None) -> None:
        self.url, self.client_id, self._secret, self.scope = url, client_id, client_secret, scope
        self._turn = threading.Lock()
        self._token, self._until = "", 0.0

    def token(self) -> str:
        """A token that is valid for a while."""
        with self._turn:
            if time.monotonic() >= self._until:
                answer = self._fetch()
                self._token = str(answer["access_token"])
                left = float(answer.get("expires_in", DEFAULT_LIFETIME_SECONDS))
                self._until = time.monotonic() + max(0.0, left - MIN_LEFT_SECONDS)
            return self._token

    def _fetch(self) -> dict[str, Any]:
        asked = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        quoted = (urllib.parse.quote(part, safe="") for part in (self.client_id, self._secret))
        login = base64.b64encode(":".join(quoted).encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/x-www-form-urlencoded"}
        request = urllib.request.Request(self.url, urllib.parse.urlencode(asked).encode(), headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            found: dict[str, Any] = json.load(answer)
        return found
