"""From a request's frame to its handler, and from the response to its bytes."""
