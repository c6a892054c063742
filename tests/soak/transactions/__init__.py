"""``./dev soak transactions``: copies that are killed. Start reading at copying.py.

plan.py has who is hit when (pure), check.py what must hold (pure), feed.py the input and what is
read back, processes.py the copies from outside, librdkafka_copy.py and CopyLoop.java from inside.
"""
