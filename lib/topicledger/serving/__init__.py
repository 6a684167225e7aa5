"""A driver that stays (`topicledger serve`), and the console script that finds it.

The server runs commands in its own process, one at a time, with the streams of whoever asked. `protocol` says what
passes between the two, `client` is the console script, `server` answers, `command` is `serve`.
"""
