"""What the operating system gives: clocks, random numbers, descriptors, facts about the process."""
