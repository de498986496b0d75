"""Hands the service's outputs on: webhooks of alerts, and files of Parquet."""
