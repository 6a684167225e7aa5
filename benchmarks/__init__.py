"""`make bench`: what topicledger's speed and memory are measured by, side by side in one run on one machine.

Each benchmark compares works in one process, in turns, and reaches a ratio or doesn't: seconds are the machine's.
"""
