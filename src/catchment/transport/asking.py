"""What clients ask of a broker's process, and what it answers: JSON on plain subjects.

    Describe   what is the overlay?                            ─► Described
    Come       I am here, in this life; have I been before?    ─► Came
    Deliver    push my frames from this position on            ─► Delivering

Anything may be asked again: a request that has no answer may or may not have had its effect.
"""

from __future__ import annotations

import asyncio
import time

import msgspec

from catchment.model.errors import UNREADABLE, CatchmentError, TransportError
from catchment.transport.description import Description
from catchment.transport.names import ask_subject, describe_subject
from catchment.transport.wire import AccessError, Connection, NoAnswerError

__all__ = [
    "HEARTBEAT_S",
    "Answer",
    "Came",
    "ClientDroppedError",
    "Come",
    "Deliver",
    "Delivering",
    "Describe",
    "Described",
    "Refusal",
    "Request",
    "RequestRefusedError",
    "ask",
    "described",
]

HEARTBEAT_S = 2.0
"""How often the server says that a client's outbox has nothing new."""
ANSWER_S = 30.0
ASK_AGAIN_S = 1.0
PAUSE_S = 0.05


class RequestRefusedError(CatchmentError):
    """The broker refuses a request, and says why; after `retry_s` it may accept the same one, unless that is None."""

    def __init__(self, reason: str, retry_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_s = retry_s


class ClientDroppedError(TransportError):
    """The broker knows the client no more: it has not read for too long, or another process has its name."""


class Describe(msgspec.Struct, frozen=True, tag=True):
    """What is the overlay?"""


class Come(msgspec.Struct, frozen=True, tag=True):
    """A client is here, in a life of its own."""

    client: str
    """Its name among those of its user."""
    incarnation: int
    durable: bool


class Deliver(msgspec.Struct, frozen=True, tag=True):
    """Push the frames of a client, from a position of its outbox on, to the subject with this nonce."""

    client: str
    attached: int
    """By which input the client came: nothing of another life is delivered."""
    begin: int
    nonce: str
    incarnation: int = 0
    """The life that asks: one that another has followed gets nothing. 0, of clients that do not say, is any."""


class Described(msgspec.Struct, frozen=True, tag=True):
    """The overlay."""

    overlay: Description


class Came(msgspec.Struct, frozen=True, tag=True):
    """The broker knows the client, or knows it again."""

    attached: int
    confirmed: int
    """The position in its outbox up to which an earlier life has confirmed."""
    bytes_max: int
    """How much may wait in its outbox."""


class Delivering(msgspec.Struct, frozen=True, tag=True):
    """Frames come."""


class Refusal(msgspec.Struct, frozen=True, tag=True):
    """It is not to be, and why."""

    reason: str
    life: int = 0
    """The client's, if the one that was asked for is earlier."""
    is_dropped: bool = False
    """The client is known no more."""
    is_passing: bool = False
    """To be asked again."""


Request = Describe | Come | Deliver
Answer = Described | Came | Delivering | Refusal
_answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


async def described(connection: Connection, user: str) -> Description:
    """What the overlay is, as any of its brokers says."""
    answer = await _asked(connection, describe_subject(user), Describe(), "an overlay")
    if not isinstance(answer, Described):
        raise TransportError(f"a broker answers {answer!r}; accepted is a description")
    return answer.overlay


async def ask(connection: Connection, broker: str, user: str, request: Come | Deliver) -> Answer:
    """Ask a broker's process until it answers."""
    answer = await _asked(connection, ask_subject(broker, user), request, f"broker {broker!r}")
    if isinstance(answer, Refusal) and answer.is_dropped:
        raise ClientDroppedError(answer.reason)
    return answer


async def _asked(connection: Connection, subject: str, request: Request, whom: str) -> Answer:
    data, until_s = msgspec.json.encode(request), time.monotonic() + ANSWER_S
    reason = ""
    while time.monotonic() < until_s:
        try:
            message = await connection.request(subject, data, within_s=ASK_AGAIN_S)
        except NoAnswerError:
            if connection.problem.startswith("Permissions Violation"):
                raise AccessError(
                    f"the server does not let {connection.user!r} ask {whom}: {connection.problem}; accepted is what "
                    "its roles allow"
                ) from None
            continue
        if message.status == 503:
            # It is about to start, or to start again.
            await asyncio.sleep(PAUSE_S)
            continue
        try:
            answer = _answers.decode(message.data)
        except UNREADABLE as error:
            raise TransportError(f"what {whom} answers does not decode: {error}") from None
        if not (isinstance(answer, Refusal) and answer.is_passing):
            return answer
        reason = f": {answer.reason}"
        await asyncio.sleep(PAUSE_S)
    raise TransportError(
        f"{whom} has not answered within {ANSWER_S:g} seconds{reason}; start one with `catchment up` or "
        "`catchment broker`"
    )
