"""What this machine has of what Motet uses, what each missing thing costs, and how to mend it.

machine.py     asks the machine: versions, GPUs, sandbox, hub, disk, threads
versions.py    requirements of installed packages that are not met
findings.py    what the facts mean; pure
"""
