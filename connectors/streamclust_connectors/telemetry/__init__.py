"""Traces and metrics sent by OTLP (OpenTelemetry)."""
