"""The broker of the connectors' tests."""

from tests.connectors.conftest import broker_address, client, cluster, shared_broker

__all__ = ["broker_address", "client", "cluster", "shared_broker"]
