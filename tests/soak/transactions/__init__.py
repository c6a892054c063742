"""``./dev soak transactions``: copies that are killed. Start reading at copying.py.

plan.py has the faults (pure), check.py the checks (pure), feed.py the input and the readers,
processes.py controls the processes of the copies, librdkafka_copy.py and CopyLoop.java run in them.
"""
