"""The broker of the connectors' tests."""

from tests.connectors.conftest import broker_address, brokers, client, cluster, shared_broker

__all__ = ["broker_address", "brokers", "client", "cluster", "shared_broker"]
