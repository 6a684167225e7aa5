"""ACLs, declared in the table `acls`."""
