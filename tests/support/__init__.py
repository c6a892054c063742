"""What tests share: waiting (eventually), peers (Apache Kafka), the whole run (suite) ..."""
