"""Metrics for Prometheus: the page, and the file for node_exporter."""
