"""Apache Kafka's programs, clusters and directories."""
