"""``./dev soak transactions``: copies that are killed. Start reading at copying.py.

plan.py has the faults (pure), check.py the checks (pure), feed.py the input and the readers,
processes.py the copies from outside, librdkafka_copy.py and CopyLoop.java from inside.
"""
