"""Configs of consumer, share and streams groups (KIP-848, KIP-932, KIP-1071), on Kafka 4.1 and later."""
