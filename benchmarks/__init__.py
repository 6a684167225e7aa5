"""`make bench`: measure topicledger's speed and memory against alternatives, in one run on one machine.

Each benchmark runs several works in turns and compares them by ratios with a target, since seconds depend on the
machine.
"""
