"""Tests of lake tables with a broker, and without Spark."""
