"""A long-lived driver (`topicledger serve`), and the console script that finds it.

The server runs commands in its own process, one at a time, with the client's streams. `protocol` defines their
messages, `client` is the console script, `server` answers it, and `command` is `serve`.
"""
