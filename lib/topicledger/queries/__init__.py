"""Questions to the tables: views, queries that only read, and files for data catalogs."""
