"""The event loop, its timers, delayed operations (purgatory), and long work that is divided between
several turns of the loop."""
