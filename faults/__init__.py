"""The fault catalogue: small frozen values, one module a family.

environment.py  what the world does to a correct program
ordering.py     synchronisation that comes late or not at all
signals.py      notifies and waits that are wrong in themselves
caches.py       what a compiler leaves out where cores have caches
addressing.py   the right operation on the wrong memory
host.py         mistakes of the host program
launch.py       what the launcher of a torch.distributed program gets wrong
memory.py       ids and buffers that a store's client hands over
storage.py      what the disk does to a correct program
processes.py    what the operating system does to a rank's real process
timing.py       what the world does to when things happen

A fault derives from harness.plan.Fault. Its `matches` takes exactly the operations that it would
change, so `nth` counts those and a fault that can fire at an occurrence does. Faults see operations
before the entry checks: `matches` therefore bears any argument, and leaves what is wrong already to
those checks.
"""
