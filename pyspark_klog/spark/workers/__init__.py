"""What all Python processes need in which Spark runs klog: clients, errors, prompt answers.

May import: client, errors; of spark: errors.
Start reading at clients.py.
"""
