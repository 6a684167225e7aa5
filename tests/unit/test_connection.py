"""Which of kafka-python's words about a connection that failed are told."""

import logging
import threading
from itertools import permutations

import pytest

from topicledger.kafka.connection import _last_words

TELLING = "SaslHandshake failed: UnsupportedSaslMechanismError"
LITTLE = ("Connection lost: KafkaTimeoutError", "Connection lost: KafkaConnectionError: socket disconnected")


def told(words: tuple[str, ...]) -> str:
    """What is kept of these words, heard in this order."""
    kept = []

    def hear() -> None:
        log = logging.getLogger("kafka.net.connection")
        for each in words:
            log.error("<KafkaConnection node_id=bootstrap-0 host=[127.0.0.1:1<-2] (initializing)>: %s", each)
        kept.append(_last_words.by_thread[threading.current_thread()])

    hearing = threading.Thread(target=hear)
    hearing.start()
    hearing.join()
    return kept[0]


@pytest.mark.parametrize("words", list(permutations((TELLING, *LITTLE))))
def test_the_brokers_own_words_outlive_closed_connections_and_time_outs(words: tuple[str, ...]) -> None:
    assert told(words) == TELLING


@pytest.mark.parametrize("words", list(permutations(LITTLE)))
def test_a_closed_connection_tells_more_than_a_time_out(words: tuple[str, ...]) -> None:
    assert told(words) == LITTLE[1]


def test_of_words_that_tell_as_much_the_last_are_kept() -> None:
    assert told((TELLING, "alert bad certificate")) == "alert bad certificate"
