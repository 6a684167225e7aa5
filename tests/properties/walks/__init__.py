"""Random walks of whole runs over clusters in memory; `test_whole_runs` walks them."""
