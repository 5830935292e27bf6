"""A broker as a process against one server, from life to life.

A life ends with whatever it meets. A connection that is lost, a full store, and a predecessor that has still stored
something are the beginning of another life; anything else ends the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from catchment.broker.advice import Advice
from catchment.broker.broker import Settings
from catchment.model.errors import TransportError
from catchment.transport.context import LifeContext, LiveOptions, Tasks
from catchment.transport.credentials import OPEN, Credentials
from catchment.transport.figures import BrokerFigures, Counts
from catchment.transport.jetstream import FullError, JetStream, WrongPositionError
from catchment.transport.life import Life, Stopped
from catchment.transport.reports import Report, keep_silent
from catchment.transport.status import StatusAnswers
from catchment.transport.wire import AccessError, Connection, ConnectionLostError, open_connection

__all__ = ["LiveBroker", "LiveOptions"]

TAKEOVERS_MAX = 20
"""How often a process that holds the lease begins again, as its predecessor has still stored something."""
RECONNECT_S = (0.05, 2.0)


class LiveBroker:
    """One broker of an overlay against one server.

    `report` hears whatever an operator should know; `at` is called with the name of each point where a
    crash would be interesting.
    """

    def __init__(
        self,
        name: str,
        neighbours: Iterable[str],
        settings: Settings,
        make_advice: Callable[[], Iterable[Advice]],
        url: str,
        *,
        options: LiveOptions | None = None,
        credentials: Credentials = OPEN,
        report: Report = keep_silent,
        at: Callable[[str], None] = lambda point: None,
    ) -> None:
        self.name, self.neighbours, self.settings = name, tuple(sorted(set(neighbours))), settings
        self.make_advice, self.url, self.options = make_advice, url, options or LiveOptions()
        self.credentials, self.report, self.at = credentials, report, at
        self.serving = asyncio.Event()
        """Set while the broker takes inputs."""
        self._counts = Counts(name, self.neighbours)
        self._tasks = Tasks()
        self._life: Life | None = None
        self._is_stopping = False

    @property
    def position(self) -> int:
        """Of the last input that was handled in any life of this process."""
        return 0 if self._life is None else self._life.handled

    def figures(self) -> BrokerFigures:
        """How the broker stands, and what this process has done as it."""
        return self._counts.figures(self.position, None if self._life is None else self._life.standing())

    async def run(self) -> None:
        """Be this broker until `stop`, or until another process is; a lost connection is opened again."""
        self._connection = await self._connected()
        try:
            takeovers = 0
            while not self._is_stopping:
                before = self.position
                try:
                    await self._live_once(self._connection)
                except Stopped:
                    return
                except WrongPositionError as error:
                    # Whoever stores something now and then where it does not belong stops nobody.
                    takeovers = 1 if self.position > before else takeovers + 1
                    if takeovers > TAKEOVERS_MAX:
                        raise
                    self.report("begins again, as another process has still stored something", reason=str(error))
                except FullError as error:
                    self.report("begins again, as the server's store is full", "warning", reason=str(error))
                    await asyncio.sleep(RECONNECT_S[1])
                except ConnectionLostError as error:
                    self.report("is disconnected", "warning", reason=str(error))
                    await self._connection.close()
                    self._connection = await self._reopened()
        finally:
            self._counts.state = "ended"
            await self._connection.close()

    async def _live_once(self, connection: Connection) -> None:
        streams, self._tasks = JetStream(connection), Tasks()
        context = LifeContext(
            self.name, self.neighbours, self.options, streams, self.report, self.at, self._tasks, self._counts
        )
        self._counts.lives += 1
        self._counts.state = "recovering"
        life = self._life = Life(context, self.settings, self.make_advice, self.position)
        answers = StatusAnswers(self.name, connection, self.figures, lambda: life.broker)
        try:
            await life.live(self._serve)
        except WrongPositionError:
            # Whoever was this broker before may not have heard of it yet; whoever is it now has the lease.
            await life.lease.check()
            raise
        finally:
            answers.stop()
            self.serving.clear()
            self._counts.state = "disconnected"
            life.end()

    def _serve(self) -> None:
        self._counts.state = "serving"
        self.serving.set()

    def stop(self) -> None:
        """End after the step that is under way, with a snapshot."""
        self._is_stopping = True
        self._tasks.fail(Stopped())

    async def _connected(self) -> Connection:
        return await open_connection(self.url, f"broker {self.name}", self.credentials)

    async def _reopened(self) -> Connection:
        delay_s, delay_max_s = RECONNECT_S
        while True:
            try:
                connection = await self._connected()
            except AccessError:
                raise
            except TransportError:
                if self._is_stopping:
                    raise
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, delay_max_s)
            else:
                self.report("is connected again")
                return connection
