"""Post announcements over HTTP in parallel, with a short time limit."""

from __future__ import annotations

import logging
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Collection, Sequence

from topicledger import __version__
from topicledger.config.http import opener
from topicledger.config.secrets import resolve
from topicledger.errors import SecretError

log = logging.getLogger(__name__)

SECONDS = 10.0
"""Time limit for all announcements of a run together."""
_ATTEMPT_SECONDS = 5.0


def post_all(posts: Sequence[tuple[int, str, str, bytes]], seconds: float = SECONDS) -> Collection[int]:
    """Post each (number of its [[notify]], reference to its address, content type, body).

    Returns within `seconds` the numbers whose addresses accepted all their posts. Logs a warning that names the
    [[notify]] for each post that failed.
    """
    until = time.monotonic() + seconds
    arrived: list[int] = []
    threads = [threading.Thread(target=_post, args=(*post, arrived), name="notify", daemon=True) for post in posts]
    for thread in threads:
        thread.start()
    for thread, (number, *_) in zip(threads, posts, strict=True):
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            log.warning("notify[%d]: no answer within %g s; the run continues", number, seconds)
    wanted, got = Counter(number for number, *_ in posts), Counter(arrived)
    return {number for number in wanted if got[number] == wanted[number]}


def _post(number: int, reference: str, content_type: str, body: bytes, arrived: list[int]) -> None:
    where = f"notify[{number}]"
    try:
        url = "".join(resolve(f"{where}.url", reference))
        if not url.lower().startswith(("http://", "https://")):
            log.warning("%s.url: the value of %s is not an http:// or https:// address", where, reference)
            return
        headers = {"Content-Type": content_type, "User-Agent": f"topicledger/{__version__}"}
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")
        with opener().open(request, timeout=_ATTEMPT_SECONDS) as response:
            log.info("%s: answered %d", where, response.status)
        arrived.append(number)
    except SecretError as error:
        log.warning("%s", error)
    except urllib.error.HTTPError as error:
        log.warning("%s: refused with HTTP status %d", where, error.code)
    except Exception as error:
        # The error's text may contain the address, which is a secret.
        reason = getattr(error, "reason", None)
        kind = type(reason if isinstance(reason, BaseException) else error).__name__
        log.warning("%s: can't be reached (%s)", where, kind)
