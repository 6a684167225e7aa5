"""Client quotas, declared in the table `quotas`."""
