"""Messages with schemas of a schema registry: Avro, Protobuf and JSON Schema, read and written."""

from streamclust_connectors.registry.client import Registry, import_packages
from streamclust_connectors.registry.readers import READERS, reader
from streamclust_connectors.registry.writers import WRITERS, writer

__all__ = ["READERS", "WRITERS", "Registry", "import_packages", "reader", "writer"]
