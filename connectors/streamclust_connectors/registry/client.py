"""The client of a schema registry, and its errors in the service's terms."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamclust_connectors.interfaces import Transient, UnfitSchema

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

TIMEOUT_SECONDS = 8.0
"""Time limit of a request; the service cannot be stopped meanwhile."""
LOGIN_STATUS = (401, 403)
"""HTTP statuses of a wrong login."""
REFUSED_STATUS = (409, 422)
"""HTTP statuses of a schema that the registry refuses."""
TEMPORARY_STATUS = (408, 429)
"""HTTP statuses after which a retry may succeed, besides 5xx."""

PACKAGES = {
    "avro": "confluent_kafka.schema_registry.avro",
    "protobuf": "confluent_kafka.schema_registry.protobuf",
    "json-schema": "confluent_kafka.schema_registry.json_schema",
}
"""Module of the client that each format needs; it needs further packages."""


def import_packages(formats: Iterable[str]) -> None:
    """Import the client of the registry; ImportError, with the extra to install, if a package is missing."""
    with warnings.catch_warnings():  # of a library that this client imports
        warnings.simplefilter("ignore")
        for format in formats:
            try:
                import_module(PACKAGES.get(format, "msgspec"))
            except ImportError as error:
                raise ImportError(
                    f"format {format!r} needs {error.name}, which is not installed; run: pip install "
                    "'streamclust[registry]'"
                ) from error


class Registry:
    """A schema registry; connects when first used.

    With `register` the schemas of outputs are registered, if they are compatible with those before; otherwise they must
    be there.
    """

    def __init__(
        self,
        url: str,
        username: str | None = None,
        password: str | None = None,
        ca_file: str | None = None,
        register: bool = True,
    ) -> None:
        self.url, self.register = url, register
        self._options: dict[str, Any] = {"url": url, "timeout": TIMEOUT_SECONDS, "max.retries": 0}
        if username is not None:
            self._options["basic.auth.user.info"] = f"{username}:{password or ''}"
        if ca_file is not None:
            self._options["ssl.ca.location"] = ca_file
        self._client: SchemaRegistryClient | None = None

    @property
    def client(self) -> SchemaRegistryClient:
        """confluent-kafka's client."""
        if self._client is None:
            from confluent_kafka.schema_registry import SchemaRegistryClient

            self._client = SchemaRegistryClient(self._options)
        return self._client

    def texts(self, id: int, form: str | None = None) -> dict[str, str]:
        """The schema with this id, under the name "", after those that it refers to, under theirs."""
        with self.translated_errors():
            return self._texts(self.client.get_schema(id, fmt=form), "", form)

    def _texts(self, schema: Schema, name: str, form: str | None) -> dict[str, str]:
        found: dict[str, str] = {}
        for reference in schema.references or ():
            assert reference.subject is not None
            assert reference.version is not None
            other = self.client.get_version(reference.subject, reference.version, fmt=form).schema
            found |= self._texts(other, str(reference.name), form)
        return found | {name: str(schema.schema_str)}

    @contextmanager
    def translated_errors(self, subject: str | None = None) -> Iterator[None]:
        """Transient if the registry does not answer, UnfitSchema if it refuses the schema of a subject."""
        try:
            yield
        except Exception as error:
            for cause in _causes(error):
                if type(cause).__name__ == "SchemaRegistryError":
                    self._raise_answer(cause, subject)
                elif isinstance(cause, OSError) or "TransportError" in _names(cause):
                    raise Transient(f"the schema registry at {self.url} does not answer: {cause}") from error
            raise

    def _raise_answer(self, answer: Any, subject: str | None) -> None:  # noqa: ANN401  # typed by an optional package
        """Raise the error that an answer of the registry means; return if the message is at fault."""
        status = answer.http_status_code
        if status in LOGIN_STATUS:
            raise Transient(
                f"the schema registry at {self.url} refuses the login ({status}); "
                "check registry.username and registry.password"
            ) from answer
        if status in TEMPORARY_STATUS or status >= 500:
            raise Transient(f"the schema registry at {self.url} failed: {answer}") from answer
        if subject is not None and status in REFUSED_STATUS:
            raise UnfitSchema(
                f"the schema registry refuses the schema of {subject}: {answer}; delete the subject, relax its "
                "compatibility, or send the output to another topic"
            ) from answer
        if subject is not None:
            raise UnfitSchema(
                f"the schema registry has no such schema of {subject}: {answer}; register it (`streamclust config "
                "schemas` prints it) or set registry.register_schemas = true"
            ) from answer


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it was raised from."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}
