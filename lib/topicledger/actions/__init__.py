"""The parts that actions on all kinds of resources share."""
