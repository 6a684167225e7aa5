"""A proxy between clients and an embedded Kafka that loses selected frames, so that the job needs no switch for faults.

It stands in front of every broker and reads frames. By itself it changes only the brokers' advertised addresses, so
that a client stays connected through the proxy. It reads plain text, including SASL, but not TLS.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, Self

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterPartitionReassignmentsRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataRequest, MetadataResponse

from topicledger_testing.embedded_kafka import HOST, Broker, EmbeddedKafka

CREATE_TOPICS: int = CreateTopicsRequest.API_KEY
DELETE_TOPICS: int = DeleteTopicsRequest.API_KEY
DESCRIBE_CONFIGS: int = DescribeConfigsRequest.API_KEY
ALTER_CONFIGS: int = IncrementalAlterConfigsRequest.API_KEY
CREATE_PARTITIONS: int = CreatePartitionsRequest.API_KEY
CREATE_ACLS: int = CreateAclsRequest.API_KEY
DELETE_ACLS: int = DeleteAclsRequest.API_KEY
ALTER_CLIENT_QUOTAS: int = AlterClientQuotasRequest.API_KEY
REASSIGN: int = AlterPartitionReassignmentsRequest.API_KEY
ELECT_LEADERS: int = ElectLeadersRequest.API_KEY
METADATA: int = MetadataRequest.API_KEY

_ADDRESSES = {each.API_KEY: each for each in (MetadataResponse, FindCoordinatorResponse, DescribeClusterResponse)}
"""The responses that contain addresses of brokers."""
_VALIDATING = {
    each.API_KEY: each
    for each in (
        CreateTopicsRequest,
        CreatePartitionsRequest,
        IncrementalAlterConfigsRequest,
        AlterClientQuotasRequest,
    )
}
"""The requests that have validateOnly."""
_START_SECONDS = 10.0
_POLL_SECONDS = 0.02

Direction = Literal["request", "response"]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One request or response that arrives at the proxy."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    validate_only: bool
    """Whether the request has validateOnly set, also for its response; false for other requests."""
    broker: int
    """The broker's node id."""
    direction: Direction
    n: int = 0
    """Number of the frame among those of its api key and direction, from 1 since the proxy's start."""


@dataclass(frozen=True)
class Fault:
    """A fault to inject into a frame."""

    name: Literal["drop", "cut", "delay", "hold", "refuse"]
    seconds: float = 0.0
    released: threading.Event | None = None


DROP = Fault("drop")
"""A dead link: neither the frame nor anything after it on this connection arrives, but the connection stays open."""
CUT = Fault("cut")
"""The frame never arrives, and both sides see the connection close."""


def delay(seconds: float) -> Fault:
    """Delay the frame and all later frames in its direction, even if the client has disconnected by then."""
    return Fault("delay", seconds)


def hold(released: threading.Event) -> Fault:
    """Delay as `delay` does, until the event is set."""
    return Fault("hold", released=released)


def refuse(seconds: float) -> Fault:
    """Cut every connection to this broker, and refuse new ones for this long."""
    return Fault("refuse", seconds)


Hook = Callable[[Frame], Fault | None]
"""Called before a frame is passed on, while all others wait; returns the fault to inject."""


@dataclass(kw_only=True)
class Rule:
    """Selects frames, and the fault to inject into them."""

    api_key: int
    direction: Direction
    nth: int
    times: int | None
    validate_only: bool | None
    do: Fault | Hook
    fired: int = 0
    """Number of times that the fault was injected."""

    def takes(self, frame: Frame, n: int) -> bool:
        """Whether the rule selects a frame, the n-th of those that `validate_only` counts."""
        last = None if self.times is None else self.nth + self.times - 1
        return (
            (self.api_key, self.direction) == (frame.api_key, frame.direction)
            and self.validate_only in (None, frame.validate_only)
            and self.nth <= n
            and (last is None or n <= last)
        )


@dataclass
class _Door:
    """The proxy's listener for one broker."""

    broker: Broker
    holder: socket.socket
    """Reserves the port while nothing listens on it."""
    server: asyncio.Server | None = None
    links: set[_Link] = field(default_factory=set)

    @property
    def port(self) -> int:
        return int(self.holder.getsockname()[1])


class FaultProxy:
    """A proxy in front of a running cluster during its `with` block; raises its own errors at the end.

    Clients connect to `bootstrap_servers`. Brokers may be killed and restarted in the meantime. Any thread may use it.
    """

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self.cluster_id = kafka.cluster_id
        self._kafka = kafka
        self._doors: list[_Door] = []
        self._rules: list[Rule] = []
        self._seen: list[Frame] = []
        self._counts: Counter[tuple[int, Direction, bool]] = Counter()
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()
        self._started = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)

    def __enter__(self) -> Self:
        for broker in self._kafka.brokers:
            holder = socket.socket()
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder.bind((HOST, 0))
            self._doors.append(_Door(broker, holder))
        self._thread.start()
        assert self._started.wait(_START_SECONDS), "the proxy did not start"
        if self._errors:
            self.__exit__(None, None, None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A loop that ended by itself is already closed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        for door in self._doors:
            door.holder.close()
        if self._errors and error is None:
            raise self._errors[0]

    @property
    def bootstrap_servers(self) -> list[str]:
        """The proxy's `host:port` for each broker."""
        return [f"{HOST}:{door.port}" for door in self._doors]

    def client_options(self, user: str | None = None) -> dict[str, Any]:
        """Return the cluster's client options, with the proxy's addresses."""
        return self._kafka.client_options(user) | {"bootstrap_servers": self.bootstrap_servers}

    def on(
        self,
        api_key: int,
        direction: Direction,
        *,
        nth: int = 1,
        times: int | None = 1,
        validate_only: bool | None = None,
        do: Fault | Hook,
    ) -> Rule:
        """Inject a fault into the n-th frame since the start, or into `times` frames from it on; None for all of them.

        With `validate_only`, only frames with this value of validateOnly count. If two rules select a frame, the older
        one applies.
        """
        rule = Rule(api_key=api_key, direction=direction, nth=nth, times=times, validate_only=validate_only, do=do)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget every rule, so that everything passes."""
        with self._lock:
            self._rules.clear()

    def stand_for(self, kafka: EmbeddedKafka) -> None:
        """Switch to another cluster with the same number of brokers; cuts every connection."""
        assert len(kafka.brokers) == len(self._doors)

        def swap() -> None:
            for door, broker in zip(self._doors, kafka.brokers, strict=True):
                door.broker = broker
                for link in list(door.links):
                    link.cut()

        self._loop.call_soon_threadsafe(swap)

    @property
    def seen(self) -> list[Frame]:
        """Return every frame so far, in order of arrival."""
        with self._lock:
            return list(self._seen)

    def count(self, api_key: int, direction: Direction, *, validate_only: bool | None = None) -> int:
        """Return the number of such frames so far."""
        with self._lock:
            return self._count(api_key, direction, validate_only)

    def _count(self, api_key: int, direction: Direction, validate_only: bool | None) -> int:
        kinds = (False, True) if validate_only is None else (validate_only,)
        return sum(self._counts[api_key, direction, kind] for kind in kinds)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            self._errors.append(error)
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        try:
            for door in self._doors:
                await self._open(door)
            self._started.set()
            await self._stopping.wait()
        finally:
            for door in self._doors:
                self._close(door)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _open(self, door: _Door) -> None:
        async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = _Link(self, door, reader, writer)
            door.links.add(link)
            try:
                await link.serve()
            finally:
                door.links.discard(link)

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._start(welcome(reader, writer))

        door.server = await asyncio.start_server(accept, HOST, door.port, reuse_port=True)

    def _start(self, work: Any) -> None:
        """Run a task in the background; its failure counts as the proxy's."""

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self._errors.append(error)

        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(ended)

    def _close(self, door: _Door) -> None:
        if door.server is not None:
            door.server.close()
            door.server = None
        for link in door.links:
            link.cut()

    def _refuse(self, door: _Door, seconds: float) -> None:
        async def reopen() -> None:
            await asyncio.sleep(seconds)
            await self._open(door)

        if door.server is not None:
            self._close(door)
            self._start(reopen())

    def _judge(self, frame: Frame) -> Fault | None:
        """Record a frame, and return the fault to inject."""
        with self._lock:
            self._counts[frame.api_key, frame.direction, frame.validate_only] += 1
            counted = replace(frame, n=self._count(frame.api_key, frame.direction, None))
            self._seen.append(counted)
            for rule in self._rules:
                if rule.takes(counted, self._count(frame.api_key, frame.direction, rule.validate_only)):
                    rule.fired += 1
                    break
            else:
                return None
        # Called without the lock, since a hook may ask for the frames seen.
        return rule.do if isinstance(rule.do, Fault) else rule.do(counted)

    def _port_instead_of(self, port: int) -> int:
        if port < 0:
            # There is no coordinator yet.
            return port
        for door in self._doors:
            if door.broker.port == port:
                return door.port
        raise ValueError(f"a broker says that it is on port {port}, which the proxy doesn't stand for")


class _Link:
    """One client's connection, and the corresponding connection to the broker."""

    def __init__(
        self, proxy: FaultProxy, door: _Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy, self._door = proxy, door
        self._client, self._to_client = reader, writer
        self._to_broker: asyncio.StreamWriter | None = None
        self._unanswered: dict[int, Frame] = {}
        self._dead = False
        self._client_left = False

    def cut(self) -> None:
        """Close both sides immediately."""
        for writer in (self._to_client, self._to_broker):
            if writer is not None:
                writer.transport.abort()

    async def serve(self) -> None:
        """Pass frames both ways until one side disconnects; requests of a disconnected client are still answered."""
        try:
            broker, self._to_broker = await asyncio.open_connection(HOST, self._door.broker.port)
            both = [asyncio.create_task(self._requests()), asyncio.create_task(self._responses(broker))]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if both[0].done() and self._unanswered:
                    self._client_left = True
                    await asyncio.wait({both[1]})
            finally:
                for task in both:
                    task.cancel()
                ends = await asyncio.gather(*both, return_exceptions=True)
            for error in ends:
                if isinstance(error, Exception) and not isinstance(error, (OSError, EOFError)):
                    raise error
        except OSError:
            # The broker is down or went down, so the client's connection is closed.
            pass
        finally:
            self.cut()

    async def _requests(self) -> None:
        assert self._to_broker is not None
        while True:
            data = await _read(self._client)
            if self._dead:
                continue
            frame = self._request(data)
            fault = self._proxy._judge(frame)
            if not await self._goes_on(fault):
                continue
            # kafka-python never sends requests without an answer (a Produce with acks=0).
            self._unanswered[frame.correlation_id] = frame
            self._to_broker.write(data)
            await self._to_broker.drain()

    async def _responses(self, broker: asyncio.StreamReader) -> None:
        while not (self._client_left and not self._unanswered):
            data = await _read(broker)
            (correlation_id,) = struct.unpack_from(">i", data, 4)
            request = self._unanswered.pop(correlation_id)
            if self._dead:
                continue
            fault = self._proxy._judge(replace(request, direction="response"))
            if not await self._goes_on(fault):
                continue
            self._to_client.write(self._readdressed(request, data))
            # Answers count even if the client has disconnected.
            with suppress(OSError):
                await self._to_client.drain()

    async def _goes_on(self, fault: Fault | None) -> bool:
        """Inject a fault into a frame; return whether the frame is passed on."""
        if fault is None:
            return True
        if fault.name == "delay":
            await asyncio.sleep(fault.seconds)
            return True
        if fault.name == "hold":
            assert fault.released is not None
            while not fault.released.is_set():
                await asyncio.sleep(_POLL_SECONDS)
            return True
        if fault.name == "drop":
            self._dead = True
        elif fault.name == "cut":
            self.cut()
        else:
            self._proxy._refuse(self._door, fault.seconds)
        return False

    def _request(self, data: bytes) -> Frame:
        api_key, api_version, correlation_id, length = struct.unpack_from(">hhih", data, 4)
        validate_only = False
        if api_key in _VALIDATING:
            request = _VALIDATING[api_key].decode(data, version=api_version, header=True, framed=True)
            validate_only = bool(request.validate_only)
        return Frame(
            api_key=api_key,
            api_version=api_version,
            correlation_id=correlation_id,
            client_id=data[14 : 14 + length].decode() if length >= 0 else None,
            validate_only=validate_only,
            broker=self._door.broker.node_id,
            direction="request",
        )

    def _readdressed(self, request: Frame, data: bytes) -> bytes:
        """Return the response with the proxy's ports in place of the brokers'."""
        kind = _ADDRESSES.get(request.api_key)
        if kind is None:
            return data
        response = kind.decode(data, version=request.api_version, header=True, framed=True)
        if kind is FindCoordinatorResponse:
            several = request.api_version >= 4
            places = response.coordinators if several else [response]
        else:
            places = response.brokers
        for place in places:
            place.port = self._proxy._port_instead_of(place.port)
        return bytes(response.encode(header=True, framed=True))


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Read one frame with its size; raises EOFError if the other side has disconnected."""
    size = await reader.readexactly(4)
    return size + await reader.readexactly(struct.unpack(">i", size)[0])
