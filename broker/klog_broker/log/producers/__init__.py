"""What a log knows of its producers: epochs, sequence numbers, transactions."""
