"""The event loop, its timers, delayed operations (purgatory), and long work in slices."""
