"""What must hold, whatever the seed does: one family of promises a file."""
