"""Helpers that several tests share: polling (eventually), peers (Apache Kafka), the suite's run."""
