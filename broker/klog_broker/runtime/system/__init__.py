"""The operating system's clocks, random numbers, file descriptors and facts about the process."""
